"""Aggregation: what the server makes of the updates. Three small choices in a row:

    weights   how much each update counts           mean, rank, nova (a table of rules: WEIGHTS)
    server    what the weighted update does to w    sgd (w - step), ...
    serve     which model is published              last (w) or ema (a running average of w)

An update is u_k = w - w_k, so that the server's plain step is w <- w - sum a_k u_k. Weights depend only on
what devices report beside the update, so that workers can add updates up where they are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

from eiffel.core.model import Floats, Outcomes, Params, Reports
from eiffel.select.candidates import Tempo


class Weights(Protocol):
    """A rule that weighs updates.

    full: the rule needs every update, not sums.
    """

    @property
    def full(self) -> bool:
        """Whether every single update must be at hand."""
        ...

    def init(self, devices: int) -> Any:
        """State for a fleet of this size."""
        ...

    def weigh(self, state: Any, reports: Reports, tempo: Tempo) -> Floats:
        """(K,) weight of each update."""
        ...

    def step(self, state: Any, outcomes: Outcomes) -> tuple[Any, Params]:
        """New state and the (P,) server update, from row 0 of the sums."""
        ...


@dataclass(frozen=True, slots=True)
class Mean:
    """Weighted mean of the updates: by samples (FedAvg, McMahan et al. 2017), or all alike.

    nova: updates are divided by their local steps and the mean is scaled by the mean number of steps
    (FedNova, Wang et al. 2020): d_k = u_k / tau_k, step = (sum p_k tau_k) sum p_k d_k. With equal steps this
    is the plain mean.
    """

    by: Literal["samples", "equal"] = "samples"
    nova: bool = False
    full: bool = field(default=False, init=False)

    def init(self, devices: int) -> None:
        """No state."""

    def weigh(self, state: Any, reports: Reports, tempo: Tempo) -> Floats:
        """p_k, which sum to one, or with `nova` p_k / tau_k."""
        p = self.share(reports, tempo)
        p = p / p.sum() if p.sum() > 0 else p
        return p / np.maximum(reports.steps, 1) if self.nova else p

    def share(self, reports: Reports, tempo: Tempo) -> Floats:
        """How much each device counts, before anything is normalised."""
        if self.by == "equal":
            return np.ones(reports.device.size)
        return np.maximum(reports.examples, 0).astype(np.float64)

    def step(self, state: Any, outcomes: Outcomes) -> tuple[Any, Params]:
        """The weighted sum over the shares that were in fact added: left-out updates leave no hole."""
        trained, weights = outcomes.trained, outcomes.trained.weights[0]
        steps = np.maximum(trained.reports.steps, 1)
        p = weights * steps if self.nova else weights
        mean_steps = float(p @ steps) / p.sum() if self.nova else 1.0
        return state, trained.sums[0] * np.float32(mean_steps / p.sum())


@dataclass(frozen=True, slots=True)
class Rank(Mean):
    """Eiffel's weights (our reconstruction): a_k proportional to kappa + r_k, r_k = 0..K-1 the rank of the
    incoming loss within the cohort; plain mean until tau has grown.

    With K = 10 and kappa = 3 the weights run from .04 to .16. Weights in proportion to the loss itself do
    harm on strongly conflicting data; ranks are bounded.
    """

    by: Literal["samples", "equal"] = "equal"
    kappa: float = 3.0
    always: bool = False

    def share(self, reports: Reports, tempo: Tempo) -> Floats:
        """kappa + rank of the loss (unknown: the middle rank), or equal shares before tau has grown."""
        equal = Mean.share(self, reports, tempo)
        if not (tempo.grown or self.always) or not np.isfinite(reports.loss).any():
            return equal
        known = np.isfinite(reports.loss)
        order = np.argsort(reports.loss[known], kind="stable")
        rank = np.full(reports.loss.size, (reports.loss.size - 1) / 2)
        ranks = np.empty(order.size)
        ranks[order] = np.arange(order.size)
        rank[known] = ranks
        return equal * (self.kappa + rank)


WEIGHTS: dict[str, type[Weights]] = {"mean": Mean, "rank": Rank}
"""Weight rules by the name that strategy cards use."""


@dataclass(frozen=True, slots=True)
class AggregateState:
    """params: (P,) w, from which training goes on. average: (P,) its running average. round: steps taken.
    weights, server: states of the two rules.
    """

    params: Params
    average: Params
    round: int
    weights: Any = None
    server: Any = None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """weights, then server step, then what is served.

    serve: `last` publishes w, `ema` the running average wbar <- beta_t wbar + (1 - beta_t) w with
    beta_t = min(beta, (1 + t)/(10 + t)); it costs no traffic. Both are always kept, so that every strategy
    can be judged with either. lr: factor on the server's step.
    """

    weights: Weights = field(default_factory=Mean)
    serve: Literal["last", "ema"] = "last"
    beta: float = 0.9
    lr: float = 1.0

    def init(self, params: Params, devices: int) -> AggregateState:
        """The state before the first round."""
        return AggregateState(params, params, 0, self.weights.init(devices))

    def learn(self, state: AggregateState, outcomes: Outcomes) -> AggregateState:
        """One server step; without a valid update the model stays bit for bit what it was."""
        if not outcomes.trained.weights.any():
            return state
        rule, step = self.weights.step(state.weights, outcomes)
        params = state.params - np.float32(self.lr) * step
        t = state.round + 1
        beta = np.float32(min(self.beta, (1 + t) / (10 + t)))
        average = np.asarray(beta * state.average + (np.float32(1) - beta) * params, np.float32)
        return replace(state, params=params, average=average, round=t, weights=rule)

    def models(self, state: AggregateState) -> Mapping[str, Params]:
        """Both models by name."""
        return {"last": state.params, "ema": state.average}
