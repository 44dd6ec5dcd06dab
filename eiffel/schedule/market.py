"""The market (ours): device time at clearing prices, re-decided every slot."""

from dataclasses import dataclass, replace

import numpy as np

from eiffel.core.jobs import Floats, Ints, Nodes, Outcomes, Plan, Snapshot
from eiffel.core.market import clear, fill
from eiffel.core.placement import place
from eiffel.core.refusals import verdict
from eiffel.schedule.order import as_counts, kinds_held, open_rates
from eiffel.schedule.utility import Guard, Utility, chosen, worth


@dataclass(frozen=True, slots=True)
class Memory:
    """Prices of the last slot, where the next search starts, and the guard."""

    price: Floats  # (R,)
    guard: Guard


@dataclass(frozen=True, slots=True)
class Market:
    """Clearing prices for device types; jobs buy in the order of their surplus; what is left is backfilled.

    utility: what a GPU is worth to a job (`schedule.utility`). slack: of the guard. mixed: a gang that fits no
    single type may take leftover GPUs of several, at the speed of the slowest.
    """

    name: str = "market"
    utility: Utility = "guard"
    slack: float = 0.06
    mixed: bool = True

    @property
    def mixes(self) -> bool:
        """Whether one gang may lie on several device types."""
        return self.mixed

    def init(self, nodes: Nodes) -> Memory:
        """Start from prices of 0."""
        return Memory(np.zeros(len(nodes.types)), Guard())

    def learn(self, state: Memory, plan: Plan, outcomes: Outcomes, snapshot: Snapshot) -> Memory:
        """Keep the prices for a warm start."""
        memory: Memory = plan.memo
        return memory

    def decide(self, state: Memory, snapshot: Snapshot, rng: np.random.Generator) -> Plan:
        """Clear, backfill, place."""
        guard = state.guard.look(snapshot, self.slack) if self.utility == "guard" else state.guard
        value = offers(snapshot, chosen(self.utility, guard), snapshot.rate)
        cleared = clear(value, snapshot.gang, snapshot.capacity, state.price)
        counts = backfill(snapshot, cleared.take, cleared.room, value, self.mixed)
        rows = place(counts, snapshot.held, snapshot.nodes, snapshot.free)
        memory = replace(state, price=cleared.price, guard=guard)
        until = np.inf if satisfied(counts, value) else 0.0
        return verdict(snapshot, rows, price=cleared.price, value=value, until=until, memo=memory)


def offers(snapshot: Snapshot, utility: str, rate: Floats) -> Floats:
    """(J, R) value per GPU; where taking a type means moving, less the part of a slot that a move costs."""
    value = worth(utility, snapshot, np.where(open_rates(snapshot) > -np.inf, rate, 0.0))
    have = kinds_held(snapshot)
    moves = (have.sum(axis=1, keepdims=True) > 0) & (have == 0)
    return np.where(moves, value * max(0.0, 1 - snapshot.restart / snapshot.slot), value)


def satisfied(counts: Ints, value: Floats) -> bool:
    """Whether every job runs, and where it likes best: then the plan holds until something happens."""
    best = counts[np.arange(len(counts)), value.argmax(axis=1)] if value.size else np.zeros(0)
    return bool((best > 0).all())


def backfill(snapshot: Snapshot, take: Ints, room: Ints, value: Floats, mixed: bool) -> Ints:
    """(J, R) counts: leftover GPUs go to jobs that wait, most valuable first, whatever the price."""
    kinds = len(room)
    waits = np.flatnonzero(take < 0)
    best = value.max(axis=1, initial=0.0)
    order = waits[np.lexsort((snapshot.job[waits], -best[waits]))]
    if room.any() and len(order):
        extra, room = fill(np.where(value > 0, value, -np.inf), snapshot.gang, room, order)
        take = np.where(take < 0, extra, take)
    counts = as_counts(take, snapshot.gang, kinds)
    if mixed and room.any():
        counts = mix(snapshot, counts, room.copy(), order[take[order] < 0])
    return counts


def mix(snapshot: Snapshot, counts: Ints, room: Ints, order: Ints) -> Ints:
    """Give gangs that fit no single type leftover GPUs of several, fastest types first (in place)."""
    order = order[snapshot.gang[order] <= room.sum()]
    for j in order:
        gang = int(snapshot.gang[j])
        if gang > room.sum() or not (room > 0).any():
            continue
        usable = np.flatnonzero((snapshot.spread[j] > 0) & (room > 0))
        kinds = usable[np.argsort(-snapshot.spread[j, usable], kind="stable")]
        before = np.concatenate([[0], np.cumsum(room[kinds])])
        if before[-1] < gang:
            continue
        part = np.clip(gang - before[:-1], 0, room[kinds])
        counts[j, kinds] = part
        room[kinds] -= part
    return counts
