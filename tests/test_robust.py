"""Robust reductions, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eiffel.robust import krum, krum_chosen, krum_scores, median, squared_distances, trimmed_mean


def updates(*rows):
    return np.array(rows, np.float32)


def test_median_by_hand():
    """Column 1: 1, 2, 900 -> 2. Column 2: -5, 0, 1 -> 0. A row with NaN does not count."""
    told = updates([1, -5], [900, 0], [2, 1], [np.nan, 7])
    assert median(told).tolist() == [2.0, 0.0]
    assert median(told[:2]).tolist() == [450.5, -2.5]


def test_trimmed_mean_by_hand():
    """Of 1, 2, 3, 4, 900 a fifth is cut off at either end: (2 + 3 + 4)/3 = 3. Nothing cut: 910/5 = 182."""
    told = updates([3], [900], [1], [4], [2])
    assert trimmed_mean(told, 0.2).tolist() == [3.0]
    assert trimmed_mean(told, 0.0).tolist() == [182.0]


def test_krum_by_hand():
    """Points 0, 1, 3, 4 and 100 on a line, one attacker: the scores sum the 5 - 1 - 2 = 2 nearest squares.

    0: 1 + 9 = 10. 1: 1 + 4 = 5. 3: 1 + 4 = 5. 4: 1 + 9 = 10. 100: 96^2 + 97^2 = 18625.
    Krum takes 1 (the lower row of a tie), multi-Krum with 2 averages 1 and 3.
    """
    told = updates([0], [1], [3], [4], [100])
    assert krum_scores(told, 1).tolist() == [10, 5, 5, 10, 18625]
    assert krum(told, 1).tolist() == [1.0]
    assert krum_chosen(told, 1, 2).tolist() == [1, 2]
    assert krum(told, 1, 2).tolist() == [2.0]


def test_krum_never_takes_an_update_that_is_not_finite():
    """Left are 0, 1, 2, 3, 4: the inner ones score 1 + 1 = 2, and 1 is the first of them."""
    told = updates([0], [np.inf], [1], [2], [3], [4])
    assert krum_scores(told, 1)[1] == np.inf
    assert krum(told, 1).tolist() == [1.0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: krum(updates([1], [2], [3], [4]), 1), "needs 5 finite updates; there are 4"),
        (lambda: krum(np.zeros((5, 1), np.float32), 1, 5), "keep is 5"),
        (lambda: trimmed_mean(updates([1]), 0.5), "trim is 0.5"),
        (lambda: median(updates([np.nan])), "none of 1 updates is finite"),
    ],
)
def test_what_cannot_be_reduced_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 3), st.floats(1e2, 1e6))
def test_a_minority_cannot_drag_the_result_out_of_the_honest_range(seed, attackers, size):
    """11 devices of which up to 3 lie as they like: every coordinate stays among the honest ones'."""
    random = np.random.default_rng(seed)
    honest = random.normal(size=(11 - attackers, 5)).astype(np.float32)
    lies = (random.normal(size=(attackers, 5)) * size).astype(np.float32)
    told = random.permutation(np.concatenate([honest, lies]))
    for result in (median(told), trimmed_mean(told, 3 / 11 + 1e-9), krum(told, attackers)):
        assert (result >= honest.min(0) - 1e-5).all()
        assert (result <= honest.max(0) + 1e-5).all()


def test_wide_updates_are_reduced_block_by_block():
    """More columns than one block of 65,536: the same as over the whole."""
    told = np.random.default_rng(0).normal(size=(7, 70_001)).astype(np.float32)
    assert np.array_equal(median(told), np.median(told, axis=0))
    assert trimmed_mean(told, 0.2) == pytest.approx(np.sort(told, 0)[1:-1].mean(0), abs=1e-6)
    direct = ((told[:, None].astype(float) - told[None]) ** 2).sum(-1)
    assert squared_distances(told) == pytest.approx(direct)
