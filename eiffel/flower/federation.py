"""A federation under way: the policy of a fleet that may grow, and the books of one that is real."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from eiffel.core.checkpoint import write_atomically
from eiffel.core.journal import Books
from eiffel.core.ledger import Ledger, Record, Rows
from eiffel.core.model import Outcomes, Params, Plan, Scores, Snapshot
from eiffel.core.widen import widen
from eiffel.method import Method, MethodState
from eiffel.worlds.grid import GridWorld

log = logging.getLogger("flwr")

NEVER = 10**9
"""Rounds between evaluations when there are to be none."""
DEVICES = "devices.json"


class Growing:
    """A method whose fleet may grow: a state is widened when devices have joined. See `core.loop.Policy`."""

    def __init__(self, method: Method, params: Params) -> None:
        self.method, self._params, self._devices = method, params, 0

    def init(self, devices: int) -> MethodState:
        """The state before the first round."""
        self._devices = devices
        return self.method.init(self._params, devices)

    def resumed(self, devices: int) -> None:
        """The state that comes next is one of so many devices."""
        self._devices = devices

    def _fit(self, state: MethodState, snapshot: Snapshot) -> MethodState:
        if snapshot.size == self._devices:
            return state
        wide: MethodState = widen(state, self.method.init(self._params, snapshot.size))
        return wide

    def ask(self, state: MethodState, snapshot: Snapshot, rng: np.random.Generator) -> Plan | None:
        """See `Policy.ask`."""
        return self.method.ask(self._fit(state, snapshot), snapshot, rng)

    def hear(self, state: MethodState, snapshot: Snapshot, probe: Plan, answers: Outcomes) -> MethodState:
        """See `Policy.hear`."""
        state = self.method.hear(self._fit(state, snapshot), snapshot, probe, answers)
        self._devices = snapshot.size
        return state

    def decide(self, state: MethodState, snapshot: Snapshot, rng: np.random.Generator) -> Plan:
        """See `Policy.decide`."""
        return self.method.decide(self._fit(state, snapshot), snapshot, rng)

    def learn(self, state: MethodState, snapshot: Snapshot, plan: Plan, outcomes: Outcomes) -> MethodState:
        """See `Policy.learn`."""
        state = self.method.learn(self._fit(state, snapshot), snapshot, plan, outcomes)
        self._devices = snapshot.size
        return state

    def stop(self, state: MethodState) -> str:
        """See `Policy.stop`."""
        return self.method.stop(state)

    @property
    def served(self) -> str:
        """Which model is published."""
        return self.method.served

    def models(self, state: MethodState) -> Mapping[str, Params]:
        """The server's models by name."""
        return self.method.models(state)


class World(Protocol):
    """What the books of a federation need of its world."""

    def score(self, models: Mapping[str, Params]) -> Mapping[str, Scores]:
        """Measure models on every device's test data."""
        ...

    def state(self) -> Mapping[str, Any]:
        """All that a resumed world needs."""
        ...


@dataclass(slots=True)
class Measured:
    """A world of which only the served model is measured: every evaluation costs every device a download."""

    world: World
    served: str

    def score(self, models: Mapping[str, Params]) -> Mapping[str, Scores]:
        """The served model's scores."""
        return self.world.score({self.served: models[self.served]})

    def state(self) -> Mapping[str, Any]:
        """The world's."""
        return self.world.state()


@dataclass(slots=True)
class Journal:
    """The books of real nodes: also what was sent in vain, what apps measured, and who the devices are.

    after: called with each round's number and the new state; a reason to end, or ''.
    """

    world: World
    folder: Path | None
    tell: Sequence[Callable[[Record, Rows], None]]
    after: Callable[[int, Any], str]
    books: Books = field(init=False)
    records: list[Record] = field(default_factory=list)
    _known: int = -1

    def probed(self, snapshot: Snapshot, probe: Plan, answers: Outcomes) -> None:
        """See `core.loop.Journal`."""
        self._fit(snapshot)
        self.books.probed(snapshot, probe, answers)

    def add(self, round_: int, snapshot: Snapshot, plan: Plan, outcomes: Outcomes, state: Any) -> str:
        """See `core.loop.Journal`."""
        self._fit(snapshot)
        if isinstance(self.world, GridWorld):
            totals = self.books.ledger.totals
            totals = replace(totals, bytes_up=totals.bytes_up + self.world.stray_bytes)
            self.books.ledger = replace(self.books.ledger, totals=totals)
            self._name_devices(self.world)
        why = self.books.add(round_, snapshot, plan, outcomes, state)
        return why or self.after(round_, state)

    def sink(self, row: Record, columns: Rows) -> None:
        """What the books call: completes the record and hands it on."""
        if isinstance(self.world, GridWorld):
            extra = self.world.stray_bytes
            row |= {
                "bytes_up": row["bytes_up"] + extra,
                "bytes": row["bytes"] + extra,
                "strays": dict(self.world.strays),
                "joules_stated": self.world.stated,
                "metrics": _table(self.world.metrics),
                "evaluation": _table(self.world.evaluation) if row["scores"] else None,
            }
        self.records.append(row)
        for tell in self.tell:
            tell(row, columns)
        log.info(say(row))

    def _fit(self, snapshot: Snapshot) -> None:
        if snapshot.size != self.books.ledger.participation.size:
            self.books.ledger = widen(self.books.ledger, Ledger.open(snapshot.size))

    def _name_devices(self, world: GridWorld) -> None:
        """Write which device is which, whenever somebody was seated."""
        if self.folder is not None and world.nodes.changes != self._known:
            self._known = world.nodes.changes
            names = {str(row): key for row, key in enumerate(world.nodes.keys) if key}
            write_atomically(self.folder / DEVICES, json.dumps(names, indent=1).encode())


def _table(means: Mapping[str, tuple[float, float]]) -> dict[str, dict[str, float]]:
    return {name: {"mean": mean, "coverage": coverage} for name, (mean, coverage) in means.items()}


def say(row: Record) -> str:
    """A round in a line."""
    scores, parts = row["scores"], [f"{row['delivered']} of {row['chosen']} counted"]
    parts += [f"{count} {status}" for status, count in row["lost"].items()]
    parts += [f"{count} stray {status}" for status, count in row.get("strays", {}).items()]
    if scores:
        served = scores[scores["served"]]
        parts.append(f"accuracy {served['accuracy']:.4f}, worst tenth {served['worst10']:.4f}")
    elif row["first_loss"] is not None:
        parts.append(f"loss {row['first_loss']:.4f}")
    parts.append(f"{row['seconds']:.1f} s, {row['bytes'] / 1e6:.2f} MB, {row['joules']:.1f} J")
    return f"[ROUND {row['round']}] " + ", ".join(parts)
