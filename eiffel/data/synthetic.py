"""synthetic(alpha, beta): clients whose models and inputs differ by as much as alpha and beta say.

The generator of Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, "Federated optimization in heterogeneous
networks" (FedProx), as its public code draws it: alpha and beta are standard deviations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.data.federated import Ask, DataError, Pool

FEATURES, CLASSES, LEAST = 60, 10, 50
SCALE = np.arange(1, FEATURES + 1) ** -0.6
"""Standard deviation of each feature: its variance is j^-1.2."""

Model = tuple[NDArray[np.float64], NDArray[np.float64]]


def read(ask: Ask) -> Pool:
    """Draw `clients` clients. options: alpha, beta, sigma (log sizes: n = LogNormal(4, sigma) + 50), iid.

    Client k depends on (seed, k) alone: the first 30 of 100 clients are the 30 clients of that seed.
    x: (M, 60) float32. y: (M,) argmax of the client's own softmax.
    """
    clients = 30 if ask.clients is None else ask.clients
    numbers = {
        name: _number(ask.options, name, default)
        for name, default in (("alpha", 1.0), ("beta", 1.0), ("sigma", 1.0))
    }
    shared = _model(np.random.default_rng([ask.seed, 0]), 0.0) if ask.options.get("iid") else None
    drawn = [_client(np.random.default_rng([ask.seed, k + 1]), shared, **numbers) for k in range(clients)]
    x, y = (np.concatenate(one) for one in zip(*drawn, strict=True))
    owner = np.repeat(np.arange(clients), [len(one) for _, one in drawn])
    return Pool(x, y, CLASSES, {}, owner=owner, keys=tuple(str(k) for k in range(clients)))


def _client(
    rng: np.random.Generator, shared: Model | None, alpha: float, beta: float, sigma: float
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """u ~ N(0, alpha), B ~ N(0, beta), v ~ N(B, 1), W, b ~ N(u, 1), x ~ N(v, j^-1.2), y = argmax Wx + b."""
    samples = int(rng.lognormal(4.0, sigma)) + LEAST
    weights, bias = shared or _model(rng, rng.normal(0.0, alpha))
    middle = np.zeros(FEATURES) if shared else rng.normal(rng.normal(0.0, beta), 1.0, FEATURES)
    x = middle + rng.standard_normal((samples, FEATURES)) * SCALE
    return x.astype(np.float32), np.argmax(x @ weights + bias, axis=1).astype(np.int64)


def _model(rng: np.random.Generator, mean: float) -> Model:
    return rng.normal(mean, 1.0, (FEATURES, CLASSES)), rng.normal(mean, 1.0, CLASSES)


def _number(options: Any, name: str, default: float) -> float:
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise DataError(
            f"datasets.options.{name} is {value!r}; it is a standard deviation: a number of 0 or more"
        )
    return float(value)
