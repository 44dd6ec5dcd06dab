"""SCAFFOLD (Karimireddy et al. 2020): control variates take the devices' drift out of their gradients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from eiffel.aggregate.weights import Mean
from eiffel.core.model import Ints, Outcomes, Params


@dataclass(frozen=True, slots=True)
class Controls:
    """server: (P,) c. own: (N, P) c_k of every device; both are empty before the first update."""

    server: NDArray[np.float32]
    own: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Scaffold(Mean):
    """A device steps by g - c_k + c; then, with its own steps tau_k (the paper's option II):

        c_k <- c_k - c + u_k / (tau_k lr)
        c   <- c + (1/N) sum over the cohort of (new c_k - old c_k)

    w moves by the mean of the updates (global step size 1). c goes down with w, and the change of c_k up with
    the update: both ways move two models. A device keeps its own c_k; the simulation keeps all N of them,
    N x P numbers, which limits it to small models or fleets.
    """

    by: Literal["samples", "equal"] = "equal"
    nova: bool = field(default=False, init=False)
    full: bool = field(default=True, init=False)
    carries: int = field(default=1, init=False)

    def init(self, devices: int) -> Controls:
        """All control variates are zero; their size is learnt from the first update."""
        return Controls(np.zeros(0, np.float32), np.zeros((devices, 0), np.float32))

    def shift(self, state: Controls, chosen: Ints) -> NDArray[np.float32] | None:
        """(K, P) c - c_k of the chosen devices."""
        return state.server - state.own[chosen] if state.server.size else None

    def step(self, state: Any, outcomes: Outcomes, lr: float = 1.0) -> tuple[Any, Params]:
        """The mean update, and the control variates after this round. ValueError without single updates."""
        trained = outcomes.trained
        if trained.full is None:
            raise ValueError("SCAFFOLD needs every single update; this world returned only their sum")
        counted = np.flatnonzero(trained.weights[0] > 0)
        who, steps = trained.reports.device[counted], trained.reports.steps[counted]
        size = trained.full.shape[1]
        server = state.server if state.server.size else np.zeros(size, np.float32)
        own = state.own.copy() if state.own.shape[1] else np.zeros((len(state.own), size), np.float32)
        change = (
            trained.full[counted] / np.float32(lr) / np.maximum(steps, 1)[:, None].astype(np.float32) - server
        )
        own[who] += change
        server = server + change.sum(0) / np.float32(len(own))
        return Controls(server, own), Mean.step(self, None, outcomes)[1]
