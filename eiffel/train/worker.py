"""Worker processes: a forge imports torch and lays out model and samples once, then forks the workers.

The forge is a fresh interpreter, single-threaded, so forking it is safe whatever threads the user's own
process runs, and a user's script needs no `if __name__ == "__main__"`. Its life hangs on a socket to the
owner: when that closes, for whatever reason, forge and workers are gone.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
from numpy.typing import NDArray

from eiffel.core.model import Ints
from eiffel.train.bank import Ragged
from eiffel.train.board import Board, Place, attach
from eiffel.train.learner import Learner
from eiffel.train.task import Task


@dataclass(frozen=True, slots=True)
class Rows:
    """`Parts` as another process sees them."""

    index: Ints
    start: Ints


@dataclass(frozen=True, slots=True)
class Loan:
    """The fields of `Federated` that training needs, over shared memory."""

    name: str
    x: NDArray[Any]
    y: Ints
    classes: int
    metric: str
    train: Ragged
    test: Ragged


@dataclass(frozen=True, slots=True)
class Order:
    """What a forge is told: the samples' places, the model, the path to train it by, the board."""

    name: str
    classes: int
    metric: str
    places: list[Place]
    card: Mapping[str, Any]
    settings: Mapping[str, Any]
    samples_fd: int
    board_fd: int

    def learner(self) -> Learner:
        """Build the learner over the shared samples."""
        x, y, *parts = attach(self.samples_fd, self.places)
        loan = Loan(self.name, x, y, self.classes, self.metric, Rows(*parts[:2]), Rows(*parts[2:]))
        return Learner(loan, self.card, self.settings)


@dataclass(frozen=True, slots=True)
class Job:
    """A call of `Learner.<what>`. For "train": where on the board sums (m, P) and full (R, P) go."""

    what: str
    items: tuple[Any, ...]
    sums: int = 0
    full: int | None = None
    rows: int = 0


def perform(learner: Learner, board: Board, job: Job) -> Any:
    """Do a job from the parameters at the head of the board."""
    size = learner.flat.size
    start = board.floats(0, size)
    if job.what != "train":
        return getattr(learner, job.what)(start, *job.items)
    (task,) = job.items
    assert isinstance(task, Task)
    full = None if job.full is None else board.floats(job.full, job.rows, size)
    return learner.train(start, task, board.floats(job.sums, len(task.weights), size), full)


def work(learner: Learner, board: Board, owner: Connection) -> None:
    """A worker's life: say hello, do one job after the other, end when the owner hangs up."""
    owner.send(os.getpid())
    while True:
        job = owner.recv()
        began = time.perf_counter()
        try:
            answer: Any = perform(learner, board, job)
        except Exception:
            answer = RuntimeError(f"a worker failed:\n{traceback.format_exc()}")
        owner.send((answer, time.perf_counter() - began))


def _fork(learner: Learner, board: Board, control: socket.socket, fd: int) -> int:
    """Fork a worker that speaks over the socket fd; returns its process id."""
    child = os.fork()
    if child:
        os.close(fd)
        return child
    try:
        control.close()
        work(learner, board, Connection(fd))
    except (EOFError, OSError):
        os._exit(0)
    finally:
        os._exit(1)


def forge(fd: int) -> None:
    """The forge's life: read its order from stdin, fork a worker for every socket that arrives on fd."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    control = socket.socket(fileno=fd)
    order = pickle.load(sys.stdin.buffer)
    learner, board = order.learner(), Board(order.board_fd)
    if sys.platform == "linux":  # elsewhere autograd may start threads, which a fork would lose
        learner.warm()
    children: set[int] = set()
    while True:
        _, fds, _, _ = socket.recv_fds(control, 1, 1)
        children = {c for c in children if os.waitpid(c, os.WNOHANG)[0] == 0}
        if not fds:
            break
        children.add(_fork(learner, board, control, fds[0]))
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
