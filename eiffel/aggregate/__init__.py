"""Aggregation: what the server makes of the updates. Three small choices in a row:

    weights   how much each update counts           WEIGHTS: mean, rank, qfair, tilted, agnostic, scaffold,
                                              robust
    server    what the weighted update does to w    SERVERS: sgd (w - step), momentum, adagrad, adam, yogi
    serve     which model is published              last (w) or ema (a running average of w)

An update is u_k = w - w_k, so that the server's plain step is w <- w - sum a_k u_k. Weights depend only on
what devices report beside the update, so that workers can add updates up where they are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from eiffel.aggregate.fair import Agnostic, QFair, Tilted
from eiffel.aggregate.robust import Robust
from eiffel.aggregate.scaffold import Scaffold
from eiffel.aggregate.server import SERVERS, Server, Sgd
from eiffel.aggregate.weights import Mean, Rank, Weights
from eiffel.core.model import Outcomes, Params

WEIGHTS: dict[str, type[Weights]] = {
    "mean": Mean,
    "rank": Rank,
    "qfair": QFair,
    "tilted": Tilted,
    "agnostic": Agnostic,
    "scaffold": Scaffold,
    "robust": Robust,
}
"""Weight rules by the name that strategy cards use."""

__all__ = [
    "SERVERS",
    "WEIGHTS",
    "Aggregate",
    "AggregateState",
    "Agnostic",
    "Mean",
    "QFair",
    "Rank",
    "Robust",
    "Scaffold",
    "Server",
    "Sgd",
    "Tilted",
    "Weights",
]


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
    server: Server = field(default_factory=Sgd)
    serve: Literal["last", "ema"] = "last"
    beta: float = 0.9
    lr: float = 1.0

    def init(self, params: Params, devices: int) -> AggregateState:
        """The state before the first round."""
        return AggregateState(params, params, 0, self.weights.init(devices), self.server.init(params))

    def learn(self, state: AggregateState, outcomes: Outcomes, lr: float = 1.0) -> AggregateState:
        """One server step; without a valid update the model stays bit for bit what it was.

        lr: the devices' learning rate, which a few rules divide by.
        """
        if not outcomes.trained.weights.any():
            return state
        rule, update = self.weights.step(state.weights, outcomes, lr)
        server, step = self.server.step(state.server, update)
        params = state.params - np.float32(self.lr) * step
        t = state.round + 1
        beta = np.float32(min(self.beta, (1 + t) / (10 + t)))
        average = np.asarray(beta * state.average + (np.float32(1) - beta) * params, np.float32)
        return replace(state, params=params, average=average, round=t, weights=rule, server=server)

    def models(self, state: AggregateState) -> Mapping[str, Params]:
        """Both models by name."""
        return {"last": state.params, "ema": state.average}
