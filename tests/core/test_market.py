"""Prices: clearing, levels, exponential prices, budgets. Small examples with the arithmetic shown; then oracles."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from eiffel.core import market
from eiffel.core.market import alpha, ascend, clear, exponential, fill, level, purchase, serve

few = settings(max_examples=50, deadline=None)


# ---- ascend


def test_a_price_rises_with_overuse_and_decays_to_zero() -> None:
    assert ascend(1.0, 3.0, 2.0, 0.1) == pytest.approx(1.05)  # 1 + 0.1 (3/2 - 1)
    assert ascend(0.05, 0.0, 2.0, 0.1) == 0.0  # 0.05 - 0.1, not below 0
    assert ascend(0.3, 5.0, math.inf, 0.1) == pytest.approx(0.2)  # no limit: the price decays
    assert ascend(np.array([0.0, 1.0]), np.array([2.0, 1.0]), np.array([1.0, 1.0])) == pytest.approx(
        [0.1, 1.0]
    )
    with pytest.raises(ValueError, match="budget is 0"):
        ascend(1.0, 1.0, 0.0)


# ---- exponential prices


def test_exponential_prices_are_low_when_empty_high_when_full_and_rise() -> None:
    capacity, low, high = np.array([4.0]), np.array([1.0]), np.array([16.0])
    prices = [float(exponential(np.array([u]), capacity, low, high)[0]) for u in range(5)]
    assert prices == pytest.approx([1, 2, 4, 8, 16])  # 16^(u/4) = 2^u
    assert purchase(np.array([1.0]), np.array([2.0]), capacity, low, high) == pytest.approx([2 + 4])
    flat = np.array([3.0])
    assert purchase(np.array([1.0]), np.array([2.0]), capacity, flat, flat) == pytest.approx([6])


def online(
    value: np.ndarray, gang: np.ndarray, capacity: np.ndarray, low: np.ndarray, high: np.ndarray
) -> float:
    """Jobs in the given order buy the class with the largest payoff, if positive and if it fits."""
    used, welfare = np.zeros(len(capacity)), 0.0
    for v, w in zip(value, gang, strict=True):
        payoff = w * v - purchase(used, np.full(len(capacity), float(w)), capacity, low, high)
        payoff = np.where(used + w <= capacity, payoff, -np.inf)
        r = int(payoff.argmax())
        if payoff[r] > 0:
            used[r] += w
            welfare += w * v[r]
    return welfare


def best_welfare(value: np.ndarray, gang: np.ndarray, capacity: np.ndarray) -> float:
    """The optimum by trying everything: every job on every class or nowhere."""
    best = 0.0
    for choice in itertools.product(range(-1, len(capacity)), repeat=len(gang)):
        used = np.zeros(len(capacity))
        for w, r in zip(gang, choice, strict=True):
            if r >= 0:
                used[r] += w
        if (used <= capacity).all():
            best = max(best, sum(w * v[r] for v, w, r in zip(value, gang, choice, strict=True) if r >= 0))
    return best


@pytest.mark.parametrize("top", [1, 2, 3])
def test_welfare_is_at_least_opt_over_two_alpha_in_any_order(top: int) -> None:
    """Brute force on up to 6 jobs, gangs up to `top`; low is lowered until sum_r c_r low_r q_r^(top-1) <= OPT / 2."""
    rng = np.random.default_rng(top)
    for _ in range(40):
        jobs, kinds = int(rng.integers(1, 7)), int(rng.integers(1, 3))
        capacity = rng.integers(top, 6, kinds).astype(float)
        gang = rng.integers(1, top + 1, jobs)
        value = rng.lognormal(0, 1, (jobs, kinds))
        optimum = best_welfare(value, gang, capacity)
        high = value.max(axis=0)
        low = high.copy()
        while (capacity * low * (high / low) ** ((top - 1) / capacity)).sum() > optimum / 2:
            low = low / 1.2
        got = online(value, gang, capacity, low, high)
        assert got >= optimum / (2 * alpha(capacity, low, high, top)) - 1e-9


def test_alpha_tends_to_the_logarithm_for_large_capacity() -> None:
    low, high = np.array([1.0]), np.array([100.0])
    assert alpha(np.array([1e6]), low, high) == pytest.approx(math.log(100), rel=1e-4)
    assert alpha(np.array([5.0]), high, high) == 1.0


# ---- fill and clear


def loop(score: np.ndarray, gang: np.ndarray, room: np.ndarray, order: np.ndarray) -> np.ndarray:
    take, left = np.full(len(gang), -1), room.copy()
    for j in order:
        open_ = np.where((score[j] > -np.inf) & (gang[j] <= left), score[j], -np.inf)
        if open_.max() > -np.inf:
            take[j] = open_.argmax()
            left[take[j]] -= gang[j]
    return take


@few
@given(st.integers(0, 10_000))
def test_fill_equals_the_obvious_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs, kinds = int(rng.integers(0, 30)), int(rng.integers(1, 5))
    score = np.where(
        rng.random((jobs, kinds)) < 0.8, rng.integers(0, 4, (jobs, kinds)).astype(float), -np.inf
    )
    gang, room = rng.choice([1, 2, 4, 8], jobs), rng.integers(0, 20, kinds)
    order = rng.permutation(jobs)
    take, left = fill(score, gang, room, order)
    assert (take == loop(score, gang, room, order)).all()
    used = np.bincount(take[take >= 0], gang[take >= 0], kinds)
    assert (left == room - used).all()


def test_clear_by_hand() -> None:
    """One class of 2 GPUs, three jobs of one GPU worth 5, 4, 1: the two that pay most; the price is the third's 1."""
    got = clear(np.array([[5.0], [4.0], [1.0]]), np.array([1, 1, 1]), np.array([2]))
    assert got.take.tolist() == [0, 0, -1]
    assert got.price == pytest.approx([1.0])
    assert (got.value, got.bound) == pytest.approx((9.0, 9.0))  # 1 x 2 + (5-1) + (4-1) = 9


