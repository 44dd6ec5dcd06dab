"""Streaming sums: in place, checked, and by hand."""

from __future__ import annotations

import pytest
import torch

from eiffel.train.streams import accumulate, add, difference


def test_two_updates_by_hand():
    """(1, 2) * 0.5 + (4, 0) * 0.25 = (1.5, 1); |(1, 2)|^2 = 5."""
    total = torch.zeros(2)
    assert accumulate(total, torch.tensor([1.0, 2.0]), 0.5) == 5.0
    assert accumulate(total, torch.tensor([4.0, 0.0]), 0.25) == 16.0
    assert total.tolist() == [1.5, 1.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", [0, 5_000, 2_999_999])
def test_one_bad_number_anywhere_leaves_the_sum_untouched(bad, where):
    """Also where a sum of entries would hide it: the check is on squares."""
    total, update = torch.ones(3_000_000), torch.ones(3_000_000)
    update[where] = bad
    sumsq = accumulate(total, update, 1.0)
    assert not torch.isfinite(torch.tensor(sumsq))
    assert torch.equal(total, torch.ones(3_000_000))


def test_other_shapes_and_types_are_refused():
    """Torch would broadcast a scalar, and promote float64 slowly."""
    with pytest.raises(ValueError, match="shape"):
        accumulate(torch.zeros(3), torch.zeros(1), 1.0)
    with pytest.raises(ValueError, match="float64"):
        accumulate(torch.zeros(3), torch.zeros(3, dtype=torch.float64), 1.0)


def test_difference_is_start_minus_end_in_place():
    """(3, 1) - (1, 2) = (2, -1), squared 5."""
    end = torch.tensor([1.0, 2.0])
    assert float(difference(torch.tensor([3.0, 1.0]), end)) == 5.0
    assert end.tolist() == [2.0, -1.0]


def test_what_sums_held_before_a_fresh_block_is_gone():
    """Two rows with the weights 2 and 0; then, with an update that is not finite, zeros."""
    sums, update = torch.full((2, 2), float("nan")), torch.tensor([1.0, 3.0])
    add(sums, (2.0, 0.0), update, torch.dot(update, update), fresh=True)
    assert sums.tolist() == [[2.0, 6.0], [0.0, 0.0]]
    add(sums, (1.0, 1.0), update, torch.dot(update, update))
    assert sums.tolist() == [[3.0, 9.0], [1.0, 3.0]]
    add(sums, (2.0, 1.0), update, torch.tensor(float("inf")), fresh=True)
    assert sums.tolist() == [[0.0, 0.0], [0.0, 0.0]]
