"""Wang's tau against its bound minimised by scipy; AdaComm and FedBalancer's deadline by hand."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from support import outcomes, plan, snapshot

from eiffel.core.model import Local, Outcomes, Slopes, generator
from eiffel.method import Cohort, Method
from eiffel.pace import PACES, AdaComm, Balancer, Wang
from eiffel.pace.balancer import peak
from eiffel.pace.wang import WangState
from eiffel.select import Candidates, Tempo


def bound(tau: float, s: WangState, phi: float, eta: float, c: float, b: float, horizon: float) -> float:
    """G(tau) written out from the paper, for one tau."""
    h = max(0.0, s.delta / s.beta * ((eta * s.beta + 1) ** tau - 1) - eta * s.delta * tau)
    budget = horizon * (c + b)
    t = (budget - c - b) * tau / (c * tau + b)
    root = math.sqrt(1 + 4 * t**2 * phi * s.rho * eta * h / tau)
    return (1 + root) / (2 * t * eta * phi) + s.rho * h


def sloped(gradient: Any, beta: Any, rho: Any, examples: Any) -> Outcomes:
    """A cohort that reports these gradients, betas and rhos."""
    gradient = np.asarray(gradient, np.float32)
    out = outcomes(1, range(len(gradient)), np.ones(len(gradient)), examples=examples)
    slopes = Slopes(gradient, np.asarray(beta, float), np.asarray(rho, float))
    return replace(out, trained=replace(out.trained, slopes=slopes))


POSITIVE = st.floats(0.05, 20)


@settings(max_examples=40, deadline=None)
@given(
    POSITIVE,
    POSITIVE,
    POSITIVE,
    st.floats(1e-4, 0.1),
    st.floats(0.01, 0.3),
    st.floats(0.1, 30),
    st.integers(1, 10),
)
def test_wangs_tau_is_the_minimum_of_the_bound(
    beta: float, rho: float, delta: float, phi: float, eta: float, exchange: float, tau: int
) -> None:
    """scipy minimises G over the reals in [1, 10 tau]; the best whole number beside that minimum is ours.

    G falls and then rises (it is checked to: no whole number anywhere is better).
    """
    rule, state = Wang(phi=phi), WangState(tau, beta, rho, delta)
    most = min(10 * tau, 100)
    grid = np.arange(1.0, most + 1)
    got = rule.gap(grid, state, eta, 1.0, exchange)
    expected = [bound(t, state, phi, eta, 1.0, exchange, 104.0) for t in grid]
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    solved = optimize.minimize_scalar(
        lambda t: bound(t, state, phi, eta, 1.0, exchange, 104.0), bounds=(1, most), method="bounded"
    )
    near = {math.floor(solved.x), math.ceil(solved.x)}
    best = min(expected[t - 1] for t in near)
    assert got.min() <= best * (1 + 1e-6)


def test_wangs_estimates_by_hand() -> None:
    """Samples 1 and 3, so shares 1/4 and 3/4. beta = 1/4 x 4 + 3/4 x 8 = 7; rho = 1/4 x 2 + 3/4 x 0 = 1/2 (its NaN
    counts as 0). Gradients (4, 0) and (0, 0): mean (1, 0), distances 3 and 1: delta = 3/4 + 3/4 = 3/2.
    """
    out = sloped([[4, 0], [0, 0]], [4.0, 8.0], [2.0, math.nan], [1, 3])
    rule = Wang()
    state = rule.learn(rule.init(), snapshot(2), plan([0, 1], 2, local=Local(lr=0.1)), out, None)
    assert (state.beta, state.rho, state.delta) == pytest.approx((7, 0.5, 1.5))
    best = min(range(1, 11), key=lambda t: bound(t, state, rule.phi, 0.1, 1.0, 1.0, rule.horizon))
    assert state.steps == best
    assert set(rule.notes(state)) == {"tau", "beta", "rho", "delta"}


def test_equal_gradients_make_tau_grow_tenfold_at_most() -> None:
    """delta = 0: nothing drifts, so tau = 10 times the old one, and 100 at most; rare exchanges pay most."""
    out = sloped([[1, 1], [1, 1]], [1.0, 1.0], [1.0, 1.0], [5, 5])
    rule, state, taus = Wang(), Wang().init(), []
    dear = snapshot(2, exchange_s=np.full(2, 1000, np.float32))
    for _ in range(3):
        state = rule.learn(state, dear, plan([0, 1], 2), out, None)
        taus.append(state.steps)
    assert taus == [10, 100, 100]


def test_a_flat_gradient_and_an_overflow_keep_a_tau() -> None:
    """beta = 0 counts as 1e-5; a beta at which (1 + eta beta)^tau overflows leaves tau = 1."""
    flat = sloped([[1, 0], [0, 1]], [0.0, math.nan], [0.0, 0.0], [1, 1])
    steep = sloped([[1, 0], [0, 1]], [1e300, 1e300], [1.0, 1.0], [1, 1])
    rule = Wang()
    state = rule.learn(rule.init(), snapshot(2), plan([0, 1], 2), flat, None)
    assert state.beta == pytest.approx(1e-5)
    assert rule.learn(rule.init(), snapshot(2), plan([0, 1], 2), steep, None).steps == 1
    nobody = outcomes(1, [], [])
    assert rule.learn(state, snapshot(2), plan([], 2), nobody, None) is state


def test_wang_moves_two_models_up_and_asks_for_gradients() -> None:
    method = Method(pace=Wang(), cohort=Cohort(size=2))
    made = method.decide(method.init(np.zeros(1, np.float32), 4), snapshot(4), generator(0, 1))
    assert (made.downlink, made.uplink, made.gradients, made.full) == (1.0, 2.0, True, True)


def test_adacomm_by_hand() -> None:
    """tau_0 = 20, intervals of one round. Losses 4, 1, 1, 4: tau = ceil(sqrt(4/4) 20) = 20, not below 20: 10;
    ceil(sqrt(1/4) 20) = 10, not below 10: 5; 10 again, not below 5: 2; then 1, never 0.
    """
    rule = AdaComm(start=20, interval=1)
    state, taus = rule.init(), []
    for loss in (4.0, 1.0, 1.0, 4.0, 4.0):
        out = outcomes(1, [0], [loss], first_loss=[loss])
        state = rule.learn(state, snapshot(1), plan([0], 1), out, None)
        taus.append(rule.tempo(state).steps)
    assert taus == [10, 5, 2, 1, 1]
    falling = rule.learn(rule.init(), snapshot(1), plan([0], 1), outcomes(1, [0], [4.0]), None)
    fast = replace(falling, steps=20)
    out = outcomes(2, [0], [1.0])
    assert rule.learn(fast, snapshot(1), plan([0], 1), out, None).steps == 10  # ceil(sqrt(1/4) 20) < 20


def test_adacomm_waits_for_an_interval_and_ignores_unknown_losses() -> None:
    rule = AdaComm(start=8, interval=3)
    state = rule.init()
    for round_, loss in enumerate([2.0, math.nan, 0.0], start=1):
        out = outcomes(round_, [0], [loss], first_loss=[loss])
        state = rule.learn(state, snapshot(1), plan([0], 1), out, None)
        assert state.steps == (8 if round_ < 3 else 6)  # mean (2 + 0)/2 = 1: ceil(sqrt(1/2) 8) = 6
    dead = replace(state, first=0.0, total=0.0, seen=1, round=2)
    assert rule.learn(dead, snapshot(1), plan([0], 1), outcomes(4, [0], [0.0]), None).steps == 1


def among(examples: Any, step_s: Any) -> Candidates:
    world = snapshot(
        len(examples), examples=np.asarray(examples, np.int32), step_s=np.asarray(step_s, np.float32)
    )
    return Candidates(world, world.reason == 0, world.step_s, world.step_j, Tempo(1))


def test_the_peak_is_where_most_devices_a_second_are_done() -> None:
    """Devices done after 2, 3, 4, 20 s: 1/2, 2/3, 3/4, 4/20 a second: 4 s. Equal rates: the later."""
    assert peak(np.array([20.0, 3.0, 2.0, 4.0])) == 4.0
    assert peak(np.array([2.0, 4.0])) == 4.0
    assert peak(np.array([])) == math.inf


def test_deadline_and_steps_by_hand() -> None:
    """Batches of 10; 20, 20, 40 samples: epochs of 2, 2, 4 steps of 1, 2, 1 s; one second of exchange. E = 2.

    One epoch takes 3, 5, 5 s: 1/3, 3/5 -> 5 s. Two take 5, 9, 9 s: 1/5, 3/9 -> 9 s. Ratio 1/2: 7 s, which leaves
    6 s: 6 steps, but at most 2 epochs = 4; 3 steps of 2 s; 6 steps.
    """
    rule = Balancer(epochs=2, batch=10)
    state = replace(rule.init(), ratio=0.5)
    steps, deadline = rule.share_out(state, among([20, 20, 40], [1, 2, 1]), np.arange(3))
    assert steps.tolist() == [4, 3, 6]
    assert deadline == pytest.approx(7, rel=2e-3)
    assert deadline > 7


def test_the_ratio_follows_the_loss() -> None:
    """Windows of 2: losses fall from 4 to 2: .95; they stay: back to 1, and not beyond."""
    rule = Balancer(window=2, step=0.05)
    state, ratios = rule.init(), []
    for loss in (4, 4, 2, 2, 2, 2, 2, 2):
        out = outcomes(1, [0], [float(loss)])
        state = rule.learn(state, snapshot(1), plan([0], 1, steps=3), out, None)
        ratios.append(state.ratio)
    assert ratios == pytest.approx([1, 1, 1, 0.95, 0.95, 1, 1, 1])
    assert rule.tempo(state).steps == 3


def test_a_plan_carries_the_deadline_and_the_steps() -> None:
    """Through a Method: the pace's deadline holds where the cohort's is later."""
    method = Method(pace=Balancer(batch=10), cohort=Cohort(size=2, deadline_s=1e6))
    made = method.decide(method.init(np.zeros(1, np.float32), 2), snapshot(2), generator(0, 1))
    assert made.steps.tolist() == [5, 5]
    assert made.deadline_s == pytest.approx(6, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("wang", {"phi": 0.0}),
        ("wang", {"horizon": 1.0}),
        ("adacomm", {"factor": 1.0}),
        ("balancer", {"epochs": 0}),
    ],
)
def test_numbers_without_meaning_are_refused(name: str, bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="pace"):
        PACES[name](**bad)
