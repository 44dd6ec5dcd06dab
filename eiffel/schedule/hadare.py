"""HadarE (Sultana et al., 2025; arXiv 2503.10918), our reconstruction: idle nodes run copies of jobs.

The abstract fixes: jobs are forked so that no node idles, and the copies' models are consolidated. A forked job is
a small federation: copies are clients, their local steps follow their speed, merging is the federated average
(the same code, `eiffel.aggregate`). Ours: which job gets a node, and the test that a copy must pay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.aggregate import Aggregate, Mean
from eiffel.core.jobs import Floats, Ints, Nodes, Outcomes, Plan, Policy, Refusal, Rows, Snapshot
from eiffel.core.model import Outcomes as Federated
from eiffel.core.model import Reports, Trained
from eiffel.core.placement import gangs
from eiffel.schedule.hadar import Hadar
from eiffel.select.candidates import Tempo

Params = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class HadarE:
    """Wraps any policy: what that leaves idle goes to copies, at most one copy of a job per node.

    An idle node takes the job with the largest remaining time at its present rate, if a copy there would still
    speed it up: efficiency x the sum of the copies' rates x (1 - consolidate_s / slot) must beat the present
    rate. A copy is a whole gang on one node. efficiency: what the steps of a job in several copies are
    believed to be worth; consolidate_s: what merging costs per slot.
    """

    name: str = "hadare"
    inner: Policy = field(default_factory=Hadar)
    efficiency: float = 0.9
    consolidate_s: float = 10.0

    @property
    def mixes(self) -> bool:
        """As the wrapped policy."""
        return self.inner.mixes

    def init(self, nodes: Nodes) -> Any:
        """The wrapped policy's state."""
        return self.inner.init(nodes)

    def decide(self, state: Any, snapshot: Snapshot, rng: np.random.Generator) -> Plan:
        """The wrapped policy's plan, then forks."""
        plan = self.inner.decide(state, _unforked(snapshot), rng)
        rows = self._fork(plan.rows, snapshot)
        if len(rows) == len(plan.rows):
            return plan
        why = np.where(rows.held(len(snapshot)) > 0, Refusal.NONE, plan.why)
        return Plan(rows, why, plan.limit, plan.price, plan.value, 0.0, plan.memo)

    def learn(self, state: Any, plan: Plan, outcomes: Outcomes, snapshot: Snapshot) -> Any:
        """The wrapped policy learns from what its own gangs did."""
        own = Plan(
            plan.rows.where(plan.rows.copy == 0),
            plan.why,
            plan.limit,
            plan.price,
            plan.value,
            plan.until,
            plan.memo,
        )
        return self.inner.learn(state, own, outcomes, _unforked(snapshot))

    def _fork(self, rows: Rows, seen: Snapshot) -> Rows:
        """Add copies on idle nodes, longest job first, until no node is idle or no copy would help."""
        free = seen.free - rows.used(len(seen.nodes))
        fits = (free[None, :] >= seen.gang[:, None]) & (seen.rate[:, seen.nodes.type] > 0)
        if not fits.any():
            return rows
        fits[rows.job, rows.node] = False
        crew = gangs(rows, seen.rate, seen.spread, seen.nodes)
        total = np.bincount(crew.job, crew.speed, len(seen))
        copies = np.bincount(crew.job, minlength=len(seen))
        here = np.zeros(fits.shape, bool)
        here[seen.held.job, seen.held.node] = True
        added: list[tuple[int, int, int]] = []
        while fits.any():
            pace = np.where(copies > 1, self._worth(seen) * total, total)
            left = np.where(fits.any(axis=1), seen.remaining / np.maximum(pace, 1e-300), -np.inf)
            j = int(left.argmax())
            speed = np.where(fits[j], seen.rate[j, seen.nodes.type], -np.inf) * np.where(
                here[j], 1 + 1e-9, 1.0
            )
            node = int(speed.argmax())
            gain = float(seen.rate[j, seen.nodes.type[node]])
            if copies[j] and self._worth(seen) * (total[j] + gain) <= pace[j]:
                fits[j] = False  # its best idle node does not help, so none does
                continue
            added.append((j, node, int(copies[j])))
            total[j] += gain
            copies[j] += 1
            free[node] -= seen.gang[j]
            fits[j, node] = False
            fits[:, node] &= free[node] >= seen.gang
        return _join(rows, added, seen.gang)

    def _worth(self, seen: Snapshot) -> float:
        return self.efficiency * max(0.0, 1 - self.consolidate_s / seen.slot)


def _join(rows: Rows, added: list[tuple[int, int, int]], gang: Ints) -> Rows:
    if not added:
        return rows
    job, node, copy = (np.array(c, np.int64) for c in zip(*added, strict=True))
    columns = ((rows.job, job), (rows.node, node), (rows.count, gang[job]), (rows.copy, copy))
    return Rows.of(*(np.concatenate(pair) for pair in columns))


def _unforked(snapshot: Snapshot) -> Snapshot:
    """The snapshot as the wrapped policy sees it: one gang per job."""
    if not (snapshot.held.copy > 0).any():
        return snapshot
    return replace(snapshot, held=snapshot.held.where(snapshot.held.copy == 0))


def split(steps: int, rates: Floats) -> Ints:
    """Divide whole steps over copies in proportion to their rates; the parts sum to `steps` exactly.

    Largest remainders get the odd steps. Raises ValueError unless rates are >= 0 and one is > 0.
    """
    rates = np.asarray(rates, float)
    if steps < 0 or not np.all(np.isfinite(rates)) or rates.min(initial=0.0) < 0 or rates.sum() <= 0:
        raise ValueError(f"cannot split {steps} steps over rates {rates}: need steps >= 0 and a rate > 0")
    exact = steps * rates / rates.sum()
    part: Ints = np.floor(exact).astype(np.int64)
    odd = steps - int(part.sum())
    part[np.argsort(-(exact - part), kind="stable")[:odd]] += 1
    return part


def merge(start: Params, models: Sequence[Params], steps: Ints) -> Params:
    """Consolidate copies that began at `start` (P,): the average of `models`, weighted by their steps.

    This is FedAvg with steps for samples, by the same code, hence equal to it bit for bit.
    """
    moved = np.stack([start - model for model in models])
    nan, zero, none = np.full(len(steps), np.nan), np.zeros(len(steps)), np.zeros(len(steps), np.int64)
    reports = Reports(np.arange(len(steps)), steps, steps, nan, nan)
    rule = Aggregate(weights=Mean(by="samples"))
    weights = rule.weights.weigh(None, reports, Tempo())[None, :]
    sums = weights.astype(np.float32) @ moved
    trained = Trained(reports, (moved.astype(float) ** 2).sum(axis=1), weights, sums)
    status = np.zeros(len(steps), np.uint8)
    outcomes = Federated(0, 0.0, 0.0, reports.device, status, steps, zero, zero, none, none, trained)
    return rule.learn(rule.init(start, len(steps)), outcomes).params
