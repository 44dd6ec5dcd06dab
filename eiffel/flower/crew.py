"""Worker processes for `EiffelGrid`: each imports the ClientApp once and answers message after message.

A worker is a fresh interpreter on a socket; its life hangs on that socket, so that none outlives its owner
however it ends. A worker that dies (a crash, a kill) costs the message it worked on, which is answered with
the error Flower has for that, and is replaced.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait

from flwr.app import Context, Error, Message
from flwr.common.constant import ErrorCode

Done = tuple[str, Message, Context]
START_S = 120.0
"""Seconds within which a worker must be up."""


class Worker:
    """A process and the connection to it."""

    def __init__(self, where: str) -> None:
        ours, theirs = socket.socketpair()
        code = f"from eiffel.flower.crew import serve; serve({theirs.fileno()}, {where!r})"
        single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=(theirs.fileno(),),
            env={**os.environ, **single, "PYTHONPATH": path},
        )
        theirs.close()
        self.connection = Connection(ours.detach())
        self.task: tuple[str, Message, Context] | None = None

    def close(self) -> None:
        """Hang up and wait until it is gone; at most a few seconds."""
        self.connection.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)


class Crew:
    """`workers` processes that run the ClientApp at `where`. Raises RuntimeError when they cannot start."""

    def __init__(self, where: str, workers: int) -> None:
        self._where = where
        self._todo: deque[Done] = deque()
        self._done: dict[str, Done] = {}
        self._workers = [Worker(where) for _ in range(workers)]
        try:
            self._welcome(self._workers)
        except BaseException:
            self.close()
            raise

    def _welcome(self, workers: list[Worker]) -> None:
        until = time.monotonic() + START_S
        for worker in workers:
            if not worker.connection.poll(max(0.0, until - time.monotonic())):
                raise RuntimeError(f"a worker for {self._where!r} was not up after {START_S:g} s")
            try:
                problem = worker.connection.recv()
            except EOFError:
                problem = "it died while starting; its reason is on standard error"
            if problem:
                raise RuntimeError(f"a worker for {self._where!r} could not start: {problem}")

    @property
    def pids(self) -> list[int]:
        """Process ids."""
        return [worker.process.pid for worker in self._workers]

    def submit(self, id_: str, message: Message, context: Context) -> None:
        """Have a message run; a node's messages must not overlap, or its state would be that of the last."""
        self._todo.append((id_, message, context))
        self._hand_out()

    def _hand_out(self) -> None:
        for worker in self._workers:
            if worker.task is None and self._todo:
                worker.task = self._todo.popleft()
                worker.connection.send_bytes(pickle.dumps(worker.task[1:]))

    def take(self, wanted: set[str], seconds: float) -> Iterator[Done]:
        """What of the wanted is done, waiting up to `seconds` for the first of them."""
        until = time.monotonic() + seconds
        while True:
            ready = [id_ for id_ in self._done if id_ in wanted]
            left = until - time.monotonic()
            if ready or left <= 0:
                break
            self._collect(left)
        # In the order in which they were asked for, so that nothing depends on who was quicker.
        for id_ in sorted(ready, key=lambda i: int(i[1:])):
            yield self._done.pop(id_)

    def _collect(self, seconds: float) -> None:
        busy = {worker.connection: worker for worker in self._workers if worker.task is not None}
        for connection in wait(list(busy), seconds) if busy else []:
            worker = busy[connection]  # type: ignore[index]
            assert worker.task is not None
            id_, message, context = worker.task
            try:
                reply, context = pickle.loads(worker.connection.recv_bytes())
            except (EOFError, OSError):
                error = Error(ErrorCode.CLIENT_APP_CRASHED, "the process that ran the ClientApp died")
                reply = Message(error, reply_to=message)
                self._replace(worker)
            worker.task = None
            self._done[id_] = (id_, reply, context)
        self._hand_out()

    def _replace(self, worker: Worker) -> None:
        worker.close()
        fresh = Worker(self._where)
        self._workers[self._workers.index(worker)] = fresh
        self._welcome([fresh])

    def close(self) -> None:
        """End every worker."""
        for worker in self._workers:
            worker.close()


def serve(fd: int, where: str) -> None:
    """A worker's life: import the app, say so, answer until the owner hangs up."""
    import signal

    from eiffel.flower.grid import execute, identify, load

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    owner = Connection(fd)
    identify()
    try:
        app = load(where)
    except ValueError as problem:
        owner.send(str(problem))
        return
    owner.send("")
    try:
        while True:
            owner.send_bytes(pickle.dumps(execute(app, *pickle.loads(owner.recv_bytes()))))
    except (EOFError, OSError):
        return
