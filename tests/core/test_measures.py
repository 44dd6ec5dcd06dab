"""Measures on examples small enough to check by hand."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eiffel.core import measures as m
from eiffel.core.model import Scores

FRACTIONS = st.lists(st.floats(0, 1), min_size=1, max_size=40)
quick = settings(max_examples=50, deadline=None)


def scores(accuracy, loss, examples):
    return Scores(np.array(accuracy), np.array(loss), np.array(examples))


def test_variance_is_of_the_population_and_scaled():
    """Mean .7; squared distances .01, .01: variance .01, times 1e4 = 100 (a sample variance would be 200)."""
    assert m.variance([0.6, 0.8]) == pytest.approx(100)


@pytest.mark.parametrize(("devices", "counted"), [(5, 1), (10, 1), (19, 1), (23, 2), (30, 3), (100, 10)])
def test_worst_and_best_tenth_round_down_but_never_to_nobody(devices, counted):
    """Of 0, 1, .. N-1 the c lowest average (c-1)/2, the c highest N-1-(c-1)/2."""
    x = np.random.default_rng(0).permutation(devices).astype(float)
    assert m.worst(x) == (counted - 1) / 2
    assert m.best(x) == devices - 1 - (counted - 1) / 2


def test_a_share_that_floats_cannot_hold_is_still_that_many_devices():
    """.29 x 100 is 28.999.. in floating point; it means 29 devices: 0..28 average 14."""
    assert m.worst(np.arange(100.0), 0.29) == 14


@pytest.mark.parametrize("share", [0, -0.1, 1.1])
def test_an_impossible_share_is_refused(share):
    with pytest.raises(ValueError, match="share"):
        m.worst([0.5], share)


def test_gini_by_hand():
    """Sorted 1, 3: (2-2-1) 1 + (4-2-1) 3 = 2, over N sum = 8: .25. One has all of three: 2/3."""
    assert m.gini([3, 1]) == pytest.approx(0.25)
    assert m.gini([0, 0, 5]) == pytest.approx(2 / 3)


def test_jain_by_hand():
    """(1+3)^2 / (2 (1+9)) = 16/20. One of four has all: 1/4. All equal, or all nothing: 1."""
    assert m.jain([1, 3]) == pytest.approx(0.8)
    assert m.jain([7, 0, 0, 0]) == pytest.approx(0.25)
    assert m.jain([2, 2]) == m.jain([0, 0]) == 1


def test_signal_to_noise_and_gap():
    """Mean .7 over spread .1 is 7; the gap is .2. Devices that are all alike have no noise."""
    assert m.snr([0.6, 0.8]) == pytest.approx(7)
    assert m.gap([0.6, 0.8]) == pytest.approx(0.2)
    assert m.snr([0.7, 0.7, 0.7]) == math.inf
    assert math.isnan(m.snr([0, 0]))


def test_entropy_and_divergence_add_up_to_log_n():
    """Shares 1/4 and 3/4: entropy .5623 nats; log 2 = .6931; the difference is the divergence, .1308."""
    assert m.entropy([1, 3]) == pytest.approx(0.562335, abs=1e-6)
    assert m.kl_uniform([1, 3]) == pytest.approx(0.130812, abs=1e-6)
    assert m.kl_uniform([4, 4, 4]) == pytest.approx(0)
    assert m.entropy([0, 0]) == pytest.approx(math.log(2))


@pytest.mark.parametrize("measure", [m.gini, m.jain, m.entropy, m.kl_uniform])
def test_shares_of_negative_values_are_refused(measure):
    with pytest.raises(ValueError, match="0 or more"):
        measure([1, -1])


def test_devices_without_a_value_are_left_out_and_counted():
    """Three devices, one undefined: the mean of .4 and .8 is .6 over 2 clients; weights 1 and 3 give .7."""
    figures = m.fairness(scores([0.4, np.nan, 0.8], [1.0, np.nan, 3.0], [10, 20, 30]))
    assert figures["clients"] == 2
    assert figures["accuracy"] == pytest.approx(0.6)
    assert figures["accuracy_weighted"] == pytest.approx((0.4 * 10 + 0.8 * 30) / 40)
    assert figures["loss"] == pytest.approx(2)
    assert figures["loss_variance"] == pytest.approx(1)
    assert figures["variance"] == pytest.approx(400)


def test_a_measure_of_nothing_is_nan():
    figures = m.fairness(scores([np.nan], [np.nan], [1]))
    assert figures.pop("clients") == 0
    assert all(math.isnan(value) for value in figures.values())
    for measure in (m.entropy, m.kl_uniform):
        assert math.isnan(measure([]))


def test_the_target_is_met_by_a_mean_of_three_evaluations():
    """Means of three: -, -, .5, .7, .8. A lucky .9 at first does not count; .7 is reached at the fourth."""
    accuracy = [0.9, 0.3, 0.3, 1.5, 0.6]
    assert m.moving_mean(accuracy)[2:] == pytest.approx([0.5, 0.7, 0.8])
    cost = m.to_target(accuracy, 0.7 - 1e-9, {"bytes": [1, 2, 3, 4, 5], "joules": [10, 20, 30, 40, 50]})
    assert cost == {"accuracy": 0.7 - 1e-9, "bytes": 4, "joules": 40}
    assert m.to_target(accuracy, 0.81, {"bytes": [1, 2, 3, 4, 5]}) is None
    assert m.reached([1.0, 1.0], 0.5) is None, "two evaluations are too few to tell"


def test_improvement_reads_as_less_is_better():
    """43 where the other has 100 is 57 % better; where the other has nothing there is nothing to better."""
    assert m.improvement(43, 100) == pytest.approx(0.57)
    assert math.isnan(m.improvement(1, 0))


def test_the_ratio_of_means_and_its_paired_interval():
    """Means 6 and 2: ratio 3. Both figures of every seed stand 3:1, so pairing leaves no doubt at all."""
    assert m.ratio_interval([3, 6, 9], [1, 2, 3]) == pytest.approx((3, 3, 3))
    ratio, low, high = m.ratio_interval([4, 6, 8], [3, 1, 2])
    assert ratio == pytest.approx(3)
    assert 4 / 3 <= low < 3 < high <= 6, "no seed lies outside 4/3 .. 6, so no resampling does"
    assert (ratio, low, high) == m.ratio_interval([4, 6, 8], [3, 1, 2]), "the same seed, the same answer"


def test_the_ratio_knows_what_it_does_not_know():
    """One seed has no interval; a seed that never arrived has no ratio; unequal sides cannot be paired."""
    ratio, low, high = m.ratio_interval([4], [2])
    assert ratio == 2
    assert math.isnan(low)
    assert math.isnan(high)
    assert all(math.isnan(x) for x in m.ratio_interval([4, np.nan], [2, 2]))
    assert all(math.isnan(x) for x in m.ratio_interval([4, np.inf], [2, 2]))
    assert all(math.isnan(x) for x in m.ratio_interval([], []))
    with pytest.raises(ValueError, match="both sides"):
        m.ratio_interval([1, 2], [1])


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    """20 seeds of two costs whose true ratio is 2; of 200 such studies 85 % or more hold it."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        _, low, high = m.ratio_interval(rng.normal(20, 3, 20), rng.normal(10, 2, 20), draws=400)
        held += low <= 2 <= high
    assert 170 <= held <= 200


