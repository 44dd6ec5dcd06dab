"""The ledger: what a run has cost and given so far, and one record a round.

Useful and wasted energy are kept apart: a joule is useful when the update it went into counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.core import measures
from eiffel.core.model import Outcomes, Plan, Reason, Scores, Snapshot, Status

Record = dict[str, Any]
Rows = dict[str, NDArray[Any]]

NO_STATUS = 255
"""Code in the rows of devices that were not chosen."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Running sums of a run: bytes, joules, virtual seconds, local steps."""

    bytes_down: int = 0
    bytes_up: int = 0
    joules_useful: float = 0.0
    joules_wasted: float = 0.0
    seconds: float = 0.0
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Ledger:
    """Totals and, per device, how often its update counted and whether it ever ran flat.

    participation: (N,) deliveries. flat: (N,) ever ran flat. squares: sum of participation squared, kept
    so that a round costs O(K).
    """

    participation: NDArray[np.int32]
    flat: NDArray[np.bool_]
    totals: Totals = field(default_factory=Totals)
    delivered: int = 0
    squares: int = 0
    distinct: int = 0

    @staticmethod
    def open(devices: int) -> Ledger:
        """An empty ledger for a fleet of this size."""
        return Ledger(np.zeros(devices, np.int32), np.zeros(devices, np.bool_))

    def add(self, snapshot: Snapshot, plan: Plan, outcomes: Outcomes) -> Ledger:
        """The ledger after one more round."""
        who = outcomes.device[outcomes.delivered]
        participation = self.participation.copy()
        before = participation[who].astype(np.int64)
        participation[who] += 1
        return replace(
            self.spend(plan, outcomes),
            participation=participation,
            delivered=self.delivered + who.size,
            squares=self.squares + int((2 * before + 1).sum()),
            distinct=self.distinct + int((before == 0).sum()),
        )

    def spend(self, plan: Plan, outcomes: Outcomes) -> Ledger:
        """The ledger after what a plan cost: a round's or a probe's."""
        flat = self.flat
        if (outcomes.status == Status.FLAT).any():
            flat = flat.copy()
            flat[outcomes.device[outcomes.status == Status.FLAT]] = True
        ok, t = outcomes.delivered, self.totals
        totals = Totals(
            t.bytes_down + int(outcomes.bytes_down.sum()),
            t.bytes_up + int(outcomes.bytes_up.sum()),
            t.joules_useful + float(outcomes.joules[ok].sum()),
            t.joules_wasted + float(outcomes.joules[~ok].sum()),
            t.seconds + (outcomes.end_s - outcomes.start_s),
            t.steps + int(outcomes.steps.sum()),
        )
        return replace(self, flat=flat, totals=totals)

    @property
    def participation_jain(self) -> float | None:
        """Jain's index of how often each device took part: 1 = all alike, 1/N = always the same one."""
        n = self.participation.size
        return self.delivered**2 / (n * self.squares) if self.squares else None


def record(
    ledger: Ledger,
    snapshot: Snapshot,
    plan: Plan,
    outcomes: Outcomes,
    probe: tuple[Plan, Outcomes] | None = None,
) -> Record:
    """One round as flat, JSON-ready figures; `ledger` already includes it. Unknown figures are None.

    The round's bytes, joules and seconds include those of the probe that came before it.
    """
    ok, t, reports = outcomes.delivered, ledger.totals, outcomes.trained.reports
    # The round's own spending is a ledger of nothing else.
    spent = replace(ledger, totals=Totals()).spend(plan, outcomes)
    start_s = outcomes.start_s
    if probe is not None:
        spent, start_s = spent.spend(*probe), probe[1].start_s
    now = spent.totals
    row: Record = {
        "round": plan.round,
        "status": _status(plan, ok),
        "start_s": start_s,
        "end_s": outcomes.end_s,
        "seconds": now.seconds,
        "candidates": int(np.count_nonzero(snapshot.reason == Reason.CHOSEN)),
        "chosen": int(plan.chosen.size),
        "delivered": int(ok.sum()),
        "probed": 0 if probe is None else int(probe[0].chosen.size),
        "refused": _count(plan.reason, Reason),
        "lost": _count(outcomes.status, Status),
        "steps": now.steps,
        "steps_mean": _mean(plan.steps),
        "examples": int(reports.examples.sum()),
        "loss_in": _mean(reports.loss),
        "first_loss": _mean(reports.first_loss),
        "bytes_down": now.bytes_down,
        "bytes_up": now.bytes_up,
        "bytes": now.bytes_down + now.bytes_up,
        "joules_useful": now.joules_useful,
        "joules_wasted": now.joules_wasted,
        "joules": now.joules_useful + now.joules_wasted,
        "total_bytes": t.bytes_down + t.bytes_up,
        "total_joules": t.joules_useful + t.joules_wasted,
        "total_joules_wasted": t.joules_wasted,
        "total_s": t.seconds,
        "total_steps": t.steps,
        **_battery(snapshot),
        "flat": int(np.count_nonzero(ledger.flat)),
        "participation_jain": ledger.participation_jain,
        "participants": ledger.distinct,
        "notes": {key: float(value) for key, value in plan.notes.items()},
        "scores": None,
    }
    return row


