"""The crew of one machine: persistent single-threaded workers that pull blocks, the costliest first.

Work begins alone, at once; workers are forged in the background when the time spent alone says that they
pay, and take over when they are there. Who does a block changes nothing in the result.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eiffel.core.model import Params
from eiffel.train import models
from eiffel.train.board import Board, share
from eiffel.train.learner import Learner
from eiffel.train.task import Task
from eiffel.train.worker import Job, Order, perform

if TYPE_CHECKING:
    from eiffel.data.federated import Federated
    from eiffel.train.engine import Block

log = logging.getLogger("eiffel.train")

RETRIES = 3  # times that the worker doing a block may die before the run fails
WORTH = 0.002  # seconds of work below which sharing it costs more than it saves


class Forge:
    """The process that forks workers (`eiffel.train.worker.forge`), as its owner sees it."""

    def __init__(self, data: Federated, card: models.Card, settings: Mapping[str, Any], board: Board) -> None:
        parts = data.train.index, data.train.start, data.test.index, data.test.start
        samples, places = share((data.x, data.y, *parts))
        self.control, theirs = socket.socketpair()
        order = Order(
            data.name, data.classes, data.metric, places, dict(card), dict(settings), samples, board.fd
        )
        code = f"from eiffel.train.worker import forge; forge({theirs.fileno()})"
        single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            pass_fds=(theirs.fileno(), samples, board.fd),
            env={**os.environ, **single, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
        )
        theirs.close()
        os.close(samples)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.process.stdin as pipe:
            pipe.write(pickle.dumps(order))

    def worker(self) -> Connection:
        """Ask for a worker; the connection becomes readable when it is up, or at its end if it never is."""
        ours, theirs = socket.socketpair()
        with theirs, contextlib.suppress(OSError):
            socket.send_fds(self.control, [b"+"], [theirs.fileno()])
        return Connection(ours.detach())

    def close(self, up: bool) -> None:
        """Hang up and wait until forge and workers are gone; at most a few seconds."""
        self.control.close()
        if not up:
            self.process.kill()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)


class Local:
    """Implements `eiffel.train.engine.Crew` with up to `workers` processes."""

    def __init__(
        self, data: Federated, card: models.Card, settings: Mapping[str, Any], learner: Learner, workers: int
    ) -> None:
        self.learner, self.workers, self.board = learner, workers, Board()
        self.patience = float(settings.get("patience", 1.0))
        self.budget = float(settings.get("budget", 600.0))
        self._order = data, card, settings
        self._forge: Forge | None = None
        self._coming: list[Connection] = []
        self._idle: list[Connection] = []
        self._busy: dict[Connection, int] = {}
        self.pids: dict[Connection, int] = {}
        self._spent = 0.0
        self._rate: dict[str, float] = {}
        self._head = -(-learner.flat.size // 16) * 16
        if self.patience == 0:
            self._recruit()

    def download(self, params: Params) -> None:
        """Lay the model at the head of the board, where every process reads it."""
        self.board.room(self._head)
        self.board.floats(0, params.size).copy_(torch.from_numpy(np.ascontiguousarray(params)))

    def train(self, tasks: list[Task], full: NDArray[np.float32] | None) -> tuple[Tensor, list[Block]]:
        """As `Crew.train`: every block sums into its own place on the board; places are added in order."""
        size, rows, m = self.learner.flat.size, 0 if full is None else len(full), len(tasks[0].weights)
        each = -(-m * size // 16) * 16
        whole = self._head + len(tasks) * each
        self.board.room(whole + rows * size)
        jobs = [
            Job("train", (t,), self._head + k * each, whole if rows else None, rows)
            for k, t in enumerate(tasks)
        ]
        total = torch.empty(m, size)

        def sum_up(k: int) -> None:
            place = self.board.floats(jobs[k].sums, m, size)
            total.copy_(place) if k == 0 else total.add_(place)

        results = self._deal(jobs, sum_up)
        if full is not None:
            full[:] = self.board.floats(whole, rows, size).numpy()
        return total, results

    def measure(self, what: str, jobs: list[tuple[Any, ...]]) -> list[Any]:
        """As `Crew.measure`."""
        return self._deal([Job(what, items) for items in jobs])

    def close(self) -> None:
        """End every process and give the memory back."""
        up = bool(self.pids)
        self._dismiss()
        if self._forge is not None:
            self._forge.close(up)
        self._forge = None
        self.board.close()

    def _deal(self, jobs: Sequence[Job], then: Callable[[int], Any] = lambda _: None) -> list[Any]:
        """Have all jobs done, here or by workers; answers in order. Calls then(k) in order as they come in."""
        answers: dict[int, Any] = {}
        done = 0
        todo, deaths = deque(range(len(jobs))), Counter[int]()
        try:
            while len(answers) < len(jobs):
                if self._shared(jobs):
                    self._hand_out(jobs, todo, deaths)
                    self._collect(jobs, todo, answers, deaths)
                    self._hand_out(jobs, todo, deaths)
                else:
                    self._alone(jobs, todo, answers)
                while done in answers:
                    then(done)
                    done += 1
        except BaseException:
            self._dismiss()
            raise
        return [answers[k] for k in range(len(jobs))]

    def _shared(self, jobs: Sequence[Job]) -> bool:
        """Whether workers do these jobs: there are several, they are worth it, and someone is up."""
        worth = self.patience == 0 or self._rate.get(jobs[0].what, 0.0) * len(jobs) > WORTH
        if self._busy:
            self._welcome(0.0)
            return True
        if len(jobs) < 2 or not worth:
            return False
        if not (self._idle or self._coming) and self._spent >= self.patience:
            self._recruit()
        self._welcome(self.budget if self.patience == 0 else 0.0)
        return bool(self._idle)

    def _alone(self, jobs: Sequence[Job], todo: deque[int], answers: dict[int, Any]) -> None:
        """Do the next job in this process, and learn how long such a job takes."""
        k, began = todo.popleft(), time.perf_counter()
        answers[k] = perform(self.learner, self.board, jobs[k])
        seconds = time.perf_counter() - began
        self._rate[jobs[k].what] = seconds
        self._spent += seconds if len(jobs) > 1 else 0.0

    def _recruit(self) -> None:
        """Start the forge, unless it is there, and ask it for all workers."""
        if self._forge is not None and self._forge.process.poll() is not None:
            self._forge.close(False)
            self._forge = None
        if self._forge is None:
            self._forge = Forge(*self._order, self.board)
        self._coming = [self._forge.worker() for _ in range(self.workers)]

    def _welcome(self, patience: float) -> None:
        """Take in workers that are up, waiting for all of them up to `patience` seconds."""
        until = time.monotonic() + patience
        while self._coming:
            ready = wait(self._coming, max(0.0, until - time.monotonic()))
            for conn in ready:
                assert isinstance(conn, Connection)
                self._coming.remove(conn)
                try:
                    self.pids[conn] = conn.recv()
                    self._idle.append(conn)
                except (EOFError, OSError):
                    conn.close()
                    self._give_up()
            if not ready:
                break

    def _give_up(self) -> None:
        """Workers cannot start (its reason is on stderr): go on alone, and say so once."""
        if self.workers:
            log.warning("worker processes could not start; training goes on in one process")
        self.workers, self.patience, self._spent = 0, float("inf"), 0.0

    def _hand_out(self, jobs: Sequence[Job], todo: deque[int], deaths: Counter[int]) -> None:
        """Give every idle worker the next job."""
        while todo and self._idle:
            conn, k = self._idle.pop(), todo.popleft()
            self._busy[conn] = k
            try:
                conn.send(jobs[k])
            except OSError:
                self._bury(conn, todo, deaths)

    def _collect(
        self, jobs: Sequence[Job], todo: deque[int], answers: dict[int, Any], deaths: Counter[int]
    ) -> None:
        """Wait for an answer or a death."""
        ready = wait(list(self._busy), self.budget)
        if not ready and self._busy:
            raise TimeoutError(
                f"no worker answered for {self.budget:g} s; raise engine.budget if that is normal"
            )
        for conn in ready:
            assert isinstance(conn, Connection)
            try:
                answer, seconds = conn.recv()
            except (EOFError, OSError):
                self._bury(conn, todo, deaths)
                continue
            if isinstance(answer, RuntimeError):
                raise answer
            k = self._busy.pop(conn)
            self._idle.append(conn)
            answers[k], self._rate[jobs[k].what] = answer, seconds

    def _bury(self, conn: Connection, todo: deque[int], deaths: Counter[int]) -> None:
        """A worker died: its job goes back to the front, and a new worker is asked for."""
        k = self._busy.pop(conn)
        log.warning("worker %s died; its block is done again", self.pids.pop(conn))
        conn.close()
        deaths[k] += 1
        if deaths[k] > RETRIES:
            raise RuntimeError(f"block {k} killed {deaths[k]} workers in a row; is there enough memory?")
        todo.appendleft(k)
        if self._forge is not None:
            self._coming.append(self._forge.worker())

    def _dismiss(self) -> None:
        """End all workers, at once; later work asks the forge for new ones."""
        for conn in self._busy:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[conn], signal.SIGKILL)
        for conn in (*self._coming, *self._idle, *self._busy):
            conn.close()
        self._coming, self._idle, self._busy, self.pids = [], [], {}, {}
