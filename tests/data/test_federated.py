"""Parts, the split inside each client, and what a Federated refuses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eiffel.data import DataError, Federated, Parts
from eiffel.data.split import held_out

QUICK = settings(max_examples=50, deadline=None)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_parts_by_hand():
    """Rows 0 and 3 are client 0's, row 2 is client 2's, client 1 has none, row 1 is nobody's."""
    parts = Parts.of_owner(np.array([0, -1, 2, 0]), 3)
    assert parts.index.tolist() == [0, 3, 2]
    assert parts.start.tolist() == [0, 2, 2, 3]
    assert parts.sizes.tolist() == [2, 0, 1]
    assert [parts.of(i).tolist() for i in range(3)] == [[0, 3], [], [2]]
    assert len(parts) == 3


def test_split_by_hand_at_random():
    """A fifth of 10 is 2, of 3 is 0.6 -> 1, of 2 is 0.4 -> 0, raised to 1."""
    owner = np.repeat([0, 1, 2], [10, 3, 2])
    test = held_out(owner, 0.2, rng())
    assert np.bincount(owner, test).tolist() == [2, 1, 1]


def test_split_by_hand_in_time_within_groups():
    """One client, groups a = rows 0-3 and b = rows 4-7, a quarter: the last row of each, 3 and 7."""
    test = held_out(np.zeros(8, int), 0.25, rng(), group=np.repeat([0, 1], 4), ordered=True)
    assert np.flatnonzero(test).tolist() == [3, 7]


def test_split_of_a_client_whose_groups_are_single_rows():
    """Three rows of three groups: none can be halved, so the last row is the test part."""
    test = held_out(np.zeros(3, int), 0.25, rng(), group=np.arange(3), ordered=True)
    assert np.flatnonzero(test).tolist() == [2]


def test_split_leaves_nobodys_rows_out():
    assert not held_out(np.array([-1, 0, 0, 0, -1]), 0.5, rng())[[0, 4]].any()


@QUICK
@given(
    owner=st.lists(st.integers(-1, 5), min_size=12, max_size=120),
    fraction=st.floats(0.05, 0.95),
    seed=st.integers(0, 99),
    ordered=st.booleans(),
)
def test_everyone_has_train_and_test_near_the_fraction(owner, fraction, seed, ordered):
    """Within half a sample of the fraction, where that leaves one for each part."""
    rows = np.concatenate([np.repeat(np.arange(6), 2), owner]).astype(np.int64)
    test = held_out(rows, fraction, rng(seed), ordered=ordered)
    size = np.bincount(rows[rows >= 0], minlength=6)
    held = np.bincount(rows[rows >= 0], test[rows >= 0], minlength=6)
    assert ((held >= 1) & (held < size)).all()
    assert (np.abs(held - np.clip(fraction * size, 1, size - 1)) <= 0.5 + 1e-9).all()
    np.testing.assert_array_equal(test, held_out(rows, fraction, rng(seed), ordered=ordered))


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_split_refuses_fractions_that_leave_a_part_empty(fraction):
    with pytest.raises(DataError, match="the test fraction must be more than 0 and less than 1"):
        held_out(np.zeros(4, int), fraction, rng())


def test_split_refuses_single_samples():
    with pytest.raises(
        DataError, match=r"1 clients have fewer than 2 samples.*client number 1 has 1.*min_samples=2"
    ):
        held_out(np.array([0, 0, 1]), 0.5, rng())


def federated(**changes):
    parts = Parts(np.array([0, 1]), np.array([0, 1, 2]))
    fields = {
        "name": "d", "x": np.zeros((4, 2), np.float32), "y": np.array([0, 1, 0, 1]), "classes": 2,
        "train": parts, "test": Parts(np.array([2, 3]), np.array([0, 1, 2])), "clients": ("a", "b"), "sources": {},
    }  # fmt: skip
    return Federated(**(fields | changes))


def test_a_sound_data_set_is_taken():
    assert len(federated()) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"y": np.zeros(3, int)}, "d: 4 samples but 3 labels"),
        ({"y": np.array([0, 1, 2, 0])}, "d: labels 0..2; they must be in 0..1"),
        ({"x": np.zeros((4, 2))}, "features of type float64"),
        ({"x": np.zeros((2, 4), np.float32).T}, "must be contiguous"),
        ({"clients": ("a",)}, "2 train parts for 1 clients"),
        ({"test": Parts(np.array([2]), np.array([0, 1, 1]))}, "client 'b' has no test sample"),
    ],
)
def test_an_unsound_one_is_refused(changes, said):
    with pytest.raises(DataError, match=said):
        federated(**changes)