def lp_value(value: np.ndarray, gang: np.ndarray, capacity: np.ndarray) -> float:
    jobs, kinds = value.shape
    fits = (value > 0) & (gang[:, None] <= capacity)
    rows = np.zeros((jobs + kinds, jobs * kinds))
    for j in range(jobs):
        rows[j, j * kinds : (j + 1) * kinds] = 1
        for r in range(kinds):
            rows[jobs + r, j * kinds + r] = gang[j]
    ends = np.concatenate([np.ones(jobs), capacity])
    upper = [(0, 1 if fits.flat[k] else 0) for k in range(jobs * kinds)]
    return -float(linprog(-(value * gang[:, None]).ravel(), A_ub=rows, b_ub=ends, bounds=upper).fun)


@few
@given(st.integers(0, 10_000))
def test_clear_brackets_the_linear_program(seed: int) -> None:
    """primal <= LP <= dual; the gap is at most a gang per class; a class with a price is full but for a gang."""
    rng = np.random.default_rng(seed)
    jobs, kinds = int(rng.integers(1, 25)), int(rng.integers(1, 4))
    value = rng.uniform(0, 1, (jobs, kinds)) * (rng.random((jobs, kinds)) < 0.8)
    gang, capacity = rng.choice([1, 2, 4], jobs), rng.integers(1, 12, kinds)
    got = clear(value, gang, capacity)
    optimum = lp_value(value, gang, capacity)
    top = (value.max(axis=1) * gang).max()
    assert got.value <= optimum + 1e-9 <= got.bound + 2e-9
    assert got.bound - got.value <= kinds * top + 1e-9
    used = np.bincount(got.take[got.take >= 0], gang[got.take >= 0], kinds)
    assert (used <= capacity).all()
    assert ((got.price <= 1e-12) | (capacity - used < gang.max())).all()  # complementary slackness


def test_relabelling_jobs_and_classes_changes_nothing_and_prices_scale() -> None:
    rng = np.random.default_rng(3)
    value, gang, capacity = rng.uniform(0, 1, (40, 3)), rng.choice([1, 2, 4], 40), np.array([9, 13, 11])
    once = clear(value, gang, capacity)
    jobs, kinds = rng.permutation(40), rng.permutation(3)
    again = clear(value[jobs][:, kinds], gang[jobs], capacity[kinds])
    assert again.bound == pytest.approx(once.bound, rel=1e-3)
    assert clear(7 * value, gang, capacity).price == pytest.approx(7 * once.price)


def test_a_stalled_search_falls_back_to_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    value, gang, capacity = rng.uniform(0, 1, (30, 3)), np.ones(30, int), np.array([3, 4, 5])
    right = clear(value, gang, capacity)
    monkeypatch.setattr(market, "_descend", lambda *_: np.full(3, 50.0))  # absurd prices: nobody buys
    rescued = clear(value, gang, capacity)
    assert right.exact
    assert not rescued.exact
    assert rescued.bound == pytest.approx(right.bound, rel=1e-6)
    assert rescued.bound - rescued.value <= 3 * value.max()  # at most one gang per class is lost to ties


def test_nothing_for_sale() -> None:
    got = clear(np.array([[np.nan, 0.0], [1.0, -1.0]]), np.array([1, 9]), np.array([4, 4]))
    assert got.take.tolist() == [-1, -1]  # worthless, and a gang larger than any class
    assert clear(np.zeros((0, 2)), np.zeros(0, int), np.array([1, 1])).value == 0.0


# ---- level and serve


def least_theta(rate: np.ndarray, gang: np.ndarray, capacity: np.ndarray, a: np.ndarray) -> float:
    """1 / max u s.t. sum_r X x >= a u, sum_r x <= 1, sum_j w x <= C, by linprog over all jobs."""
    jobs, kinds = rate.shape
    rows, ends = np.zeros((2 * jobs + kinds, jobs * kinds + 1)), np.zeros(2 * jobs + kinds)
    for j in range(jobs):
        rows[j, j * kinds : (j + 1) * kinds], rows[j, -1] = -rate[j], a[j]
        rows[jobs + j, j * kinds : (j + 1) * kinds] = 1
        for r in range(kinds):
            rows[2 * jobs + r, j * kinds + r] = gang[j]
    ends[jobs : 2 * jobs], ends[2 * jobs :] = 1, capacity
    cost = np.zeros(jobs * kinds + 1)
    cost[-1] = -1
    return -1 / float(linprog(cost, A_ub=rows, b_ub=ends, method="highs").fun)


