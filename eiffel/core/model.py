"""What the scheduler of a federation sees and says, as arrays over devices: shapes and units stated.

    snapshot = world.observe(round)             Snapshot   (N devices)
    plan     = policy.decide(state, snapshot)   Plan       (K of them chosen, a reason for every other)
    outcomes = world.run(plan)                  Outcomes   (K rows: what it cost, what came back)

N is the number of devices of the fleet, K of the cohort, P of model parameters (float32, flat).
The cluster's counterpart (jobs, nodes, gangs) is in `eiffel.core.jobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.uint8]
Params = NDArray[np.float32]


class Reason(IntEnum):
    """Why a device trains, or does not train, in a round. A plan gives one for every device."""

    CHOSEN = 0
    NOT_DRAWN = 1
    OFFLINE = 2
    BUSY = 3
    NO_DATA = 4
    BATTERY = 5
    DEADLINE = 6
    BUDGET = 7
    EXCLUDED = 8

    @property
    def text(self) -> str:
        """The reason in words."""
        return _REASON_TEXT[self]


_REASON_TEXT = {
    Reason.CHOSEN: "chosen",
    Reason.NOT_DRAWN: "a candidate, but others were drawn",
    Reason.OFFLINE: "offline: not reachable when the round began",
    Reason.BUSY: "busy: still working for an earlier round",
    Reason.NO_DATA: "has no training data",
    Reason.BATTERY: "battery: the task would take it below its reserve",
    Reason.DEADLINE: "deadline: it could not answer in time",
    Reason.BUDGET: "budget: too dear for what is left of a budget",
    Reason.EXCLUDED: "excluded by the strategy",
}


class Status(IntEnum):
    """What became of a chosen device's task. Only `DELIVERED` counts into the model."""

    DELIVERED = 0
    SURPLUS = 1
    LATE = 2
    LEFT = 3
    FLAT = 4
    SILENT = 5
    FAILED = 6
    NON_FINITE = 7
    BAD_SHAPE = 8
    BAD_WEIGHT = 9
    DUPLICATE = 10
    STALE = 11
    FOREIGN = 12

    @property
    def text(self) -> str:
        """The status in words."""
        return _STATUS_TEXT[self]


_STATUS_TEXT = {
    Status.DELIVERED: "delivered in time and counted",
    Status.SURPLUS: "answered after the first ones sufficed",
    Status.LATE: "answered after the deadline",
    Status.LEFT: "left (went offline) in the middle",
    Status.FLAT: "ran out of battery",
    Status.SILENT: "never answered",
    Status.FAILED: "answered with an error",
    Status.NON_FINITE: "update holds NaN or infinite values",
    Status.BAD_SHAPE: "update has the wrong shape or type",
    Status.BAD_WEIGHT: "number of examples is not a positive finite number",
    Status.DUPLICATE: "answered twice",
    Status.STALE: "answers an earlier round",
    Status.FOREIGN: "answers something it was not asked",
}


@dataclass(frozen=True, slots=True)
class Local:
    """What a chosen device minimises and how: plain SGD, with an optional proximal term.

    lr: learning rate. batch: samples a step. mu: weight of mu/2 |w - w_global|^2 (FedProx; 0 = plain SGD).
    probe: on how many own training samples a device measures the loss of the incoming model before it
    trains (0 = not at all, -1 = on all of them); the forward pass is charged in time and energy.
    objective: name of the loss transformation in `eiffel.train.objectives`. options: its numbers.
    """

    lr: float = 0.1
    batch: int = 10
    mu: float = 0.0
    probe: int = 0
    objective: str = "plain"
    options: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what no device could do."""
        for name, ok, need in (
            ("lr", self.lr > 0, "a positive number"),
            ("batch", self.batch >= 1, "at least 1"),
            ("mu", self.mu >= 0, "0 or more"),
            ("probe", self.probe >= -1, "-1 (all samples), 0 (none) or a number of samples"),
        ):
            if not ok:
                raise ValueError(f"local.{name} is {getattr(self, name)!r}; it must be {need}")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The fleet as the scheduler sees it when round `round` may begin, at virtual second `now`.

    reason: (N,) Reason codes; 0 marks a candidate, anything else says why the world rules the device out.
    examples: (N,) training samples. step_s, step_j: (N,) seconds and joules of one local step.
    exchange_s, exchange_j: (N,) seconds and joules to download and upload one model.
    battery_j, capacity_j: (N,) joules left and when full (inf on mains power).
    bytes_down, bytes_up: bytes of one download and one upload.
    """

    round: int
    now: float
    reason: Codes
    examples: NDArray[np.int32]
    step_s: NDArray[np.float32]
    step_j: NDArray[np.float32]
    exchange_s: NDArray[np.float32]
    exchange_j: NDArray[np.float32]
    battery_j: NDArray[np.float32]
    capacity_j: NDArray[np.float32]
    bytes_down: int
    bytes_up: int

    @property
    def size(self) -> int:
        """N, the number of devices."""
        return int(self.reason.size)


