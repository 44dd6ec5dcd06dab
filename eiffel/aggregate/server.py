"""The server's optimizer: the averaged update taken as a gradient (Reddi et al. 2021, "Adaptive Federated
Optimization", algorithms 1 and 2). `Aggregate.lr` is its learning rate.

    sgd       step = u                                        FedAvg
    momentum  m <- beta m + u,  step = m                      FedAvgM (Hsu, Qi and Brown 2019)
    adagrad   v <- v + u^2,                                   step = m / (sqrt v + tau)
    adam      v <- beta2 v + (1 - beta2) u^2                  m <- beta1 m + (1 - beta1) u, likewise
    yogi      v <- v - (1 - beta2) u^2 sign(v - u^2)          likewise

There is no bias correction, as in the paper's algorithm 2. v starts at tau^2, the smallest that the paper's
condition allows; public code that starts at 0 takes a far larger first step along coordinates that hardly move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from eiffel.core.model import Params


class Server(Protocol):
    """A server optimizer: frozen numbers, pure functions."""

    def init(self, params: Params) -> Any:
        """State for a model of this size."""
        ...

    def step(self, state: Any, update: Params) -> tuple[Any, Params]:
        """New state and the (P,) step that a learning rate multiplies, from the (P,) averaged update."""
        ...


@dataclass(frozen=True, slots=True)
class Sgd:
    """The update itself: w <- w - lr u."""

    def init(self, params: Params) -> None:
        """No state."""

    def step(self, state: None, update: Params) -> tuple[None, Params]:
        """u."""
        return None, update


@dataclass(frozen=True, slots=True)
class Momentum:
    """Heavy ball: m <- beta m + u."""

    beta: float = 0.9

    def __post_init__(self) -> None:
        """Refuse a momentum that explodes."""
        _fraction("beta", self.beta)

    def init(self, params: Params) -> Params:
        """(P,) m = 0."""
        return np.zeros_like(params)

    def step(self, state: Params, update: Params) -> tuple[Params, Params]:
        """m, twice."""
        m = np.float32(self.beta) * state + update
        return m, m


@dataclass(frozen=True, slots=True)
class Moments:
    """m, v: (P,) running first and second moments of the update."""

    m: Params
    v: Params


@dataclass(frozen=True, slots=True)
class Adaptive:
    """What adagrad, adam and yogi share. tau: how far small second moments may stretch a step."""

    beta1: float = 0.9
    tau: float = 1e-3

    def __post_init__(self) -> None:
        """Refuse numbers without a meaning."""
        _fraction("beta1", self.beta1)
        if not self.tau > 0:
            raise ValueError(f"server.tau is {self.tau!r}; it must be positive")

    def init(self, params: Params) -> Moments:
        """m = 0, v = tau^2."""
        return Moments(np.zeros_like(params), np.full_like(params, self.tau**2))

    def step(self, state: Moments, update: Params) -> tuple[Moments, Params]:
        """m / (sqrt v + tau)."""
        beta = np.float32(self.beta1)
        m = beta * state.m + (np.float32(1) - beta) * update
        v = np.maximum(self.second(state.v, np.square(update)), np.float32(0))
        return Moments(m, v), np.asarray(m / (np.sqrt(v) + np.float32(self.tau)), np.float32)

    def second(self, v: Params, square: Params) -> Params:
        """The second moment after one more squared update."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Adagrad(Adaptive):
    """v <- v + u^2. beta1 is 0 in FedAdagrad."""

    beta1: float = 0.0

    def second(self, v: Params, square: Params) -> Params:
        """The sum of all squares."""
        return v + square


@dataclass(frozen=True, slots=True)
class Adam(Adaptive):
    """v <- beta2 v + (1 - beta2) u^2."""

    beta2: float = 0.99

    def second(self, v: Params, square: Params) -> Params:
        """Their running mean."""
        return np.float32(self.beta2) * v + np.float32(1 - self.beta2) * square


@dataclass(frozen=True, slots=True)
class Yogi(Adaptive):
    """v <- v - (1 - beta2) u^2 sign(v - u^2): v falls as slowly as it rises."""

    beta2: float = 0.99

    def second(self, v: Params, square: Params) -> Params:
        """Towards the latest square by at most (1 - beta2) of it."""
        return np.asarray(v - np.float32(1 - self.beta2) * square * np.sign(v - square), np.float32)


def _fraction(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"server.{name} is {value!r}; it must be 0 or more and below 1")


SERVERS: dict[str, type[Server]] = {
    "sgd": Sgd,
    "momentum": Momentum,
    "adagrad": Adagrad,
    "adam": Adam,
    "yogi": Yogi,
}
"""Server optimizers by the name that strategy cards use."""