def instance(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    jobs, kinds = int(rng.integers(1, 20)), int(rng.integers(1, 5))
    rate = rng.uniform(0, 10, (jobs, kinds)) * (rng.random((jobs, kinds)) < 0.8)
    rate = np.round(rate) if seed % 3 == 0 else rate  # ties
    rate[rate.max(axis=1) <= 0] = 1.0
    return rate, rng.choice([1, 2, 4, 8], jobs), rng.integers(1, 20, kinds).astype(float), rng


@few
@given(st.integers(0, 100_000))
def test_level_equals_linprog_for_makespan_and_max_min(seed: int) -> None:
    rate, gang, capacity, rng = instance(seed)
    a = rng.uniform(0.1, 5, len(gang))
    got = level(rate, gang, capacity, a)
    assert got.theta == pytest.approx(least_theta(rate, gang, capacity, a), rel=1e-6)
    assert (got.share >= -1e-12).all()
    assert (got.share.sum(axis=1) <= 1 + 1e-9).all()
    assert (gang @ got.share <= capacity * (1 + 1e-9)).all()
    assert ((rate * got.share).sum(axis=1) >= a / got.theta * (1 - 1e-6)).all()


@few
@given(st.integers(0, 100_000))
def test_level_equals_bisection_over_linprog_for_finish_time_fairness(seed: int) -> None:
    """At rho the demand is a / (c rho - d): feasible at the level found, infeasible 1e-5 below."""
    rate, gang, capacity, rng = instance(seed)
    a, c, d = rng.uniform(1, 5, len(gang)), rng.uniform(1, 9, len(gang)), rng.uniform(0, 5, len(gang))
    rho = level(rate, gang, capacity, a, c, d).theta
    assert least_theta(rate, gang, capacity, a / (c * rho - d)) <= 1 + 1e-6
    low = (1 - 1e-5) * rho
    single = (a / (c * low - d) > rate.max(axis=1)).any() or (c * low <= d).any()
    assert single or least_theta(rate, gang, capacity, a / (c * low - d)) > 1 - 1e-12


def test_zero_throughput_is_left_out_a9() -> None:
    """Rates (10,5,0), (4,3,2), (0,0,0) on one GPU of each type; normalised by the means 5 and 3 of the rates.

    Both reach 1.25: J0 by 1/4 of the V100 and 3/4 of the P100 (2.5 + 3.75 = 6.25 = 1.25 x 5); J1 by the rest
    (3 + 0.75 = 3.75 = 1.25 x 3), without touching the K80, where J0 could do nothing.
    """
    rate = np.array([[10.0, 5, 0], [4, 3, 2], [0, 0, 0]])
    got = level(rate, np.ones(3, int), np.ones(3), rate.mean(axis=1))
    assert got.left_out.tolist() == [False, False, True]
    assert got.share[0, 2] == 0
    assert got.share == pytest.approx(np.array([[0.25, 0.75, 0], [0.75, 0.25, 0], [0, 0, 0]]), abs=1e-6)
    assert 1 / got.theta == pytest.approx(1.25)


def test_serve_gives_a_certificate_when_it_cannot_be_done() -> None:
    """Two jobs of rate 1 and one GPU, each to get 0.6: load 1.2."""
    got = serve(np.ones((2, 1)), np.array([1, 1]), np.array([1.0]), np.array([0.6, 0.6]))
    assert (got.load, got.bound) == pytest.approx((1.2, 1.2))
    assert got.price == pytest.approx([1.0])
    with pytest.raises(ValueError, match="job 1 is to get 2"):
        serve(np.ones((2, 1)), np.array([1, 1]), np.array([1.0]), np.array([0.6, 2.0]))


def test_relabelling_does_not_change_the_level() -> None:
    rate, gang, capacity, rng = instance(8)
    a = rng.uniform(0.1, 5, len(gang))
    jobs, kinds = rng.permutation(len(gang)), rng.permutation(len(capacity))
    once = level(rate, gang, capacity, a)
    again = level(rate[jobs][:, kinds], gang[jobs], capacity[kinds], a[jobs])
    assert again.theta == pytest.approx(once.theta, rel=1e-9)


def test_nobody_and_nothing() -> None:
    none = level(np.zeros((0, 2)), np.zeros(0, int), np.array([1.0, 1.0]), np.zeros(0))
    assert math.isnan(none.theta)
    empty = level(np.ones((1, 2)), np.ones(1, int), np.zeros(2), np.ones(1))
    assert empty.left_out.tolist() == [True]  # a cluster without GPUs: nobody can be served
