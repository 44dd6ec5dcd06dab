"""AdaComm (Wang and Joshi 2019, MLSys, "Adaptive Communication Strategies to Achieve the Best Error-Runtime
Trade-off in Local-Update SGD"): start with rare exchanges, make them more frequent as the loss falls.

    tau <- ceil(sqrt(F_t / F_0) tau_0),  and where that is not below the old tau: tau <- factor tau

at the end of every interval, F the training loss. The rule is from memory of the paper, unverified. Ours: an
interval is a number of rounds (the paper's is one of seconds), F the mean first-minibatch loss of its rounds, F_0
that of the very first round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from eiffel.core.model import Floats, Outcomes, Plan, Snapshot
from eiffel.pace.rule import Together, mean
from eiffel.select.candidates import Tempo


@dataclass(frozen=True, slots=True)
class AdaCommState:
    """steps: tau. first: F_0, NaN before it is known. total, seen: losses of this interval. round: rounds seen."""

    steps: int
    first: float = math.nan
    total: float = 0.0
    seen: int = 0
    round: int = 0


@dataclass(frozen=True, slots=True)
class AdaComm(Together):
    """start: tau_0. interval: rounds. factor: by which tau falls where the loss does not."""

    start: int = 20
    interval: int = 10
    factor: float = 0.5
    sums: bool = field(default=False, init=False)
    gradients: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Refuse what never falls."""
        if self.start < 1 or self.interval < 1 or not 0 < self.factor < 1:
            raise ValueError("pace.start and pace.interval must be 1 or more, pace.factor between 0 and 1")

    def init(self) -> AdaCommState:
        """tau at its start."""
        return AdaCommState(self.start)

    def tempo(self, state: AdaCommState) -> Tempo:
        """tau."""
        return Tempo(state.steps)

    def notes(self, state: AdaCommState) -> dict[str, float]:
        """tau."""
        return {"tau": float(state.steps)}

    def learn(
        self, state: AdaCommState, snapshot: Snapshot, plan: Plan, outcomes: Outcomes, total: Floats | None
    ) -> AdaCommState:
        """Add a round's loss; at the end of an interval, a new tau."""
        loss = mean(outcomes.trained.reports.first_loss)
        if math.isfinite(loss):
            first = loss if math.isnan(state.first) else state.first
            state = replace(state, first=first, total=state.total + loss, seen=state.seen + 1)
        state = replace(state, round=state.round + 1)
        if state.round % self.interval or not state.seen:
            return state
        return replace(state, steps=self._next(state), total=0.0, seen=0)

    def _next(self, state: AdaCommState) -> int:
        ratio = max(state.total / state.seen, 0.0) / state.first if state.first > 0 else 0.0
        steps = math.ceil(math.sqrt(ratio) * self.start)
        return max(1, steps if steps < state.steps else math.floor(self.factor * state.steps))
