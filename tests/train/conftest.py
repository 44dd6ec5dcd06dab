"""Small federations, made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from eiffel.core.model import Local, Plan
from eiffel.data.federated import Federated, Parts


def parts(sizes):
    start = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    return Parts(np.arange(start[-1], dtype=np.int64), start)


def make_federation(x, y, classes, sizes, test_sizes=None, metric="accuracy"):
    train = parts(sizes)
    test = parts(test_sizes if test_sizes is not None else sizes)
    clients = tuple(f"c{i}" for i in range(len(sizes)))
    return Federated("hand", x, y, classes, train, test, clients, {}, metric)


def make_plan(params, device, steps, round_=0, local=None, weigh=None, full=False):
    n = 1 + max(int(d) for d in device)
    return Plan(
        round=round_,
        chosen=np.asarray(device, np.int64),
        steps=np.asarray(steps, np.int64),
        reason=np.zeros(n, np.uint8),
        params=params,
        local=local or Local(),
        weigh=weigh or (lambda r: r.examples / r.examples.sum()),
        full=full,
    )


@pytest.fixture(scope="session")
def blobs():
    """20 clients of 3 to 40 samples, 12 features, 4 classes: learnable, unequal, seeded."""
    random = np.random.default_rng(5)
    sizes = random.integers(3, 41, 20)
    m = int(sizes.sum())
    y = random.integers(0, 4, m)
    x = (random.normal(size=(4, 12))[y] + random.normal(size=(m, 12))).astype(np.float32)
    return make_federation(x, y.astype(np.int64), 4, sizes)


@pytest.fixture(scope="session")
def federation():
    """make_federation(x, y, classes, sizes, test_sizes=None, metric="accuracy")."""
    return make_federation


@pytest.fixture(scope="session")
def plan_of():
    """make_plan(params, device, steps, round_=0, local=None, weigh=None, full=False)."""
    return make_plan
