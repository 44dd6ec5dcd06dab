"""Gavel (Narayanan et al., OSDI 2020): time shares by an objective, then slots by deficit.

The objectives are those of the paper's public code; solving is ours (`core.level`). A share x_jr is the part of
time that job j should spend on type r. In every slot job j goes before others on type r by the priority
x_jr / (its part of the time given on r since the last solve), ties to the larger deficit, then the larger share.
Shares are recomputed when jobs came or went, at most every `every_s`. Each objective has a blind variant
(`aware=False`) that takes every device type for as fast as the first.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from eiffel.core.jobs import Bools, Floats, Ints, Nodes, Outcomes, Plan, Refusal, Snapshot
from eiffel.core.market import fill, level
from eiffel.core.placement import place
from eiffel.core.refusals import verdict
from eiffel.schedule.order import as_counts

Objective = Literal["max_min", "makespan", "finish_time", "isolated"]


@dataclass(frozen=True, slots=True)
class Ledger:
    """What Gavel remembers, per job known at the last decision (K rows, ascending job numbers)."""

    job: Ints  # (K,)
    share: Floats  # (K, R), NaN for a job that no solve has seen
    got: Floats  # (K, R) s on each type since the last solve, plus half a slot of credit
    deficit: Floats  # (K, R) s owed from earlier solves
    fair: Floats  # (K,) s that the work done so far would have taken in isolation
    left: Floats  # (K,) steps remaining at the last solve
    solved: float  # s, when; -inf: never
    stale: bool  # jobs came or went since


@dataclass(frozen=True, slots=True)
class Gavel:
    """Heterogeneity-aware fair sharing. objective `max_min`, `makespan`, `finish_time` or `isolated`."""

    name: str = "gavel"
    objective: Objective = "max_min"
    aware: bool = True
    every_s: float = 1920.0
    mixes: bool = False

    def init(self, nodes: Nodes) -> Ledger:
        """Know nobody."""
        none = np.zeros((0, len(nodes.types)))
        return Ledger(np.zeros(0, np.int64), none, none, none, np.zeros(0), np.zeros(0), -np.inf, True)

    def decide(self, state: Ledger, snapshot: Snapshot, rng: np.random.Generator) -> Plan:
        """Solve if it is time, then fill the types one after another by priority."""
        book = _align(state, snapshot)
        if book.stale and snapshot.now - book.solved >= self.every_s:
            book = self._solve(book, snapshot)
        kinds = len(snapshot.nodes.types)
        ordered = self.aware and self.objective != "isolated"  # shares that ignore speed prefer no type
        order = np.arange(kinds) if ordered else rng.permutation(kinds)
        take = _slots(book, snapshot, order)
        counts = as_counts(take, snapshot.gang, kinds)
        rows = place(counts, snapshot.held, snapshot.nodes, snapshot.free)
        code = np.where(np.isnan(book.share[:, 0]), Refusal.UNSOLVED, Refusal.SHARE)
        return verdict(snapshot, rows, code=code, memo=book)

    def learn(self, state: Ledger, plan: Plan, outcomes: Outcomes, snapshot: Snapshot) -> Ledger:
        """Book the time that each job got on each type."""
        book: Ledger = plan.memo
        got = book.got.copy()
        kind = snapshot.nodes.type[plan.rows.node]
        job, first = np.unique(plan.rows.job, return_index=True)
        got[job, kind[first]] += outcomes.busy[job]
        return replace(book, got=got)

    def _solve(self, book: Ledger, snapshot: Snapshot) -> Ledger:
        elapsed = snapshot.now - book.solved if np.isfinite(book.solved) else 0.0
        owed = np.where(np.isnan(book.share), 0.0, book.share) * elapsed - (book.got - snapshot.slot / 2)
        capacity = snapshot.capacity.astype(float)
        rate = np.where(snapshot.gang[:, None] <= capacity, snapshot.rate, 0.0)
        if not self.aware:
            reference = np.where(rate[:, 0] > 0, rate[:, 0], rate.max(axis=1, initial=0.0))
            rate = np.where(rate > 0, reference[:, None], 0.0)
        alone = isolated(snapshot.gang, capacity)
        pace = np.maximum((rate * alone).sum(axis=1), 1e-300)
        fair = book.fair + (book.left - snapshot.remaining) / pace
        share = alone if self.objective == "isolated" else self._level(snapshot, rate, capacity, fair, pace)
        return Ledger(
            book.job, share, np.full(share.shape, snapshot.slot / 2), book.deficit + owed, fair,
            snapshot.remaining, snapshot.now, False,
        )  # fmt: skip

    def _level(self, seen: Snapshot, rate: Floats, capacity: Floats, fair: Floats, pace: Floats) -> Floats:
        gang, runs = seen.gang, rate.max(axis=1, initial=0.0) > 0
        if (
            not self.aware and (rate > 0).all() and len(capacity) > 1
        ):  # types are alike: one, shared out evenly
            pooled = self._level(seen, rate[:, :1], capacity.sum(keepdims=True), fair, pace)
            return np.asarray(pooled * (capacity / capacity.sum()), float)
        if self.objective == "makespan":
            return level(rate, gang, capacity, seen.remaining / seen.weight).share
        if self.objective == "finish_time":
            due = np.where(runs, fair + seen.remaining / pace, 1.0)
            return level(rate, gang, capacity, seen.remaining, due, seen.now - seen.arrival).share
        even = rate @ capacity / max(capacity.sum(), 1.0)
        fair_rate = seen.weight * np.where(self.aware, even, rate.max(axis=1)) / gang
        return level(rate, gang, capacity, fair_rate).share


def isolated(gang: Ints, capacity: Floats) -> Floats:
    """(J, R) time shares if everybody owned an equal part of the cluster: C_r / m / w_j, at most 1 in all."""
    share = capacity[None, :] / max(len(gang), 1) / gang[:, None]
    return np.asarray(share / np.maximum(share.sum(axis=1, keepdims=True), 1.0), float)


def _align(state: Ledger, seen: Snapshot) -> Ledger:
    """Carry the rows over to the jobs that are here now."""
    kinds = len(seen.nodes.types)
    at = np.searchsorted(state.job, seen.job)
    at = np.minimum(at, max(len(state.job) - 1, 0))
    known: Bools = state.job[at] == seen.job if len(state.job) else np.zeros(len(seen), bool)
    if known.all() and len(known) == len(state.job):
        return state

    def carry(old: Any, new: Any) -> Any:
        shape = (len(seen), kinds) if old.ndim == 2 else (len(seen),)
        out = np.broadcast_to(np.asarray(new, float).reshape((-1,) + (1,) * (old.ndim - 1)), shape).copy()
        out[known] = old[at[known]]
        return out

    return Ledger(
        seen.job, carry(state.share, np.nan), carry(state.got, seen.slot / 2), carry(state.deficit, 0.0),
        carry(state.fair, 0.0), carry(state.left, seen.remaining), state.solved, True,
    )  # fmt: skip


def _slots(book: Ledger, seen: Snapshot, order: Ints) -> Ints:
    """(J,) the type that every job gets in this slot, -1: none. What does not fit is passed over."""
    take = np.full(len(seen), -1, np.int64)
    share = np.where(np.isnan(book.share), 0.0, book.share)
    part = book.got / book.got.sum(axis=0)
    room = seen.capacity
    for r in order:
        can = (take < 0) & ~np.isnan(book.share[:, 0]) & (seen.rate[:, r] > 0)
        priority = share[:, r] / part[:, r]
        queue = np.lexsort((seen.job, -share[:, r], -book.deficit[:, r], -priority))
        score = np.where(can, 0.0, -np.inf)[:, None]
        got, _ = fill(score, seen.gang, room[r : r + 1], queue)
        take[got == 0] = r
    return take
