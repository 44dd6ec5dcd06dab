"""From test samples to clients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eiffel.train import trainer
from eiffel.train.scores import auroc


def test_accuracy_and_loss_of_two_clients_by_hand(federation):
    """Zero weights, bias (0, ln 3): p_1 = 3/4, so class 1 is always said, with the losses ln 4/3 and ln 4.

    Client 0 holds the classes 1, 1, 0: accuracy 2/3, loss (2 ln 4/3 + ln 4)/3. Client 1 holds 0: 0 and ln 4.
    """
    data = federation(np.ones((4, 2), np.float32), np.array([1, 1, 0, 0]), 2, [3, 1])
    engine = trainer(data, {"kind": "logistic"}, {"kind": "single"}, 0)
    got = engine.score(np.array([0, 0, 0, 0, 0, math.log(3)], np.float32))
    assert got.accuracy == pytest.approx([2 / 3, 0])
    assert got.loss == pytest.approx([(2 * math.log(4 / 3) + math.log(4)) / 3, math.log(4)])
    assert got.examples.tolist() == [3, 1]


def test_auroc_counts_pairs():
    """Positives 3 and 1, negatives 2, 0 and 1: of 6 pairs 3>2, 3>0, 3>1, 1>0 are won and 1=1 is half."""
    assert auroc(np.array([3.0, 1, 2, 0, 1]), np.array([1, 1, 0, 0, 0])) == pytest.approx(4.5 / 6)
    assert math.isnan(auroc(np.array([1.0, 2.0]), np.array([1, 1])))


def test_a_data_set_may_ask_for_auroc(federation):
    """One feature that is its own margin; client 1's ranking is the wrong way round."""
    x = np.array([[0], [1], [2], [5], [4], [3]], np.float32)
    data = federation(x, np.array([0, 1, 1, 0, 1, 1]), 2, [3, 3], metric="auroc")
    engine = trainer(data, {"kind": "logistic"}, {"kind": "single"}, 0)
    got = engine.score(np.array([0, 1, 0, 0], np.float32))
    assert got.accuracy.tolist() == [1.0, 0.0]
