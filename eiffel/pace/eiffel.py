"""Eiffel's pace: grow tau while the devices agree, halve it where they do not."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Floats, Outcomes, Plan, Snapshot
from eiffel.pace.rule import Together, mean, smooth
from eiffel.select.candidates import Tempo


@dataclass(frozen=True, slots=True)
class EiffelPaceState:
    """steps: tau. signal: S, NaN before it is known. cap: largest useful tau, NaN before it is known.
    grown, frozen: flags of the rule. since: rounds since tau last changed. round: rounds seen.
    losses: (2 window,) mean first-minibatch losses of the latest rounds, oldest first, NaN where unknown.
    """

    steps: int
    signal: float
    cap: float
    grown: bool
    frozen: bool
    since: int
    round: int
    losses: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class EiffelPace(Together):
    """Eiffel's pace (our reconstruction): grow tau while the devices agree, halve it where they do not.

    A_t  = (|sum u|^2 - sum |u_k|^2) / ((K - 1) sum |u_k|^2)      mean pairwise inner product / mean square
    S_t  = smoothed K A / (1 - A)                                 signal over noise of the averaged update
    cap  = smoothed (mean exchange cost / mean step cost) / (1 - 2 traffic)

    - plateau: every `window` rounds, if the mean first-minibatch loss of the last window exceeds
      (1 - gain) x the mean of the window before: tau halves and never grows again;
    - else, while not frozen, S > high: tau grows (1 + S)-fold, so it doubles where signal and noise are even;
    - else, before it ever grew, S < low, `patience` rounds since tau changed: tau halves and never grows;
    - always tau <= cap: if progress grows like sqrt(tau), progress per cost peaks where tau steps cost as
      much as one exchange (r steps). `traffic` is the weight of bytes beside time and energy, which share the
      rest: sqrt(tau) / ((tau + r)^(1 - traffic) bytes^traffic) peaks at r / (1 - 2 traffic), three times
      later if all three weigh the same (1/3), never from 1/2 on.

    S is never used to shrink a tau that has grown: late in training it falls on every data set, although a
    large tau still pays; the plateau test does that. A needs only the sum of the updates and K scalars, so it
    survives streaming and secure aggregation. start, high, low, window, gain, limit: numbers of the rule.
    """

    start: int = 4
    high: float = 1.0
    low: float = 0.5
    smoothing: float = 0.7
    cap_smoothing: float = 0.9
    window: int = 20
    gain: float = 0.02
    patience: int = 3
    grow: bool = True
    plateau: bool = True
    limit: int = 10_000
    traffic: float = 0.0
    sums: bool = field(default=True, init=False)
    gradients: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Refuse a weight with which no tau would be large enough."""
        if not 0 <= self.traffic < 0.5:
            raise ValueError(f"pace.traffic is {self.traffic!r}; it must be at least 0 and below 0.5")

    def init(self) -> EiffelPaceState:
        """tau at its start, nothing known."""
        losses = np.full(2 * self.window, np.nan)
        return EiffelPaceState(self.start, math.nan, math.nan, False, False, self.patience, 0, losses)

    def tempo(self, state: EiffelPaceState) -> Tempo:
        """tau, the alignment share S / (1 + S), and whether tau has grown."""
        signal = max(0.0, state.signal) if math.isfinite(state.signal) else 0.0
        return Tempo(state.steps, signal / (1.0 + signal), state.grown)

    def notes(self, state: EiffelPaceState) -> dict[str, float]:
        """tau, signal S, alignment alpha and cap."""
        tempo = self.tempo(state)
        notes = {
            "tau": float(state.steps),
            "alignment": tempo.alignment,
            "signal": state.signal,
            "cap": state.cap,
        }
        return {key: value for key, value in notes.items() if math.isfinite(value)}

    def learn(
        self, state: EiffelPaceState, snapshot: Snapshot, plan: Plan, outcomes: Outcomes, total: Floats | None
    ) -> EiffelPaceState:
        """One round of the rule, as written above."""
        if not plan.chosen.size:
            return state
        counted = outcomes.trained.sumsq[outcomes.trained.weights.any(0)]
        state = replace(
            state,
            round=state.round + 1,
            since=state.since + 1,
            cap=smooth(state.cap, breakeven(snapshot, plan) / (1 - 2 * self.traffic), self.cap_smoothing),
            losses=np.append(state.losses[1:], mean(outcomes.trained.reports.first_loss)),
        )
        if total is not None and counted.size > 1:
            signal = signal_to_noise(float(total @ total), counted)
            state = replace(state, signal=smooth(state.signal, signal, self.smoothing))
        return self._adapt(state)

    def _adapt(self, state: EiffelPaceState) -> EiffelPaceState:
        steps = state.steps
        if self.plateau and state.round % self.window == 0 and self._stalled(state.losses):
            return self._set(replace(state, frozen=True), steps // 2)
        if self.grow and not state.frozen and state.signal > self.high:
            return self._set(replace(state, grown=True), int(min(steps * (1 + state.signal), self.limit)))
        if self.grow and not state.grown and state.signal < self.low and state.since >= self.patience:
            # Brought down, tau does not grow again: noise in S would sooner or later let it.
            return self._set(replace(state, frozen=True), steps // 2)
        return self._set(state, steps)

    def _stalled(self, losses: NDArray[np.float64]) -> bool:
        before, now = losses[: self.window], losses[self.window :]
        # NaN (a window not full yet) compares false: no plateau before two windows are known.
        return bool(now.mean() > (1 - self.gain) * before.mean())

    def _set(self, state: EiffelPaceState, steps: int) -> EiffelPaceState:
        cap = math.floor(state.cap) if math.isfinite(state.cap) else self.limit
        steps = max(1, min(steps, cap, self.limit))
        return replace(state, steps=steps, since=0 if steps != state.steps else state.since)


def signal_to_noise(total_sq: float, sumsq: Floats) -> float:
    """K A / (1 - A) of K updates, from |sum u|^2 and the |u_k|^2; A is the unbiased alignment.

    Two updates (1, 0) and (1, 1): |sum|^2 = 5, sum of squares 1 + 2 = 3, A = (5 - 3)/(1 * 3) = 2/3,
    and the signal is 2 (2/3)/(1/3) = 4.

    >>> round(signal_to_noise(5.0, np.array([1.0, 2.0])), 9)
    4.0
    """
    k, energy = sumsq.size, float(sumsq.sum())
    if k < 2 or energy <= 0:
        return 0.0
    alignment = (total_sq - energy) / ((k - 1) * energy)
    return k * alignment / max(1.0 - alignment, 1e-9)


def breakeven(snapshot: Snapshot, plan: Plan) -> float:
    """The tau whose computing costs the cohort as much as one exchange: half by time, half by energy."""
    who = plan.chosen
    ratios = [
        _ratio(snapshot.exchange_s[who], snapshot.step_s[who]),
        _ratio(snapshot.exchange_j[who], snapshot.step_j[who]),
    ]
    known = [r for r in ratios if math.isfinite(r)]
    return max(1.0, sum(known) / len(known)) if known else math.nan


def _ratio(exchange: NDArray[np.float32], step: NDArray[np.float32]) -> float:
    """Mean over mean; NaN where a step costs nothing that is known."""
    per_step = float(step.mean(dtype=np.float64))
    return float(exchange.mean(dtype=np.float64)) / per_step if per_step > 0 else math.nan
