"""Adaptive tau of Wang et al. (2019, JSAC 37(6), "Adaptive Federated Learning in Resource Constrained Edge
Computing Systems"), after the authors' code (IBM/adaptive-federated-learning).

From the cohort, weighted by samples: beta (how fast gradients change), rho (how fast losses do), and delta, the
mean distance of the devices' gradients from their mean. With eta the learning rate, c the seconds of a local step
and b those of an exchange (the slowest device's), R the seconds to be spent and R' = R - c - b,

    h(tau) = max(0, delta/beta ((1 + eta beta)^tau - 1) - eta delta tau)             drift apart in tau steps
    T(tau) = R' tau / (c tau + b)                                                    steps that fit into R'
    G(tau) = (1 + sqrt(1 + 4 T^2 phi rho eta h/tau)) / (2 T eta phi) + rho h         bound of the remaining gap

the next tau is the whole number in 1..10 tau that makes G smallest, at most `limit`.

Ours: beta and rho compare w with the device's end point of the same round, on the same first minibatch (the
authors compare last round's end point with this round's w, which needs the same devices in every round); R is
given as a number of rounds of one step, so that it fits any clock; the cohort is a sample. Every device uploads
its gradient beside its update: two models up. phi is tuned by hand per model, as in the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from eiffel.core.model import Floats, Outcomes, Plan, Snapshot
from eiffel.pace.rule import Together, smooth
from eiffel.select.candidates import Tempo


@dataclass(frozen=True, slots=True)
class WangState:
    """steps: tau. beta, rho, delta: the smoothed estimates, NaN before the first."""

    steps: int
    beta: float = math.nan
    rho: float = math.nan
    delta: float = math.nan


@dataclass(frozen=True, slots=True)
class Wang(Together):
    """phi: control parameter (0.025 for the authors' squared SVM, 5e-5 for their CNNs). horizon: R in rounds of
    one step; the authors' 15 s hold 104 of their testbed's mean (0.0130 + 0.1316 s). start: first tau.
    smoothing: of the three estimates. factor: of the search range. limit: largest tau.
    """

    phi: float = 0.025
    horizon: float = 104.0
    start: int = 1
    smoothing: float = 0.0
    factor: int = 10
    limit: int = 100
    sums: bool = field(default=False, init=False)
    gradients: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        """Refuse numbers for which the bound has no meaning."""
        if not self.phi > 0 or not self.horizon > 1 or not 1 <= self.start <= self.limit or self.factor < 1:
            raise ValueError(
                "pace.phi must be positive, horizon above 1, start between 1 and limit, factor 1 or more"
            )

    def init(self) -> WangState:
        """tau at its start."""
        return WangState(self.start)

    def tempo(self, state: WangState) -> Tempo:
        """tau."""
        return Tempo(state.steps)

    def notes(self, state: WangState) -> dict[str, float]:
        """tau and the estimates behind it."""
        notes = {"tau": float(state.steps), "beta": state.beta, "rho": state.rho, "delta": state.delta}
        return {key: value for key, value in notes.items() if math.isfinite(value)}

    def learn(
        self, state: WangState, snapshot: Snapshot, plan: Plan, outcomes: Outcomes, total: Floats | None
    ) -> WangState:
        """New estimates, and the tau that makes G smallest."""
        trained = outcomes.trained
        counted = trained.weights.any(0) & np.isfinite(trained.sumsq)
        if trained.slopes is None or not counted.any():
            return state
        share = trained.reports.examples[counted] / trained.reports.examples[counted].sum()
        gradient = trained.slopes.gradient[counted].astype(np.float64)
        apart = np.linalg.norm(gradient - share @ gradient, axis=1)
        beta = np.maximum(np.nan_to_num(trained.slopes.beta[counted], nan=0.0), 1e-5)
        rho = np.nan_to_num(trained.slopes.rho[counted], nan=0.0)
        state = replace(
            state,
            beta=smooth(state.beta, float(share @ beta), self.smoothing),
            rho=smooth(state.rho, float(share @ rho), self.smoothing),
            delta=smooth(state.delta, float(share @ apart), self.smoothing),
        )
        step_s = float(snapshot.step_s[plan.chosen].max())
        # An exchange as this plan makes it: the gradient goes up as well.
        moved = plan.downlink * snapshot.bytes_down + plan.uplink * snapshot.bytes_up
        share_moved = moved / max(snapshot.bytes_down + snapshot.bytes_up, 1)
        exchange_s = share_moved * float(snapshot.exchange_s[plan.chosen].max())
        tau = np.arange(1, min(self.factor * state.steps, self.limit) + 1, dtype=np.float64)
        return replace(
            state, steps=1 + int(np.argmin(self.gap(tau, state, plan.local.lr, step_s, exchange_s)))
        )

    def gap(self, tau: Floats, state: WangState, lr: float, step_s: float, exchange_s: float) -> Floats:
        """G(tau) for each tau; inf where it overflows."""
        beta, rho, delta, phi = state.beta, state.rho, state.delta, self.phi
        with np.errstate(over="ignore", invalid="ignore"):
            drift = np.maximum(0.0, delta / beta * np.expm1(tau * np.log1p(lr * beta)) - lr * delta * tau)
            # Scale-free: only the ratio of exchange to step counts once R is a number of rounds.
            left = (self.horizon - 1) * (step_s + exchange_s)
            done = left * tau / (step_s * tau + exchange_s)
            root = np.sqrt(1 + 4 * done**2 * phi * rho * lr * drift / tau)
            gap = (1 + root) / (2 * done * lr * phi) + rho * drift
        return np.where(np.isfinite(gap), gap, np.inf)
