"""Which samples a device uses when."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eiffel.train.batches import Draws, probed


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 20))
def test_samples_are_used_equally_often_give_or_take_one(samples, batch, steps):
    """Epoch after epoch a permutation: after any number of steps no sample leads another by more than one
    use, except within the two epochs that a batch straddles."""
    picks = Draws().batches(1, 2, 3, samples, batch, steps)
    assert picks.shape == (steps, min(batch, samples))
    uses = np.bincount(picks.reshape(-1), minlength=samples)
    assert uses.max() - uses.min() <= 1


def test_five_samples_in_batches_of_two():
    """Five steps of two are two epochs: the first five picks are a permutation, and so are the next five."""
    picks = Draws().batches(0, 0, 0, 5, 2, 5).reshape(-1)
    assert sorted(picks[:5]) == sorted(picks[5:]) == [0, 1, 2, 3, 4]


def test_batches_are_a_function_of_seed_round_and_device_alone():
    """Another object, after other draws, draws the same; another seed, round or device, something else."""
    used = Draws()
    used.probe(9, 9, 9, 100, 10)
    mine = used.batches(1, 2, 3, 50, 10, 5)
    assert np.array_equal(mine, Draws().batches(1, 2, 3, 50, 10, 5))
    for other in ((0, 2, 3), (1, 0, 3), (1, 2, 0)):
        assert not np.array_equal(mine, used.batches(*other, 50, 10, 5))
    assert np.array_equal(mine[:2], used.batches(1, 2, 3, 50, 10, 2))


@pytest.mark.parametrize(("probe", "expected"), [(0, [0, 0, 0]), (8, [3, 8, 8]), (-1, [3, 8, 50])])
def test_a_probe_costs_as_many_samples_as_there_are_up_to_what_was_asked(probe, expected):
    """Devices of 3, 8 and 50 samples; what is charged is what is drawn."""
    sizes = np.array([3, 8, 50])
    assert probed(probe, sizes).tolist() == expected
    if probe:
        drawn = [Draws().probe(0, 0, d, int(n), probe) for d, n in enumerate(sizes)]
        assert [p.size for p in drawn] == expected
        assert all(np.unique(p).size == p.size for p in drawn)
