"""FedBalancer's deadline (Shin et al. 2022, MobiSys): a round lasts until waiting for one more device pays no more.

    peak(e)   the time t at which most devices per second are done, if each trains e epochs
    deadline  peak(1) + ratio (peak(E) - peak(1))

ratio starts at 1; every `window` rounds it falls by `step` if the mean loss of the last window is below that of
the one before, and rises by it if not (algorithms 3 and 4, after the authors' code). Every device trains for as many
local steps as fit before the deadline, at most E epochs and at least one step.

Left out: the other half of FedBalancer, which trains on a device's hard samples only. Ours: times are predicted for
the chosen devices, where the authors use those of the last rounds; a device that is short of time does fewer steps,
where theirs takes fewer samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from eiffel.core.model import Floats, Ints, Outcomes, Plan, Snapshot
from eiffel.pace.rule import mean
from eiffel.select.candidates import Candidates, Tempo


@dataclass(frozen=True, slots=True)
class BalancerState:
    """ratio: between the two peaks. steps: mean local steps of the last round. round: rounds seen.
    losses: (2 window,) of the latest rounds, oldest first, NaN where unknown.
    """

    ratio: float
    steps: int
    round: int
    losses: Floats


@dataclass(frozen=True, slots=True)
class Balancer:
    """epochs: E. batch: samples a step (null on a card: the devices' own). window, step: of the ratio.
    steps: local steps that costs are predicted with before the first round.
    """

    epochs: int = 5
    batch: int = 10
    window: int = 20
    step: float = 0.05
    steps: int = 10
    sums: bool = field(default=False, init=False)
    gradients: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Refuse rounds in which nothing is trained."""
        if min(self.epochs, self.batch, self.window, self.steps) < 1 or not 0 <= self.step <= 1:
            raise ValueError("pace.epochs, batch, window and steps must be 1 or more, pace.step a fraction")

    def init(self) -> BalancerState:
        """Wait for E epochs."""
        return BalancerState(1.0, self.steps, 0, np.full(2 * self.window, np.nan))

    def tempo(self, state: BalancerState) -> Tempo:
        """The last round's mean local steps: what selection and the predicted costs go by."""
        return Tempo(state.steps)

    def notes(self, state: BalancerState) -> dict[str, float]:
        """tau (the last mean) and the deadline's ratio."""
        return {"tau": float(state.steps), "deadline_ratio": state.ratio}

    def share_out(self, state: BalancerState, among: Candidates, chosen: Ints) -> tuple[Ints, float]:
        """Steps that fit before the deadline, and the deadline."""
        snapshot = among.snapshot
        step_s = snapshot.step_s[chosen].astype(np.float64)
        exchange_s = snapshot.exchange_s[chosen].astype(np.float64)
        epoch = np.ceil(np.maximum(snapshot.examples[chosen], 1) / self.batch)
        low, high = (peak(exchange_s + e * epoch * step_s) for e in (1, self.epochs))
        deadline = low + state.ratio * (high - low)
        fit = np.floor((deadline - exchange_s) / np.maximum(step_s, 1e-12) + 1e-9)
        # A thousandth more, so that rounding makes nobody late who was meant to be in time.
        return np.clip(fit, 1, self.epochs * epoch).astype(np.int64), 1.001 * deadline

    def learn(
        self, state: BalancerState, snapshot: Snapshot, plan: Plan, outcomes: Outcomes, total: Floats | None
    ) -> BalancerState:
        """The round's loss, and every `window` rounds a new ratio."""
        if not plan.chosen.size:
            return state
        losses = np.append(state.losses[1:], mean(outcomes.trained.reports.first_loss))
        steps, round_ = max(1, round(float(plan.steps.mean()))), state.round + 1
        state = replace(state, losses=losses, steps=steps, round=round_)
        if round_ % self.window or not np.isfinite(losses).all():
            return state
        better = losses[self.window :].mean() < losses[: self.window].mean()
        return replace(state, ratio=min(1.0, max(0.0, state.ratio + (-self.step if better else self.step))))


def peak(seconds: Floats) -> float:
    """The time at which most of the devices per second are done; inf for nobody.

    Three devices that take 1, 4 and 5 s: 1/1, 2/4, 3/5 a second, so after 1 s.

    >>> peak(np.array([4.0, 1.0, 5.0]))
    1.0
    """
    if not seconds.size:
        return math.inf
    times = np.sort(seconds)
    rate = np.arange(1, times.size + 1) / np.maximum(times, 1e-12)
    # Of equal rates the later one: more devices at the same speed.
    return float(times[times.size - 1 - int(np.argmax(rate[::-1]))])
