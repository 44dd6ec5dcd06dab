"""Eiffel's pace: the signal by brute force, the rule step by step, and its bounds."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import outcomes, plan, snapshot

from eiffel.pace import EiffelPace, EiffelPaceState, Fixed, breakeven, signal_to_noise


def feed(
    rule: EiffelPace, state: EiffelPaceState, updates: np.ndarray, loss: float = 1.0, cap: float = 1000.0
):
    """One round with these updates, on devices whose exchange costs `cap` steps."""
    k = len(updates)
    world = snapshot(k, exchange_s=np.full(k, cap, np.float32), exchange_j=np.full(k, cap, np.float32))
    out = outcomes(1, range(k), [loss] * k, updates, np.full((1, k), 1 / k), first_loss=[loss] * k)
    return rule.learn(state, world, plan(range(k), k), out, np.asarray(updates, float).sum(0))


AGREE = np.array([[1.0, 0], [1.0, 0.1], [1.0, -0.1]])
ORTHOGONAL = np.array([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]])
PARTLY = np.array([[1.0, 0], [1.0, 1.0]])  # A = (5 - 3)/(1 * 3) = 2/3, S = 2 (2/3)/(1/3) = 4
OPPOSED = np.array([[1.0, 0], [-1.0, 0]])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 5))
def test_signal_is_the_mean_pairwise_inner_product_over_the_mean_square(seed: int, k: int, p: int) -> None:
    """A = mean over ordered pairs of <u_i, u_j> / mean of |u_i|^2, computed here with two loops."""
    u = np.random.default_rng(seed).normal(size=(k, p))
    pairs = [u[i] @ u[j] for i in range(k) for j in range(k) if i != j]
    a = np.mean(pairs) / np.mean((u**2).sum(1))
    expected = k * a / max(1 - a, 1e-9)
    total = u.sum(0)
    assert math.isclose(
        signal_to_noise(float(total @ total), (u**2).sum(1)), expected, rel_tol=1e-5, abs_tol=1e-9
    )


def test_signal_does_not_depend_on_the_learning_rate() -> None:
    u = np.random.default_rng(0).normal(size=(5, 4))
    one = signal_to_noise(float(u.sum(0) @ u.sum(0)), (u**2).sum(1))
    v = 0.01 * u
    assert math.isclose(one, signal_to_noise(float(v.sum(0) @ v.sum(0)), (v**2).sum(1)), rel_tol=1e-9)


def test_opposed_updates_have_negative_signal_and_no_alignment() -> None:
    """Two opposed unit updates: A = (0 - 2)/(1*2) = -1, signal = 2*(-1)/2 = -1; alpha stays 0."""
    rule = EiffelPace()
    state = feed(rule, rule.init(), OPPOSED)
    assert state.signal == pytest.approx(-1.0)
    assert rule.tempo(state).alignment == 0.0


def test_agreement_raises_tau_by_the_signal_up_to_the_break_even() -> None:
    """S = 4: 4 (1 + 4) = 20, then 20 (1 + 4) = 100, held at the 70 steps that one exchange costs here."""
    rule = EiffelPace()
    state = rule.init()
    taus = []
    for _ in range(3):
        state = feed(rule, state, PARTLY, cap=70.0)
        taus.append(state.steps)
    assert taus == [20, 70, 70]
    assert state.grown


def test_a_signal_as_large_as_the_noise_does_not_raise_tau_and_one_just_above_doubles_it() -> None:
    for signal, tau in [(1.0, 4), (1.0001, 8)]:
        rule = EiffelPace(smoothing=1.0)  # S stays what it was
        state = feed(rule, replace(rule.init(), signal=signal), PARTLY)
        assert state.steps == tau


@pytest.mark.parametrize(("traffic", "longer"), [(0.0, 1.0), (0.25, 2.0), (1 / 3, 3.0)])
def test_the_weight_of_traffic_moves_the_best_number_of_steps(traffic: float, longer: float) -> None:
    """A search over tau finds the peak of sqrt(tau)/((tau + 20)^(1 - traffic)) where the rule puts its cap."""
    tau = np.arange(1, 200)
    best = tau[np.argmax(0.5 * np.log(tau) - (1 - traffic) * np.log(tau + 20.0))]
    rule = EiffelPace(traffic=traffic)
    state = rule.init()
    for _ in range(4):
        state = feed(rule, state, AGREE, cap=20.0)
    assert abs(state.steps - best) <= 1
    assert abs(best - 20 * longer) <= 1


@pytest.mark.parametrize("traffic", [-0.1, 0.5, 1.0])
def test_a_weight_of_traffic_without_a_best_number_of_steps_is_refused(traffic: float) -> None:
    with pytest.raises(ValueError, match="traffic"):
        EiffelPace(traffic=traffic)


def test_conflict_halves_tau_every_three_rounds_until_one() -> None:
    """S = 0 < 1/2: 4 -> 2 at once (three rounds count as passed), then 1 three rounds later."""
    rule = EiffelPace()
    state = rule.init()
    taus = []
    for _ in range(5):
        state = feed(rule, state, ORTHOGONAL)
        taus.append(state.steps)
    assert taus == [2, 2, 2, 1, 1]
    assert not state.grown


@pytest.mark.parametrize(("rounds", "tau"), [(1, 2), (5, 1)])
def test_a_tau_that_conflict_brought_down_does_not_grow_again(rounds: int, tau: int) -> None:
    """4 -> 2 (-> 1) by conflict; agreement for the rest of the run does not raise it."""
    rule = EiffelPace()
    state = rule.init()
    for _ in range(rounds):
        state = feed(rule, state, ORTHOGONAL)
    for _ in range(10):
        state = feed(rule, state, AGREE)
    assert state.signal > 1
    assert (state.steps, state.frozen, state.grown) == (tau, True, False)


def test_a_tau_that_has_grown_is_not_shrunk_by_a_fallen_signal() -> None:
    rule = EiffelPace(window=100)
    state = feed(rule, rule.init(), AGREE)
    for _ in range(40):
        state = feed(rule, state, ORTHOGONAL, cap=64.0)
    assert state.signal < 0.5
    assert state.steps >= 64


def test_a_plateau_halves_tau_and_freezes_it() -> None:
    """window 2: losses 1, 1 | .99, .99: .99 > .98 * 1 is a plateau at round 4; 32 -> 16, then never more."""
    rule = EiffelPace(window=2)
    state = replace(rule.init(), steps=32, grown=True, frozen=False)
    state = replace(state, losses=np.full(4, np.nan))
    for loss in (1.0, 1.0, 0.99):
        state = feed(rule, state, OPPOSED, loss)
    assert state.steps == 32
    state = feed(rule, state, AGREE, 0.99)
    assert (state.steps, state.frozen) == (16, True)
    state = feed(rule, state, AGREE, 0.5)
    assert state.steps == 16


def test_progress_is_no_plateau() -> None:
    """Losses 1, 1 | .9, .9: .9 < .98, so agreement may still raise tau."""
    rule = EiffelPace(window=2)
    state = rule.init()
    for loss in (1.0, 1.0, 0.9, 0.9):
        state = feed(rule, state, AGREE, loss)
    assert not state.frozen


@pytest.mark.parametrize(("off", "tau"), [({"grow": False}, 4), ({"limit": 6}, 6), ({"high": 1e9}, 4)])
def test_parts_can_be_switched_off(off: dict, tau: int) -> None:
    rule = EiffelPace(**off)
    state = rule.init()
    for _ in range(5):
        state = feed(rule, state, AGREE)
    assert state.steps == tau


def test_break_even_is_half_by_time_half_by_energy() -> None:
    """Exchange 40 s against 2 s a step: 20; 10 J against 1 J a step: 10; together (20 + 10)/2 = 15."""
    world = snapshot(
        2,
        step_s=np.array([1, 3], np.float32),
        step_j=np.array([1, 1], np.float32),
        exchange_s=np.array([30, 50], np.float32),
        exchange_j=np.array([10, 10], np.float32),
    )
    assert breakeven(world, plan([0, 1], 2)) == pytest.approx(15.0)


def test_one_device_or_none_teaches_no_signal() -> None:
    rule = EiffelPace()
    alone = feed(rule, rule.init(), np.array([[1.0, 2.0]]))
    assert math.isnan(alone.signal)
    nobody = rule.learn(rule.init(), snapshot(3), plan([], 3), outcomes(1, [], []), None)
    assert nobody.round == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 60))
def test_tau_stays_between_one_and_the_cap(seed: int, cap: int) -> None:
    rng = np.random.default_rng(seed)
    rule = EiffelPace(window=3)
    state = rule.init()
    for _ in range(30):
        common = rng.normal(size=4) * rng.choice([0, 3])
        state = feed(rule, state, rng.normal(size=(4, 4)) + common, float(rng.uniform(0.5, 1)), float(cap))
        assert 1 <= state.steps <= max(1, cap)


def test_fixed_is_fixed_and_refuses_less_than_one() -> None:
    assert Fixed(7).tempo(None).steps == 7
    with pytest.raises(ValueError, match="at least 1 local step"):
        Fixed(0)