@dataclass(frozen=True, slots=True)
class Reports:
    """What the devices whose update is at hand say beside it; rows ascend by device.

    device: (K,) index into the fleet. examples: (K,) samples behind the update. steps: (K,) local steps done.
    loss: (K,) loss of the incoming model on own training samples (NaN where not measured).
    first_loss: (K,) loss of the incoming model on the first minibatch (NaN where not reported).
    rms: (K,) root of the mean squared sample loss behind `loss`; None where nobody measured it.
    """

    device: Ints
    examples: Ints
    steps: Ints
    loss: Floats
    first_loss: Floats
    rms: Floats | None = None

    @property
    def incoming(self) -> Floats:
        """(K,) loss of the incoming model: the probe's, else the first minibatch's, else NaN."""
        return np.where(np.isfinite(self.loss), self.loss, self.first_loss)


Weigh = Callable[[Reports], Floats]
"""Rows of weights, (m, K): the world returns, for each row, the weighted sum of the updates. Row 0 is the
one the model moves by. Rows are not normalised: `Outcomes.weights` says what was in fact added."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Who trains in this round, for how long, and why the others do not.

    chosen: (K,) device indices, ascending. steps: (K,) local steps of each. reason: (N,) Reason codes.
    score: (N,) the selection score (-inf: not a candidate), or None; for explanations only.
    params: (P,) the model they download. weigh: weights of the sums to be returned, from the reports.
    full: the server needs every update, not only sums. deadline_s: seconds after which nobody is waited for.
    wait_for: how many deliveries end the round. notes: figures of the policy that belong in the record.
    downlink, uplink: what each device receives and sends, in models (a method that also ships gradients or
    control variates moves 2). A plan whose steps are all 0 is a probe: devices measure the loss of the model
    on `local.probe` samples and send scalars.
    gradients: devices also report the gradient of the incoming model (`Slopes`), one more step of work.
    shift: (K, P) added to every gradient a device steps by (SCAFFOLD's c - c_k), or None.
    """

    round: int
    chosen: Ints
    steps: Ints
    reason: Codes
    params: Params
    local: Local
    weigh: Weigh
    score: NDArray[np.float32] | None = None
    full: bool = False
    deadline_s: float = float("inf")
    wait_for: int = 0
    notes: Mapping[str, float] = field(default_factory=dict)
    downlink: float = 1.0
    uplink: float = 1.0
    gradients: bool = False
    shift: NDArray[np.float32] | None = None

    @property
    def probing(self) -> bool:
        """Whether this plan only asks for losses."""
        return bool(self.chosen.size) and not self.steps.any()


@dataclass(frozen=True, slots=True)
class Slopes:
    """The loss surface between the incoming model w and a device's own w_k, on its first minibatch.

    gradient: (R, P) of w, zero for entries that are not learnt.
    beta: (R,) |gradient(w_k) - gradient(w)| / |w_k - w|. rho: (R,) |loss(w_k) - loss(w)| / |w_k - w|.
    """

    gradient: NDArray[np.float32]
    beta: Floats
    rho: Floats


@dataclass(frozen=True, slots=True)
class Trained:
    """What training a cohort yields. Updates are u = w_global - w_local, flat float32.

    reports: R rows. sumsq: (R,) |u|^2 (not finite: the update was left out of every sum).
    weights: (m, R) as `weigh` gave them, 0 where left out. sums: (m, P) sum over devices of weight x update.
    full: (R, P) every update, where the plan asked for it. slopes: likewise.
    """

    reports: Reports
    sumsq: Floats
    weights: Floats
    sums: NDArray[np.float32]
    full: NDArray[np.float32] | None = None
    slopes: Slopes | None = None


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What the plan cost and what came back; K rows as in `Plan.chosen`.

    start_s, end_s: virtual seconds. status: (K,) Status codes. steps: (K,) local steps done.
    seconds, joules: (K,) spent, whether or not the update counted. bytes_down, bytes_up: (K,) moved.
    loss, first_loss, sumsq: (K,), NaN where nothing came back. trained: the rows that count.
    """

    round: int
    start_s: float
    end_s: float
    device: Ints
    status: Codes
    steps: Ints
    seconds: Floats
    joules: Floats
    bytes_down: Ints
    bytes_up: Ints
    trained: Trained

    @property
    def delivered(self) -> Bools:
        """(K,) whose update counted."""
        return np.asarray(self.status == Status.DELIVERED)


@dataclass(frozen=True, slots=True)
class Scores:
    """A model measured on every client's own test part: (N,) accuracy (or AUROC) in [0, 1], loss, samples."""

    accuracy: Floats
    loss: Floats
    examples: Ints


class Trainer(Protocol):
    """Trains cohorts. Results depend on (seed, round, device) alone, not on order or number of workers."""

    @property
    def size(self) -> int:
        """P, the number of parameters."""
        ...

    def initial(self, seed: int) -> Params:
        """(P,) freshly initialised parameters."""
        ...

    def train(self, plan: Plan, device: Ints, steps: Ints, seed: int) -> Trained:
        """Train these devices of the plan: probe the incoming loss, weigh, train, sum."""
        ...

    def score(self, params: Params) -> Scores:
        """Measure a model on every client's test part."""
        ...

    def close(self) -> None:
        """Release workers and shared memory."""
        ...


def generator(seed: int, round_: int, purpose: int = 0) -> np.random.Generator:
    """The random generator of a round: a function of (run seed, round, purpose) and of nothing else."""
    return np.random.default_rng([int(seed) & 0xFFFFFFFF, int(round_), int(purpose)])
