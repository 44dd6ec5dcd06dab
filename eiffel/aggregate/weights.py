"""How much each update counts: the rule every one of them follows, FedAvg's, FedNova's and Eiffel's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Floats, Ints, Outcomes, Params, Reports
from eiffel.select.candidates import Tempo


class Weights(Protocol):
    """A rule that weighs updates.

    full: the rule needs every update, not sums. carries: models that travel each way beside w and its update.
    """

    @property
    def full(self) -> bool:
        """Whether every single update must be at hand."""
        ...

    @property
    def carries(self) -> int:
        """Models that every device downloads, and uploads, beside the model and its update."""
        ...

    def init(self, devices: int) -> Any:
        """State for a fleet of this size."""
        ...

    def shift(self, state: Any, chosen: Ints) -> NDArray[np.float32] | None:
        """(K, P) added to the gradients of the chosen devices, or None."""
        ...

    def weigh(self, state: Any, reports: Reports, tempo: Tempo) -> Floats:
        """(K,) weight of each update."""
        ...

    def step(self, state: Any, outcomes: Outcomes, lr: float = 1.0) -> tuple[Any, Params]:
        """New state and the (P,) server update, from row 0 of the sums. lr: the devices' learning rate."""
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
    carries: int = field(default=0, init=False)

    def init(self, devices: int) -> Any:
        """No state."""
        return None

    def shift(self, state: Any, chosen: Ints) -> NDArray[np.float32] | None:
        """Gradients stay what they are."""
        return None

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

    def step(self, state: Any, outcomes: Outcomes, lr: float = 1.0) -> tuple[Any, Params]:
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
