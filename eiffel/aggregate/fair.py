"""Weights that serve the devices with a large loss: q-FedAvg, TERM, agnostic federated learning.

All three weigh by F_k, the loss of the incoming model on the device's own data (`local.probe: -1` measures it
on all of them). Where no device knows its loss the weights are NaN, which asks the trainer to measure that of
the first minibatch; a device whose loss alone is unknown counts as one with the mean loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from eiffel.aggregate.weights import Mean
from eiffel.core.model import Floats, Outcomes, Params, Reports
from eiffel.select.candidates import Tempo

TINY = 1e-10
"""Added to losses before a power is taken, so that a loss of zero has a logarithm."""


def losses(reports: Reports) -> Floats:
    """(K,) loss of the incoming model, unknown ones replaced by the mean of the known; NaN if none is."""
    loss = reports.incoming
    known = np.isfinite(loss)
    return np.where(known, loss, loss[known].mean()) if known.any() else np.full(loss.shape, np.nan)


@dataclass(frozen=True, slots=True)
class QFair(Mean):
    """q-FedAvg (Li et al. 2020, "Fair Resource Allocation in Federated Learning", algorithm 2).

    With L = 1/lr, F = F_k + 1e-10:  Delta_k = F^q L u_k,  h_k = q F^(q-1) |L u_k|^2 + L F^q,
    step = sum Delta_k / sum h_k = sum a_k u_k / sum a_k (1 + q L |u_k|^2 / F)   with a_k = (F / max F)^q,

    taken in logarithms, so that neither q = 100 nor a loss of 1e-200 over- or underflows. q = 0 is the plain
    mean (`by: equal`) or FedAvg's (`by: samples`, which multiplies a_k by n_k).
    """

    by: Literal["samples", "equal"] = "equal"
    q: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a q that would serve those who have a small loss."""
        if self.q < 0:
            raise ValueError(f"weights.q is {self.q!r}; it must be 0 or more")

    def weigh(self, state: Any, reports: Reports, tempo: Tempo) -> Floats:
        """a_k, the largest of which is 1 (times n_k)."""
        log = self.q * np.log(np.maximum(losses(reports), 0) + TINY)
        return np.asarray(self.share(reports, tempo) * np.exp(log - log.max(initial=-np.inf)))

    def step(self, state: Any, outcomes: Outcomes, lr: float = 1.0) -> tuple[Any, Params]:
        """sum Delta_k / sum h_k over the updates that were in fact added."""
        trained, a = outcomes.trained, outcomes.trained.weights[0]
        squares = np.where(np.isfinite(trained.sumsq), trained.sumsq, 0.0)
        curvature = self.q * squares / (lr * (np.maximum(losses(trained.reports), 0) + TINY))
        total = float(a @ np.where(a > 0, 1.0 + curvature, 0.0))
        # Nobody counted, or a loss of zero with a large update: no step rather than one without a length.
        scale = 1.0 / total if total > 0 and np.isfinite(total) else 0.0
        return state, trained.sums[0] * np.float32(scale)


@dataclass(frozen=True, slots=True)
class Tilted(Mean):
    """TERM across devices (Li et al. 2021, "Tilted Empirical Risk Minimization"): a_k ~ exp(t F_k).

    The weights are those of the gradient of log(mean exp(t F_k))/t and sum to one. (Public code divides them
    by K once more, and by a running mean in place of this round's sum.) t > 0 serves large losses, t < 0
    small ones, t = 0 is the plain mean.
    """

    by: Literal["samples", "equal"] = "equal"
    t: float = 1.0

    def share(self, reports: Reports, tempo: Tempo) -> Floats:
        """exp(t F_k), the largest of which is 1 (times n_k)."""
        tilt = self.t * losses(reports)
        return np.asarray(Mean.share(self, reports, tempo) * np.exp(tilt - tilt.max(initial=-np.inf)))


@dataclass(frozen=True, slots=True)
class Agnostic(Mean):
    """AFL (Mohri, Sivek and Suresh 2019, "Agnostic Federated Learning"): a min-max game over mixtures.

    step = sum lambda_k u_k / sum lambda_k over the cohort;  lambda <- projection(lambda + ascent F) onto the
    simplex, F_k = 0 for devices that did not deliver. With all devices in every cohort (`select: all`) this
    is the paper's algorithm with its gradient replaced by an update of tau steps. A lambda of 0 still counts
    1e-9, without which its device would never be heard again.
    """

    by: Literal["samples", "equal"] = field(default="equal", init=False)
    nova: bool = field(default=False, init=False)
    ascent: float = 0.1

    def init(self, devices: int) -> Floats:
        """(N,) lambda: every device counts alike."""
        return np.full(devices, 1.0 / devices)

    def weigh(self, state: Floats, reports: Reports, tempo: Tempo) -> Floats:
        """lambda of the cohort, normalised."""
        mix = np.maximum(state[reports.device], 1e-9)
        return np.asarray(mix / mix.sum())

    def step(self, state: Floats, outcomes: Outcomes, lr: float = 1.0) -> tuple[Floats, Params]:
        """The mixture's step, then lambda's."""
        loss = losses(outcomes.trained.reports)
        mix = state.copy()
        mix[outcomes.trained.reports.device] += self.ascent * np.where(np.isfinite(loss), loss, 0.0)
        return onto_simplex(mix), Mean.step(self, None, outcomes)[1]


def onto_simplex(point: Floats) -> Floats:
    """The nearest point (N,) whose entries are 0 or more and sum to one (Duchi et al. 2008, figure 1).

    With u sorted descending, rho is the last i with u_i > (u_1 + ... + u_i - 1)/i: the sum includes u_i. Public
    code for AFL leaves it out, and lands off the simplex: it maps (1.1, 0.06) to (1.02, 0).

    >>> onto_simplex(np.array([1.1, 0.06])).round(9).tolist()
    [1.0, 0.0]
    """
    u = np.sort(point)[::-1]
    excess = (np.cumsum(u) - 1.0) / np.arange(1, u.size + 1)
    rho = np.flatnonzero(u > excess)[-1]
    return np.asarray(np.maximum(point - excess[rho], 0.0))
