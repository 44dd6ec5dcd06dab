"""Pulling replies without being held up by one of them.

Flower 1.42 pulls the objects of a reply one after the other and tries for up to two hours: a node that is cut off
in the middle of its upload would hold up everybody's answers, and the round. So each reply is pulled in a thread
of its own, and one that does not come is left to itself.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence

from flwr.app import Message
from flwr.serverapp import Grid

WAVE = 64
"""Replies pulled at the same time."""
PATIENCE_S = 2.0
"""Seconds after which a pull is left to itself."""


class Puller:
    """Pulls from a grid that is reached over a network. patience: seconds a wave of pulls may take."""

    def __init__(self, grid: Grid, patience: float = PATIENCE_S) -> None:
        self._grid, self._patience = grid, patience
        self._flying: dict[str, threading.Thread] = {}
        self._landed: queue.SimpleQueue[Message | Exception] = queue.SimpleQueue()

    def pull(self, ids: Sequence[str]) -> list[Message]:
        """Replies that have come by now. Raises what the network raised."""
        for low in range(0, len(ids), WAVE):
            wave = [id_ for id_ in ids[low : low + WAVE] if id_ not in self._flying]
            for id_ in wave:
                # A daemon: a pull that never ends must not keep the process from ending.
                self._flying[id_] = threading.Thread(target=self._fetch, args=(id_,), daemon=True)
                self._flying[id_].start()
            until = time.monotonic() + self._patience
            for id_ in wave:
                self._flying[id_].join(max(0.0, until - time.monotonic()))
        self._flying = {id_: thread for id_, thread in self._flying.items() if thread.is_alive()}
        return self._collect()

    def _fetch(self, id_: str) -> None:
        try:
            for reply in self._grid.pull_messages([id_]):
                self._landed.put(reply)
        except Exception as problem:
            self._landed.put(problem)

    def _collect(self) -> list[Message]:
        replies = []
        while not self._landed.empty():
            landed = self._landed.get()
            if isinstance(landed, Exception):
                raise landed
            replies.append(landed)
        return replies
