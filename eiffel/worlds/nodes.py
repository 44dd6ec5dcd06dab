"""Who takes part in a real federation: stable keys, their rows in the scheduler's arrays, what is known of them.

A node's id changes whenever it comes back; its key does not, and its row, with its history, belongs to the key.
What a node does not say is estimated: from its own answers, else from the median of those who did say.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Bools, Codes, Reason, Snapshot

log = logging.getLogger("eiffel")

FIGURES = ("examples", "step_s", "step_j", "exchange_s", "exchange_j", "battery_j", "capacity_j", "floor")
"""Per device; NaN where nobody said. floor: share of its capacity below which it will not work."""
WATTS = 3.0
"""Of a device that says nothing of its power: a phone's busy cores (Redmi Note 8 by its power profile)."""
STEP_S, EXCHANGE_S = 1e-4, 1e-3
"""Of a fleet of which nothing is known yet: alike for all, and too short to miss any deadline unheard."""
KEEP = 0.7
"""Weight of the old estimate when a new measurement comes in."""


class Nodes:
    """N rows of figures, and which node holds each row at present. size: N, or 0 to grow as nodes come.

    changes: how often somebody was seated.
    """

    def __init__(self, size: int = 0) -> None:
        self.declared = size > 0
        self.keys: list[str] = [""] * size
        self._room = np.full((len(FIGURES), size), np.nan)
        self.row_of: dict[str, int] = {}
        self.node_of: dict[int, int] = {}
        self._row_of_node: dict[int, int] = {}
        self._first_free = 0
        self.changes = 0

    @property
    def size(self) -> int:
        """N."""
        return len(self.keys)

    def row(self, node: int) -> int | None:
        """The row that a node id holds at present."""
        return self._row_of_node.get(node)

    def meet(self, arrivals: Mapping[int, tuple[str, Mapping[str, float]]], present: Sequence[int]) -> None:
        """Give newcomers (node id -> key, figures) their rows, in the order of their keys."""
        alive = set(present)
        for node, (key, figures) in sorted(arrivals.items(), key=lambda item: (_order(item[1][0]), item[0])):
            holder = self.node_of.get(self.row_of.get(key, -1))
            if holder is not None and holder in alive and holder != node:
                log.warning(
                    "node %d says that it is %r, which node %d is already: kept apart", node, key, holder
                )
                key = f"{key}@{node}"
            self._seat(node, key)
            self.tell(self.row_of[key], figures)

    def _seat(self, node: int, key: str) -> None:
        row = self.row_of.get(key)
        if row is None:
            row = self._free(key)
            if row is None:
                log.warning(
                    "there is no room for %r: the federation was declared to have %d devices", key, self.size
                )
                return
            self.keys[row], self.row_of[key] = key, row
        self._row_of_node.pop(self.node_of.get(row, -1), None)
        self.node_of[row], self._row_of_node[node] = node, row
        self.changes += 1

    def _free(self, key: str) -> int | None:
        """A row for a new key: its own number where it is one, else the first free one, else a new one."""
        if key.isdecimal() and int(key) < self.size and not self.keys[int(key)]:
            return int(key)
        while self._first_free < self.size and self.keys[self._first_free]:
            self._first_free += 1
        if self._first_free == self.size:
            if self.declared:
                return None
            self.keys.append("")
            if self.size > self._room.shape[1]:
                more = np.full((len(FIGURES), max(self.size, 64)), np.nan)
                self._room = np.concatenate([self._room, more], axis=1)
        return self._first_free

    @property
    def figures(self) -> NDArray[np.float64]:
        """(figures, N), of which the room for growth is not shown."""
        return self._room[:, : self.size]

    def online(self, present: Sequence[int]) -> Bools:
        """(N,) whose node is among those present."""
        rows = [row for node in present if (row := self._row_of_node.get(node)) is not None]
        there = np.zeros(self.size, np.bool_)
        there[rows] = True
        return there

    def tell(self, row: int, figures: Mapping[str, float]) -> None:
        """Take in figures a device states about itself; unknown names and values that are no numbers are ignored."""
        for name, value in figures.items():
            if name in FIGURES and not np.isnan(value):
                self.figures[FIGURES.index(name), row] = value

    def timed(self, row: int, seconds: float, steps: int, figures: Mapping[str, float]) -> None:
        """Learn from an answer: `seconds` between question and answer, of which the device says what it computed."""
        self.tell(row, figures)
        busy = figures.get("seconds", float("nan"))
        if not np.isfinite(busy):
            known = self.figures[FIGURES.index("exchange_s"), row]
            busy = max(seconds - (known if np.isfinite(known) else 0.0), 0.0)
        if steps > 0 and "step_s" not in figures:
            self._smooth("step_s", row, busy / steps)
        if "exchange_s" not in figures:
            self._smooth("exchange_s", row, max(seconds - busy, 0.0))

    def _smooth(self, name: str, row: int, new: float) -> None:
        at = FIGURES.index(name)
        old = self.figures[at, row]
        self.figures[at, row] = new if np.isnan(old) else KEEP * old + (1 - KEEP) * new

    def figure(self, name: str, empty: float) -> NDArray[np.float32]:
        """(N,) a figure, with the median of the known (or `empty`) where it is not known."""
        values = self.figures[FIGURES.index(name)]
        known = values[np.isfinite(values)]
        filled = np.where(np.isnan(values), float(np.median(known)) if known.size else empty, values)
        return filled.astype(np.float32)

    def snapshot(self, round_: int, now: float, reason: Codes, bytes_down: int, bytes_up: int) -> Snapshot:
        """What the scheduler sees. reason: (N,) what the world knows beyond the figures."""
        step_s, exchange_s = self.figure("step_s", STEP_S), self.figure("exchange_s", EXCHANGE_S)
        capacity = np.where(np.isnan(self._raw("capacity_j")), np.inf, self._raw("capacity_j"))
        charge = np.where(np.isnan(self._raw("battery_j")), capacity, self._raw("battery_j"))
        examples = self.figure("examples", 1.0).astype(np.int32)
        floor = np.nan_to_num(self._raw("floor"))
        with np.errstate(invalid="ignore"):
            low = np.isfinite(capacity) & (charge <= floor * capacity)
        reason = np.where((reason == Reason.CHOSEN) & low, np.uint8(Reason.BATTERY), reason)
        reason = np.where((reason == Reason.CHOSEN) & (examples <= 0), np.uint8(Reason.NO_DATA), reason)
        return Snapshot(
            round=round_,
            now=now,
            reason=np.asarray(reason, np.uint8),
            examples=examples,
            step_s=step_s,
            step_j=_or(self._raw("step_j"), WATTS * step_s),
            exchange_s=exchange_s,
            exchange_j=_or(self._raw("exchange_j"), WATTS * exchange_s),
            battery_j=charge.astype(np.float32),
            capacity_j=capacity.astype(np.float32),
            bytes_down=bytes_down,
            bytes_up=bytes_up,
        )

    def _raw(self, name: str) -> NDArray[np.float64]:
        return np.asarray(self.figures[FIGURES.index(name)])

    def state(self) -> dict[str, Any]:
        """Keys and figures; node ids belong to a run and are learnt anew."""
        return {"keys": np.array(self.keys, dtype=np.str_), "figures": self.figures.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up the rows of a saved federation; nodes that are here already are seated by their keys."""
        here: dict[int, tuple[str, Mapping[str, float]]] = {
            node: (self.keys[row], {}) for row, node in self.node_of.items()
        }
        self.keys = [str(key) for key in np.atleast_1d(state["keys"])]
        self._room = np.array(state["figures"], np.float64).reshape(len(FIGURES), -1)
        self.row_of = {key: row for row, key in enumerate(self.keys) if key}
        self.node_of, self._row_of_node, self._first_free = {}, {}, 0
        self.changes += 1
        self.meet(here, list(here))


def _order(key: str) -> tuple[int, int, str]:
    """Numbers as numbers, then names."""
    return (0, int(key), key) if key.isdecimal() else (1, 0, key)


def _or(values: NDArray[np.float64], other: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(np.isnan(values), other, values).astype(np.float32)
