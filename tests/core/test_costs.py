"""Costs by hand: a megabyte at 8 Mbit/s takes a second, and so on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from eiffel.core.costs import (
    drain,
    model_bytes,
    predict,
    probe_steps,
    progress,
    radio_joules,
    radio_seconds,
    with_probe,
)
from eiffel.core.costs import steps_done as done
from eiffel.core.model import Local, Snapshot

quick = settings(max_examples=50, deadline=None)


def column(*phases: float) -> np.ndarray:
    """One device's four phases."""
    return np.array(phases, float)[:, None]


def test_a_model_is_four_bytes_a_parameter_and_the_update_brings_four_scalars():
    assert model_bytes(1000) == (4000, 4016)


def test_a_megabyte_at_8_mbit_takes_a_second_and_its_joules():
    assert_allclose(radio_seconds(1_000_000, np.array([8.0, 80.0])), [1.0, 0.1])
    assert_allclose(radio_joules(2_000_000, np.array([1.5])), [3.0])


@pytest.mark.parametrize(
    ("probe", "steps"),
    [
        (0, [0, 0]),  # no probe, no cost
        (60, [2, 1]),  # 60 samples are 6 batches, forward only: 6/3; the second device has 30 samples
        (-1, [4, 1]),  # all 120, all 30
    ],
)
def test_a_probe_is_a_third_of_the_steps_its_samples_would_make(probe, steps):
    assert_allclose(probe_steps(Local(batch=10, probe=probe), np.array([120, 30])), steps)


def snapshot(step_s, step_j, exchange_s, exchange_j, examples):
    few = [np.array(values, np.float32) for values in (step_s, step_j, exchange_s, exchange_j)]
    empty = np.full(len(examples), np.inf, np.float32)
    codes = np.zeros(len(examples), np.uint8)
    return Snapshot(1, 0.0, codes, np.array(examples, np.int32), *few, empty, empty, 4, 20)


def test_predict_adds_steps_probe_and_exchange():
    """Device 0: 5 steps + 3 for the probe (90 samples / 30) at 2 s and 1 J, and 10 s, 4 J of exchange."""
    one = snapshot([2], [1], [10], [4], [90])
    seconds, joules = with_probe(one, Local(batch=10, probe=-1), *predict(one, 5))
    assert seconds.tolist() == [26.0]
    assert joules.tolist() == [12.0]


def test_progress_goes_through_the_phases_in_order():
    """Phases of 1, 2, 4 and 1 s: after 5 s the first two are done and half of the third."""
    assert progress(column(1, 2, 4, 1), np.array([5.0])).ravel().tolist() == [1, 1, 0.5, 0]
    assert progress(column(1, 2, 4, 1), np.array([8.0])).ravel().tolist() == [1, 1, 1, 1]
    assert progress(column(0, 0, 0, 0), np.array([0.0])).ravel().tolist() == [1, 1, 1, 1]


def test_a_battery_runs_out_where_the_joules_say():
    """5 J. Download 1 J in 2 s leaves 4; work draws 8 J in 16 s, half a joule a second: empty 8 s later."""
    level, flat_at = drain(np.array([5.0]), np.array([9.0]), 0.0, column(0, 2, 16, 1), column(0, 1, 8, 1))
    assert (level.tolist(), flat_at.tolist()) == ([0.0], [10.0])


def test_a_charger_carries_what_it_can_and_never_overfills():
    """Full at 9 J with 1 W: the download nets -1 J and stays at 9; work takes 8 - 4 = 4 J; the upload nets 0."""
    level, flat_at = drain(np.array([9.0]), np.array([9.0]), 1.0, column(0, 2, 4, 1), column(0, 1, 8, 1))
    assert (level.tolist(), flat_at.tolist()) == ([5.0], [np.inf])


def test_a_battery_that_ends_at_zero_has_sufficed_and_mains_power_never_ends():
    level, flat_at = drain(
        np.array([10.0, np.inf]), np.array([10.0, np.inf]), 0.0, np.ones((4, 2)), np.full((4, 2), 2.5)
    )
    assert level.tolist() == [0.0, np.inf]
    assert flat_at.tolist() == [np.inf, np.inf]


def test_steps_done_count_after_the_probe():
    """Probe 2 + 8 steps: at 45 % of the work 4.5 of 10 are done, 2 of them the probe: 2 whole steps."""
    assert done(np.array([0.45, 0.1, 1.0]), np.array([8, 8, 8]), np.array([2.0, 2.0, 2.0])).tolist() == [
        2,
        0,
        8,
    ]


phases = st.lists(st.floats(0, 1e4), min_size=4, max_size=4).map(lambda values: column(*values))


@quick
@given(phases, st.floats(0, 5e4))
def test_time_spent_in_phases_is_time_elapsed(seconds, elapsed):
    share = progress(seconds, np.array([elapsed]))
    assert ((share >= 0) & (share <= 1)).all()
    assert_allclose((share * seconds).sum(), min(elapsed, seconds.sum()), rtol=1e-9, atol=1e-9)


@quick
@given(st.floats(0, 100), st.floats(0, 20), phases, phases)
def test_batteries_stay_between_empty_and_full_and_flat_means_inside_the_task(level, watts, seconds, joules):
    left, flat_at = drain(np.array([level]), np.array([100.0]), watts, seconds, joules)
    assert 0 <= left[0] <= 100
    assert np.isinf(flat_at[0]) or 0 <= flat_at[0] <= seconds.sum() * (1 + 1e-12)
    if watts == 0:
        assert np.isfinite(flat_at[0]) == (joules.cumsum() > level * (1 + 1e-9)).any() or np.isclose(
            joules.sum(), level
        )