def test_final_figures_are_means_of_the_last_evaluations():
    """Of 1, 2, 3 the last two average 2.5; a figure that was not known then is left out of its mean."""
    rows = [{"a": 1.0, "b": 1.0}, {"a": 2.0, "b": None}, {"a": 3.0, "b": 5.0}]
    assert m.last_mean(rows, 2) == {"a": 2.5, "b": 5.0}
    assert m.last_mean([]) == {}


@quick
@given(FRACTIONS)
def test_order_of_devices_changes_nothing(x):
    ones = np.ones(len(x))
    ahead, back = m.fairness(scores(x, ones, ones)), m.fairness(scores(x[::-1], ones, ones))
    for name, value in ahead.items():
        assert back[name] == pytest.approx(value, nan_ok=True, rel=1e-6), name


@quick
@given(FRACTIONS)
def test_measures_stay_in_their_range_and_order(x):
    n = len(x)
    assert 0 <= m.variance(x) <= 2500 + 1e-6
    assert m.worst(x) <= m.mean(x) + 1e-12
    assert m.mean(x) <= m.best(x) + 1e-12
    assert min(x) <= m.percentile(x, 10) <= m.percentile(x, 20) <= max(x)
    assert -1e-9 <= m.gini(x) <= 1 - 1 / n + 1e-9
    assert 1 / n - 1e-9 <= m.jain(x) <= 1 + 1e-9
    assert -1e-9 <= m.kl_uniform(x) <= math.log(n) + 1e-9
    assert m.std(x) ** 2 * 1e4 == pytest.approx(m.variance(x))


@quick
@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=20), st.floats(0.1, 10))
def test_shares_do_not_depend_on_the_unit(x, scale):
    """Devices that differ by more than rounding: mean over spread is infinite where they do not."""
    assume(np.std(x) > 1e-6)
    y = [v * scale for v in x]
    for measure in (m.gini, m.jain, m.entropy, m.snr):
        assert measure(y) == pytest.approx(measure(x), rel=1e-6)
