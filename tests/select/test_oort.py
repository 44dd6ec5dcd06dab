"""Oort against a table of twenty devices worked out in plain Python, at its corners, and EAFL on top of it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import outcomes, snapshot

from eiffel.core.model import Outcomes, generator
from eiffel.select import Candidates, Eafl, Oort, Tempo


def heard(round_: int, device: Any, rms: Any, examples: Any, steps: int = 2) -> Outcomes:
    """A cohort whose losses have this root mean square (their mean is told as 0, to see that it is not used)."""
    k = len(device)
    out = outcomes(round_, device, np.zeros(k), examples=examples, steps=np.full(k, steps))
    return replace(
        out, trained=replace(out.trained, reports=replace(out.trained.reports, rms=np.asarray(rms, float)))
    )


def candidates(seconds: Any, examples: Any, round_: int, steps: int = 2, **columns: Any) -> Candidates:
    n = len(seconds)
    world = snapshot(n, round_=round_, examples=np.asarray(examples, np.int32), **columns)
    task = np.asarray(seconds, np.float32)
    return Candidates(world, world.reason == 0, task, np.ones(n, np.float32), Tempo(steps))


# Twenty devices: samples, seconds of a task, root mean square loss, round of the last delivery (0: never).
TABLE = [
    (10, 1.0, 1.0, 1), (20, 2.0, 0.5, 2), (30, 3.0, 2.0, 3), (40, 4.0, 0.1, 4), (5, 5.0, 3.0, 1),
    (60, 6.0, 0.7, 2), (70, 7.0, 0.2, 3), (8, 8.0, 4.0, 4), (90, 9.0, 1.5, 1), (15, 10.0, 1.1, 2),
    (25, 11.0, 0.9, 3), (35, 12.0, 0.3, 4), (45, 13.0, 2.5, 1), (55, 14.0, 0.6, 2), (65, 15.0, 1.9, 3),
    (12, 1.5, 0.0, 0), (22, 2.5, 0.0, 0), (32, 13.5, 0.0, 0), (42, 14.5, 0.0, 0), (52, 0.5, 0.0, 0),
]  # fmt: skip
BATCH, STEPS, ROUND = 10, 4, 6


def by_hand() -> list[float]:
    """Scores as the paper and the authors' code define them, one device at a time.

    |B| = min(n, 4 steps x 10): U = |B| x rms. Durations sorted: 0.5, 1, 1.5, 2, 2.5, 3, 4, ...: the 30th
    percentile is entry int(20 x .3) = 6 (from 0), 4 s. Utilities of the 15 that took part, sorted: their clip is
    entry int(15 x .9) = 13, the second largest.
    """
    u = [min(n, STEPS * BATCH) * rms for n, _, rms, last in TABLE if last]
    clip, low, high = sorted(u)[13], min(u) * 0.999, max(u)
    durations = sorted(t for _, t, _, _ in TABLE)
    prefer = durations[int(20 * 0.30)]
    scores = []
    for n, t, rms, last in TABLE:
        size = min(n, STEPS * BATCH)
        if last:
            score = (min(size * rms, clip) - low) / (high - low) + math.sqrt(0.1 * math.log(ROUND) / last)
        else:
            score = float(size)
        scores.append(score * (prefer / t) ** 2 if t > prefer else score)
    return scores


def table_state(rule: Oort) -> Any:
    state = rule.init(20)
    for round_ in range(1, 5):
        who = [i for i, row in enumerate(TABLE) if row[3] == round_]
        told = heard(round_, who, [TABLE[i][2] for i in who], [TABLE[i][0] for i in who], STEPS)
        state = rule.learn(state, told)
    return state


def test_scores_of_a_table_worked_out_by_hand() -> None:
    rule = Oort(batch=BATCH)
    among = candidates([r[1] for r in TABLE], [r[0] for r in TABLE], ROUND, STEPS)
    _, score = rule.choose(table_state(rule), among, 5, generator(0, ROUND))
    np.testing.assert_allclose(score, by_hand(), rtol=1e-5)


def test_two_figures_of_the_table() -> None:
    """Device 0: U = 10. Utilities: 10, 10, 60, 4, 15, 28, 8, 32, 60, 16.5, 22.5, 10.5, 100, 24, 76.
    Clip 76, low 4 x .999 = 3.996, range 96.004; (10 - 3.996)/96.004 + sqrt(.1 ln 6 / 1) = .06254 + .42329.
    Device 12 (13 s against the preferred 4): (76 - 3.996)/96.004 + .42329 = 1.17331, times (4/13)^2 = .11108.
    """
    scores = by_hand()
    assert scores[0] == pytest.approx(0.48583, abs=2e-5)
    assert scores[12] == pytest.approx(0.11108, abs=2e-5)


def test_selection_is_in_proportion_to_the_scores() -> None:
    """One exploited device of three with scores 1 : 2 : 5 (no exploring, no penalty): frequencies follow.

    Utilities 0, 1, 4 normalise to 0, 1/4, 1; ln 1 = 0 leaves no uncertainty term, so at round 1 the weights are
    1e-12 : 1/4 : 1.
    """
    rule = Oort(explore=0, explore_min=0, percentile=100, clip=1)
    state = rule.learn(rule.init(3), heard(1, [0, 1, 2], [0, 1, 4], [1, 1, 1]))
    among = candidates([1, 1, 1], [1, 1, 1], 1)
    picks = [int(rule.choose(state, among, 1, generator(s, 1))[0][0]) for s in range(2000)]
    share = np.bincount(picks, minlength=3) / 2000
    np.testing.assert_allclose(share, [0, 0.2, 0.8], atol=0.04)


def test_exploration_share_falls_and_unexplored_come_in() -> None:
    """K = 10, round 1: int(10 x .9 x .98) = 8 new ones; at round 200 the floor: 3. 20 of 40 took part."""
    rule = Oort()
    state = rule.learn(rule.init(40), heard(1, range(20), np.ones(20), np.ones(20, int)))
    for round_, new in ((1, 8), (200, 3)):
        chosen, _ = rule.choose(state, candidates(np.ones(40), np.ones(40), round_), 10, generator(0, 1))
        assert (chosen >= 20).sum() == new


def test_exploring_draws_from_the_best_window() -> None:
    """2 x 5 = 10 of 100 unexplored devices may be drawn: those with the most samples."""
    rule, examples = Oort(window=5), np.arange(1, 101)
    among = candidates(np.ones(100), examples, 1)
    seen = {int(i) for s in range(60) for i in rule.choose(rule.init(100), among, 2, generator(s, 1))[0]}
    assert min(seen) >= 90


def test_all_explored_leaves_nobody_stuck() -> None:
    """Public code re-adds its last explored devices for ever; here exploitation takes over the whole cohort."""
    rule, n = Oort(), 30
    state = rule.learn(rule.init(n), heard(1, range(n), np.ones(n), np.ones(n, int)))
    counts = np.zeros(n)
    for s in range(300):
        chosen, _ = rule.choose(state, candidates(np.ones(n), np.ones(n), 50), 10, generator(s, 50))
        assert chosen.size == 10
        counts[chosen] += 1
    assert counts.max() / 300 < 0.5


def test_cut_off_keeps_ten_cohorts_at_least() -> None:
    """Scores 1 and 0 .. 1/2 (round 1: no uncertainty). The second is 1/2, the cut-off .95 x 1/2: six devices are
    above it, but the best 10 x 1 + 1 = 11 stay in; no others.
    """
    rule = Oort(explore=0, explore_min=0, percentile=100, clip=1, cut=0.95)
    rms = np.r_[3.0, np.linspace(1, 2, 99)]
    state = rule.learn(rule.init(100), heard(1, range(100), rms, np.ones(100, int)))
    among = candidates(np.ones(100), np.ones(100), 1)
    seen = {int(i) for s in range(400) for i in rule.choose(state, among, 1, generator(s, 1))[0]}
    assert seen == {0, *range(90, 100)}


def test_the_pacer_by_hand() -> None:
    """step 2, delta 10, percentile 30; one device, explored in round 1, utilities 4, 4, 4, 4, then 40, 40.

    After round 3 (before round 4): the windows hold rounds (0, 1) and (2, 3): exploited utilities 0 + 0 against
    4 + 4: |8 - 0| >= 0: less patience, max(10, 20) = 20. After round 5: 8 against 4 + 4: flat, 30.
    After round 7: 8 against 40 + 40, nine times: 20.
    """
    rule, percentiles = Oort(pacer_step=2, pacer_delta=10), []
    state = rule.init(1)
    for round_, rms in enumerate([4, 4, 4, 4, 4, 40, 40], start=1):
        state = rule.learn(state, heard(round_, [0], [rms], [1]))
        percentiles.append(state.percentile)
    assert percentiles == [30, 30, 20, 20, 30, 30, 20]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 3), st.floats(0, 1))
def test_loss_that_is_not_a_number_has_no_utility(bad: int, clip: float) -> None:
    """NaN and inf count as 0, so that one diverged device does not flatten all others."""
    rule = Oort(clip=clip)
    rms = [1.0, 2.0, 3.0, 4.0]
    rms[bad] = math.inf if bad % 2 else math.nan
    state = rule.learn(rule.init(4), heard(1, range(4), rms, np.ones(4, int)))
    assert np.isfinite(state.reward).all()
    assert rule.choose(state, candidates(np.ones(4), np.ones(4), 2), 4, generator(0, 2))[0].size == 4


def test_without_a_root_mean_square_the_mean_loss_counts() -> None:
    told = outcomes(1, [0, 1], [2.0, 3.0], examples=[5, 7], steps=[1, 1])
    assert Oort().learn(Oort().init(2), told).reward.tolist() == [10.0, 21.0]
    assert Oort(batch=6).learn(Oort().init(2), told).reward.tolist() == [10.0, 18.0]


def test_eafl_by_hand() -> None:
    """f = 1/4. Two devices that took part, worth 1 and 0 after normalisation; after a task of 1 J the first has
    20 of 200 J left (0.1), the second, with 161 J, 160 (0.8): 1/4 + 3/4 x .1 = .325 against 3/4 x .8 = .6.
    On mains power the share is 1.
    """
    rule = Eafl(explore=0, explore_min=0, percentile=100, clip=1)
    state = rule.learn(rule.init(3), heard(1, [0, 1, 2], [4.0, 1.0, 1.0], [1, 1, 1]))
    among = candidates(
        [1, 1, 1],
        [1, 1, 1],
        1,
        battery_j=np.array([21, 161, np.inf], np.float32),
        capacity_j=np.array([200, 200, np.inf], np.float32),
    )
    _, score = rule.choose(state, among, 1, generator(0, 1))
    np.testing.assert_allclose(score, [0.325, 0.6, 0.75], rtol=1e-4)


@pytest.mark.parametrize("bad", [{"explore": 1.5}, {"cut": -0.1}, {"pacer_step": 0}, {"window": 0.5}])
def test_numbers_without_meaning_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="select"):
        Oort(**bad)  # type: ignore[arg-type]
