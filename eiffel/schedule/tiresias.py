"""Tiresias (Gu et al., NSDI 2019): least attained service in GPU-seconds, discretised, or by Gittins index.

After the public simulator of its authors: service = run time x GPUs; queues by thresholds of service; first come
first served within a queue, running jobs first; jobs that do not fit are passed over. Needs no run times.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from eiffel.core.jobs import Bools, Floats, Ints, Nodes, Outcomes, Plan, Snapshot
from eiffel.schedule.order import in_order, open_rates


@dataclass(frozen=True, slots=True)
class Attained:
    """What Tiresias remembers: service forgiven by promotion, and the service of jobs that ended."""

    job: Ints  # (K,) job numbers, ascending
    forgiven: Floats  # (K,) GPU-s that no longer count
    ended: Floats  # (E,) GPU-s in all of the jobs that ended, ascending


@dataclass(frozen=True, slots=True)
class Tiresias:
    """Discretised 2D-LAS, or `gittins`.

    limits: queue thresholds, GPU-s (the public code's first: 3250). promote: a job that has waited `promote`
    times as long as it has run goes back to the first queue; 0: never. delta: service quantum of the Gittins
    index, GPU-s; history: GPU-s of earlier jobs, to which those that end here are added.
    """

    name: str = "tiresias"
    rank: Literal["las", "gittins"] = "las"
    limits: tuple[float, ...] = (3250.0,)
    promote: float = 0.0
    delta: float = 3250.0
    history: tuple[float, ...] = ()
    mixes: bool = False

    def init(self, nodes: Nodes) -> Attained:
        """Nothing forgiven; the history as given."""
        return Attained(np.zeros(0, np.int64), np.zeros(0), np.sort(np.asarray(self.history, float)))

    def decide(self, state: Attained, snapshot: Snapshot, rng: np.random.Generator) -> Plan:
        """Order by queue, running first, then arrival."""
        runs = np.zeros(len(snapshot), bool)
        runs[snapshot.held.job] = True
        service = np.maximum(snapshot.attained - _forgiven(state, snapshot), 0.0)
        if self.promote:
            hungry = ~runs & (snapshot.ran > 0)
            hungry &= snapshot.now - snapshot.last >= self.promote * snapshot.ran
            service = np.where(hungry, 0.0, service)
        if self.rank == "las":
            queue = np.searchsorted(np.asarray(self.limits) * (1 - 1e-9), service, side="right")
        else:
            index = gittins(service, state.ended, self.delta)
            queue = np.unique(-np.round(index, 12), return_inverse=True)[1]
        order = np.lexsort((snapshot.job, snapshot.arrival, ~runs, queue))
        until = self._wake(snapshot, service, runs)
        plan = in_order(snapshot, order, open_rates(snapshot), until)
        return Plan(
            plan.rows, plan.why, plan.limit, plan.price, plan.value, plan.until, snapshot.attained - service
        )

    def learn(self, state: Attained, plan: Plan, outcomes: Outcomes, snapshot: Snapshot) -> Attained:
        """Keep what was forgiven; remember the service of the jobs that ended."""
        ended = state.ended
        if outcomes.ended.any() and self.rank == "gittins":
            total = snapshot.attained + outcomes.ran * snapshot.gang
            ended = np.sort(np.concatenate([ended, total[outcomes.ended]]))
        if not self.promote:
            return Attained(state.job, state.forgiven, ended)
        forgiven: Floats = plan.memo
        return Attained(snapshot.job, forgiven, ended)

    def _wake(self, snapshot: Snapshot, service: Floats, runs: Bools) -> float:
        """When the first running job crosses into the next queue; each slot if ranks move all the time."""
        if self.rank == "gittins" or self.promote:
            return 0.0
        limits = np.append(np.asarray(self.limits, float), np.inf)
        crossing = limits[
            np.searchsorted(limits * (1 - 1e-9), service, side="right").clip(0, len(limits) - 1)
        ]
        return float(snapshot.now + ((crossing - service) / snapshot.gang).min(initial=np.inf))


def _forgiven(state: Attained, snapshot: Snapshot) -> Floats:
    """(J,) service forgiven so far, carried over to the jobs that are here now."""
    out = np.zeros(len(snapshot))
    if len(state.job):
        at = np.minimum(np.searchsorted(state.job, snapshot.job), len(state.job) - 1)
        known = state.job[at] == snapshot.job
        out[known] = state.forgiven[at[known]]
    return out


def gittins(service: Floats, ended: Floats, delta: float) -> Floats:
    """Gittins index (J,) at `service` GPU-s: P(ends within delta more) / E(service spent on it, at most delta).

    `ended` (E,) is the ascending sample of total services. Beyond the sample the index is 0.
    """
    if not len(ended):
        return -service
    total = np.concatenate([[0.0], np.cumsum(ended)])
    low, high = (
        np.searchsorted(ended, service, side="right"),
        np.searchsorted(ended, service + delta, side="right"),
    )
    survive, done = len(ended) - low, high - low
    spent = total[high] - total[low] - done * service + (survive - done) * delta
    return np.where(survive > 0, done / np.maximum(spent, 1e-100), 0.0)
