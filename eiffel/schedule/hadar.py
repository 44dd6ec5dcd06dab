"""Hadar (Sultana et al., IPDPS 2024), our reconstruction: exponential prices, payoff-maximising allocation.

The abstract fixes: task-level heterogeneity, an optimisation with a dual, allocation by payoff, preemption per
slot. Ours: the price constants, the utilities, the order in which jobs are asked, and the backfill.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from eiffel.core.jobs import NOWHERE, Bools, Floats, Ints, Nodes, Outcomes, Plan, Rows, Snapshot
from eiffel.core.placement import place
from eiffel.core.refusals import verdict
from eiffel.schedule.market import backfill, offers, satisfied
from eiffel.schedule.order import kinds_held
from eiffel.schedule.utility import Guard, Utility, chosen, worth


@dataclass(frozen=True, slots=True)
class Hadar:
    """Jobs are asked in decreasing value density; each takes the allocation with the largest payoff, if positive.

    Payoff = gang x value - the marginal prices of the GPUs it takes; the price of type r is
    low (high/low)^(used/capacity), high = max_j V_jr, low = floor x min_j V_jr. Candidates: the present
    allocation, each type alone, and (`mixed`) the fastest types together until the gang is whole. With
    `refill` leftover GPUs go to waiting jobs whatever the price (without it half of the cluster idles). On
    nodes of one GPU and gangs of one, the best allocation is an assignment problem and solved exactly.
    `migrate=False`: a job stays on the node (of several GPUs: the device type) where it started.
    """

    name: str = "hadar"
    utility: Utility = "jct"
    floor: float = 1e-8
    mixed: bool = True
    refill: bool = True
    migrate: bool = True
    slack: float = 0.06

    @property
    def mixes(self) -> bool:
        """Whether one gang may lie on several device types."""
        return self.mixed

    def init(self, nodes: Nodes) -> Guard:
        """Start with a guard that has promised nothing (used by utility `guard` only)."""
        return Guard()

    def learn(self, state: Guard, plan: Plan, outcomes: Outcomes, snapshot: Snapshot) -> Guard:
        """Keep the guard."""
        guard: Guard = plan.memo
        return guard

    def decide(self, state: Guard, snapshot: Snapshot, rng: np.random.Generator) -> Plan:
        """Ask the jobs one after another, backfill, place."""
        guard = state.look(snapshot, self.slack) if self.utility == "guard" else state
        utility = chosen(self.utility, guard)
        if (snapshot.nodes.devices == 1).all() and (snapshot.gang == 1).all():
            return self._assign(snapshot, utility, guard)
        value = offers(snapshot, utility, snapshot.rate)
        counts, price, room = self._auction(snapshot, utility, value)
        if self.refill and room.any():
            take = np.where(counts.any(axis=1), counts.argmax(axis=1), -1)
            extra = backfill(snapshot, take, room, value, self.mixed)
            counts = np.where(counts.any(axis=1, keepdims=True), counts, extra)
        rows = place(counts, snapshot.held, snapshot.nodes, snapshot.free)
        until = np.inf if satisfied(counts, value) else 0.0
        return verdict(snapshot, rows, price=price, value=value, until=until, memo=guard)

    def _auction(self, seen: Snapshot, utility: str, value: Floats) -> tuple[Ints, Floats, Ints]:
        """Sequential argmax payoff. Returns (counts (J, R), prices per GPU at the end (R,), room (R,))."""
        have: Ints = kinds_held(seen)
        runs: Bools = np.asarray(have.any(axis=1), bool)
        fixed: Bools = runs & (not self.migrate)
        apart = worth(utility, seen, seen.spread)
        counts = np.zeros(value.shape, np.int64)
        floor = _Floor(np.maximum(value, apart) if self.mixed else value, seen.capacity, self.floor)
        best = value.max(axis=1, initial=0.0)
        order = np.lexsort((seen.job, -best, ~fixed))
        together = apart.max(axis=1, initial=0.0)
        ranked = np.argsort(-apart, axis=1, kind="stable").tolist()
        gang, held, present = seen.gang.tolist(), runs.tolist(), have.tolist()
        offer, split = value.tolist(), apart.tolist()
        stay = fixed.tolist()
        for j in order.tolist():
            if not floor.left:
                break
            w = gang[j]
            if w > floor.left or (best[j] <= 0 and together[j] <= 0):
                continue
            if stay[j]:
                choice: list[int] | None = present[j]
            else:
                choice = floor.choose(
                    offer[j],
                    split[j],
                    w,
                    ranked[j] if self.mixed else [],
                    present[j] if held[j] else None,
                )
            if choice:
                floor.take(choice)
                counts[j] = choice
        return counts, floor.prices(), np.array(floor.room, np.int64)

    def _assign(self, seen: Snapshot, utility: str, guard: Guard) -> Plan:
        """Single-GPU nodes: the welfare-maximising assignment of jobs to nodes."""
        from scipy.optimize import linear_sum_assignment

        nodes, held = seen.nodes, seen.held
        value = worth(utility, seen, seen.rate)[:, nodes.type] * (seen.free > 0)
        here = np.zeros(value.shape, bool)
        here[held.job, held.node] = True
        moves = here.any(axis=1, keepdims=True) & ~here
        value = np.where(moves, value * (1 - seen.restart / seen.slot), value)
        if not self.migrate:
            value = np.where(moves, 0.0, value)
            value = np.where(here, value.sum() + 1.0, value)
        job, node = linear_sum_assignment(-value)
        good = value[job, node] > 0
        job, node = job[good], node[good]
        rows = Rows.of(job, node, np.ones(len(job))) if len(job) else NOWHERE
        offer = worth(utility, seen, seen.rate)
        price = np.array(
            [offer[job[nodes.type[node] == r], r].min(initial=np.inf) for r in range(len(nodes.types))]
        )
        price = np.where(np.isfinite(price), price, 0.0)
        return verdict(seen, rows, price=price, value=offer, memo=guard)


class _Floor:
    """The GPUs while jobs are asked: room and price per type, in plain floats because it is a sequential loop."""

    def __init__(self, value: Floats, capacity: Ints, floor: float) -> None:
        high = value.max(axis=0, initial=0.0)
        low = floor * np.where(value > 0, value, np.inf).min(axis=0, initial=np.inf)
        sold = (high > 0) & (capacity > 0)
        self.room: list[int] = np.where(sold, capacity, 0).tolist()
        self.left = int(sum(self.room))
        self.price: list[float] = np.where(sold, low, 0.0).tolist()
        ratio = np.where(sold, high / np.where(sold, low, 1.0), 1.0)
        self.growth: list[float] = (ratio ** (1.0 / np.maximum(capacity, 1))).tolist()

    def cost(self, r: int, count: int) -> float:
        """What `count` GPUs of type r cost together."""
        g = self.growth[r]
        return self.price[r] * (count if g <= 1 + 1e-12 else (g**count - 1) / (g - 1))

    def choose(
        self, offer: list[float], split: list[float], w: int, ranked: list[int], have: list[int] | None
    ) -> list[int] | None:
        """The candidate with the largest positive payoff: GPUs per type, or None. ranked: fastest types first,
        empty if gangs may not mix types.
        """
        best, choice = 0.0, -1
        for r, room in enumerate(self.room):
            if w <= room and offer[r] > 0:
                payoff = w * offer[r] - self.cost(r, w)
                if payoff > best:
                    best, choice = payoff, r
        found = [w if r == choice else 0 for r in range(len(self.room))] if choice >= 0 else None
        if not ranked or (have is None and self.room[ranked[0]] >= w):
            return found  # the fastest types together would be the fastest type alone
        for counts in (self._together(split, w, ranked), have):
            if (
                counts
                and sum(c > 0 for c in counts) > 1
                and all(c <= m for c, m in zip(counts, self.room, strict=True))
            ):
                slowest = min(split[r] for r, c in enumerate(counts) if c)
                payoff = w * slowest - sum(self.cost(r, c) for r, c in enumerate(counts) if c)
                if payoff > best:
                    best, found = payoff, list(counts)
        return found

    def _together(self, split: list[float], w: int, ranked: list[int]) -> list[int] | None:
        """Fastest types first until the gang is whole; None if one type suffices or all do not."""
        counts, need = [0] * len(split), w
        for r in ranked:
            if split[r] > 0 and need:
                counts[r] = min(need, self.room[r])
                need -= counts[r]
        return counts if not need else None

    def take(self, counts: Any) -> None:
        """Sell: less room, higher prices."""
        for r, c in enumerate(counts):
            if c:
                self.room[r] -= c
                self.price[r] *= self.growth[r] ** c
        self.left = sum(self.room)

    def prices(self) -> Floats:
        """(R,) price of the next GPU."""
        return np.array(self.price)
