"""What a GPU is worth to a job: the utilities that Hadar and the market can maximise.

All are per GPU and increase with the rate x at which the job would run. J jobs, R types; tt = remaining steps /
best rate is the job's ideal remaining time, w its gang, a its arrival. They are ours: the paper's abstract
names the goals (completion time, makespan, fairness), not the formulas.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from eiffel.core.jobs import Floats, Snapshot
from eiffel.core.market import level

Utility = Literal["jct", "thr", "mkq", "ftf", "guard"]
STEPS = 20  # levels of remaining time that `mkq` tells apart: finer ones only make jobs change places


def _jct(s: Snapshot, rate: Floats, best: Floats) -> Floats:
    """Completions per GPU-second: x / (remaining w)."""
    return np.asarray(rate / (s.remaining * s.gang)[:, None], float)


def _thr(s: Snapshot, rate: Floats, best: Floats) -> Floats:
    """Effective throughput, work / (finish - arrival), in units of the job's best rate."""
    finish = (s.now - s.arrival)[:, None] + s.remaining[:, None] / np.maximum(rate, 1e-300)
    return np.asarray((s.work / best)[:, None] / np.maximum(finish, 1e-300) / s.gang[:, None], float)


def _mkq(s: Snapshot, rate: Floats, best: Floats) -> Floats:
    """Makespan: longest remaining time first (in `STEPS` levels), where the job is comparatively fast."""
    left = s.remaining / best
    steps = np.ceil(STEPS * left / max(left.max(initial=0.0), 1e-300)) / STEPS
    return np.asarray(rate / best[:, None] * steps[:, None], float)


def _ftf(s: Snapshot, rate: Floats, best: Floats) -> Floats:
    """Finish-time fairness: the square of rho, the projected over the isolated completion time."""
    capacity = s.capacity.astype(float)
    share = capacity / max(len(s), 1) / s.gang[:, None]
    share = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    alone = s.work / np.maximum((s.rate * share).sum(axis=1), 1e-300)
    rho = (s.now - s.arrival + s.remaining / best) / alone
    return np.asarray(rate / best[:, None] * (rho**2)[:, None], float)


FORMULAS: dict[str, Callable[[Snapshot, Floats, Floats], Floats]] = {
    "jct": _jct, "thr": _thr, "mkq": _mkq, "ftf": _ftf,
}  # fmt: skip


def worth(utility: str, snapshot: Snapshot, rate: Floats) -> Floats:
    """(J, R) value per GPU at `rate` (J, R); 0 where the rate is 0. Raises ValueError for an unknown utility."""
    if utility not in FORMULAS:
        raise ValueError(f"utility {utility!r} is not one of {sorted([*FORMULAS, 'guard'])}")
    best = np.maximum(snapshot.rate.max(axis=1, initial=0.0), 1e-300)
    value = FORMULAS[utility](snapshot, rate, best) * snapshot.weight[:, None]
    return np.where(rate > 0, value, 0.0)


@dataclass(frozen=True, slots=True)
class Guard:
    """`jct` while the last promise can still be kept, else `mkq`.

    The promise is the fluid makespan (exact, `core.level`) at the last arrival; it is checked every half hour.
    """

    promise: float = np.inf  # s
    newest: int = -1  # the youngest job seen
    checked: float = -np.inf  # s
    late: bool = False
    price: Floats | None = None  # (R,) of the last makespan program, where the next one starts

    def look(self, snapshot: Snapshot, slack: float, every_s: float = 1800.0) -> "Guard":
        """Return the guard after a look at the snapshot."""
        newest = int(snapshot.job.max())
        fresh = newest > self.newest
        if not fresh and snapshot.now - self.checked < every_s:
            return self
        rate = np.where(snapshot.gang[:, None] <= snapshot.capacity, snapshot.rate, 0.0)
        capacity = snapshot.capacity.astype(float)
        found = level(rate, snapshot.gang, capacity, snapshot.remaining, price=self.price)
        end = snapshot.now + (found.theta if np.isfinite(found.theta) else 0.0)
        promise = end if fresh else self.promise
        late = end > (1 + slack) * promise
        return Guard(promise, newest, snapshot.now, bool(late), found.price)


def chosen(utility: str, guard: Guard) -> str:
    """The formula in force."""
    return ("mkq" if guard.late else "jct") if utility == "guard" else utility