def _status(plan: Plan, delivered: NDArray[np.bool_]) -> str:
    if plan.chosen.size == 0:
        return "idle"
    if not delivered.any():
        return "no_valid_updates"
    return "under_filled" if delivered.sum() < plan.wait_for else "ok"


def _count(codes: NDArray[np.uint8], kind: type[Reason] | type[Status]) -> dict[str, int]:
    """How often each code but the good one (0) occurs, by name."""
    counts = {code.name.lower(): int(np.count_nonzero(codes == code)) for code in kind if code != 0}
    return {name: count for name, count in counts.items() if count}


def _mean(values: NDArray[Any]) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None


def _battery(snapshot: Snapshot) -> dict[str, float | None]:
    """Lowest and mean charge (fractions) of the devices that have a battery."""
    finite = np.isfinite(snapshot.capacity_j)
    if not finite.any():
        return {"battery_min": None, "battery_mean": None}
    charge = snapshot.battery_j[finite] / snapshot.capacity_j[finite]
    return {"battery_min": float(charge.min()), "battery_mean": float(charge.mean())}


def scored(row: Record, served: str, scores: Mapping[str, Scores]) -> Record:
    """The record with the measures of each model of the server (`last`, `ema`) over the clients."""
    return {
        **row,
        "scores": {
            "served": served,
            **{name: measures.fairness(s) for name, s in scores.items()},
        },
    }


def rows(
    snapshot: Snapshot, plan: Plan, outcomes: Outcomes, score: Scores | None, limit: int = 20_000
) -> Rows:
    """One row per device (of the cohort only, where the fleet exceeds `limit`): clients.parquet.

    Columns that a device has no value for hold NaN (floats) or `NO_STATUS`.
    """
    devices = np.arange(snapshot.size) if snapshot.size <= limit else plan.chosen
    at = np.searchsorted(devices, outcomes.device)
    n = devices.size

    def spread(values: NDArray[Any], empty: float, kind: Any) -> NDArray[Any]:
        column = np.full(n, empty, kind)
        column[at] = values
        return column

    loss = np.full(n, np.nan, np.float32)
    reports = outcomes.trained.reports
    loss[np.searchsorted(devices, reports.device)] = reports.loss
    per_client = score is not None and score.accuracy.size == snapshot.size
    return {
        "round": np.full(n, plan.round, np.int32),
        "device": devices.astype(np.int32),
        "reason": plan.reason[devices],
        "status": spread(outcomes.status, NO_STATUS, np.uint8),
        "steps": spread(outcomes.steps, 0, np.int32),
        "seconds": spread(outcomes.seconds, 0.0, np.float32),
        "joules": spread(outcomes.joules, 0.0, np.float32),
        "bytes_down": spread(outcomes.bytes_down, 0, np.int64),
        "bytes_up": spread(outcomes.bytes_up, 0, np.int64),
        "loss": loss,
        "battery": _charge(snapshot)[devices],
        "score": np.full(n, np.nan, np.float32) if plan.score is None else plan.score[devices],
        "accuracy": score.accuracy[devices].astype(np.float32)
        if per_client and score is not None
        else np.full(n, np.nan, np.float32),
    }


def _charge(snapshot: Snapshot) -> NDArray[np.float32]:
    """(N,) share of its capacity that a battery holds; NaN on mains power."""
    powered = np.isfinite(snapshot.capacity_j)
    none = np.full(snapshot.size, np.nan, np.float32)
    return np.divide(snapshot.battery_j, snapshot.capacity_j, out=none, where=powered)
