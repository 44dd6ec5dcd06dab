"""DivFL: greedy facility location against all subsets, and sketches that keep distances."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import outcomes, snapshot

from eiffel.core.model import generator
from eiffel.select import Candidates, DivFl, Tempo
from eiffel.select.divfl import count_sketch, distances, facilities


def candidates(mask: Any, round_: int = 5) -> Candidates:
    world = snapshot(len(mask), round_=round_)
    return Candidates(world, np.asarray(mask, bool), world.step_s, world.step_j, Tempo(1))


def told(device: Any, updates: Any, steps: Any = None) -> Any:
    out = outcomes(1, device, np.ones(len(device)), updates, steps=steps or [1] * len(device))
    return replace(out, trained=replace(out.trained, full=np.asarray(updates, np.float32)))


def test_one_of_each_group_is_chosen() -> None:
    """Three groups of four like devices: the cohort of three has one of each."""
    groups = np.repeat(np.eye(3) * 9, 4, axis=0)
    rule = DivFl(explore=0)
    state = rule.learn(rule.init(12), told(range(12), groups))
    chosen, score = rule.choose(state, candidates([True] * 12), 3, generator(0, 5))
    assert {int(i) // 4 for i in chosen} == {0, 1, 2}
    assert np.isfinite(score).all()
    gains = score[chosen]
    assert (gains > score[np.setdiff1d(range(12), chosen)].max()).all()


def test_a_missing_representative_is_replaced() -> None:
    """Only one device of the first group is there: it is chosen, and absent devices still count as represented."""
    groups = np.repeat(np.eye(3) * 9, 4, axis=0)
    rule = DivFl(explore=0)
    state = rule.learn(rule.init(12), told(range(12), groups))
    mask = [False] * 12
    for i in (2, 4, 5, 8, 9):
        mask[i] = True
    chosen, _ = rule.choose(state, candidates(mask), 3, generator(0, 5))
    assert 2 in chosen
    assert {int(i) // 4 for i in chosen} == {0, 1, 2}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 3))
def test_greedy_is_near_the_best_subset(seed: int, k: int) -> None:
    """Facility location is submodular: greedy reaches 1 - 1/e of the best gain; and each step is the best one."""
    points = np.random.default_rng(seed).normal(size=(7, 2)).astype(np.float32)
    far = distances(points, points)
    picked, gains = facilities(far, k)
    bound = 2 * far.max() * 7
    best = max(bound - far[:, list(s)].min(1).sum() for s in itertools.combinations(range(7), k))
    assert gains.sum() == pytest.approx(bound - far[:, picked].min(1).sum())
    assert gains.sum() >= (1 - 1 / np.e) * best - 1e-9
    assert (np.diff(gains) <= 1e-9).all()
    assert picked[0] == far.sum(0).argmin()


def test_new_devices_are_met_first() -> None:
    """Nobody known: all are new. Two cohorts known of 20: half of a cohort of 4 is new."""
    rule = DivFl()
    assert rule.choose(rule.init(20), candidates([True] * 20), 4, generator(0, 1))[0].size == 4
    state = rule.learn(rule.init(20), told(range(8), np.eye(8)))
    chosen, _ = rule.choose(state, candidates([True] * 20), 4, generator(0, 2))
    assert (chosen >= 8).sum() == 2


def test_sketches_keep_distances_and_are_a_function_of_the_seed() -> None:
    """Five vectors of 3,000 numbers in 256: distances within 20 % (the standard error is sqrt(1/128) = 9 %)."""
    rows = np.random.default_rng(1).normal(size=(5, 3000)).astype(np.float32)
    small = count_sketch(rows, 256, seed=0)
    pairs = np.triu_indices(5, 1)
    ratio = distances(small, small)[pairs] / distances(rows, rows)[pairs]
    assert (abs(ratio - 1) < 0.2).all()
    np.testing.assert_array_equal(small, count_sketch(rows, 256, seed=0))
    assert not np.array_equal(small, count_sketch(rows, 256, seed=1))


def test_steps_are_divided_out_and_sketches_refreshed() -> None:
    """An update of 4 in 4 steps is a gradient of 1; a device that trains again replaces its own sketch only."""
    rule = DivFl(size=8)
    state = rule.learn(rule.init(5), told([1, 3], [[4.0], [2.0]], steps=[4, 1]))
    np.testing.assert_allclose(np.abs(state.sketch).sum(1), [1, 2])
    state = rule.learn(state, told([0, 3], [[7.0], [5.0]]))
    assert state.device.tolist() == [0, 1, 3]
    np.testing.assert_allclose(np.abs(state.sketch).sum(1), [7, 1, 5])


def test_it_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match="every single update"):
        DivFl().learn(DivFl().init(1), outcomes(1, [0], [1.0]))
