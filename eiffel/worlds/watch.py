"""A policy looked over the shoulder: the same decisions, a log of why jobs wait, and word of how far a run is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from eiffel.core.jobs import Floats, Ints, Nodes, Outcomes, Plan, Policy, Snapshot

Notice = Callable[[int, float], None]
"""Told after every decision how many jobs have ended, and the time (s) of the trace."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Why jobs waited: a row whenever the reason, or the device type in the way, of a job changes. W rows by time."""

    job: Ints  # (W,) row of the trace
    time: Floats  # (W,) s
    why: Ints  # (W,) Refusal; NONE: from here on it runs
    limit: Ints  # (W,) device type in the way, -1: none in particular
    price: Floats  # (W,) of a GPU of that type then, NaN: the policy has no prices
    value: Floats  # (W,) of a GPU to the job then
    free: Ints  # (W,) GPUs of that type that were free, -1: not known


class Watched:
    """Wraps a policy. Watching happens in `learn`, outside of what is timed as the decision."""

    def __init__(self, policy: Policy, jobs: int, notice: Notice | None = None) -> None:
        self._policy, self._notice = policy, notice
        self._why, self._limit = np.full(jobs, -1), np.full(jobs, -1)
        self._rows: list[tuple[Any, ...]] = []
        self._ended = 0

    @property
    def name(self) -> str:
        """The policy's."""
        return self._policy.name

    @property
    def mixes(self) -> bool:
        """The policy's."""
        return self._policy.mixes

    def init(self, nodes: Nodes) -> Any:
        """The policy's state."""
        return self._policy.init(nodes)

    def decide(self, state: Any, snapshot: Snapshot, rng: np.random.Generator) -> Plan:
        """The policy's plan."""
        return self._policy.decide(state, snapshot, rng)

    def learn(self, state: Any, plan: Plan, outcomes: Outcomes, snapshot: Snapshot) -> Any:
        """Note what changed; then the policy learns."""
        self._note(plan, snapshot)
        self._ended += int(np.count_nonzero(outcomes.ended))
        if self._notice is not None:
            self._notice(self._ended, snapshot.now)
        return self._policy.learn(state, plan, outcomes, snapshot)

    def _note(self, plan: Plan, seen: Snapshot) -> None:
        """Log the jobs whose reason is another than at the last decision."""
        limit = np.where(plan.why == 0, -1, plan.limit)
        new = np.flatnonzero((self._why[seen.job] != plan.why) | (self._limit[seen.job] != limit))
        if not len(new):
            return
        job, kinds = seen.job[new], len(seen.nodes.types)
        self._why[job], self._limit[job] = plan.why[new], limit[new]
        used = np.bincount(seen.nodes.type[plan.rows.node], plan.rows.count, kinds)
        free = np.append(seen.capacity - used, -1).astype(np.int64)
        self._rows.append(
            (job, np.full(len(new), seen.now), plan.why[new], limit[new], plan.price[new], plan.value[new],
             free[limit[new]])
        )  # fmt: skip

    def waits(self) -> Waits:
        """What was logged so far."""
        if not self._rows:
            none = np.zeros(0, np.int64)
            return Waits(none, np.zeros(0), none, none, np.zeros(0), np.zeros(0), none)
        return Waits(*(np.concatenate(column) for column in zip(*self._rows, strict=True)))
