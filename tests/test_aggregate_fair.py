"""q-FedAvg, TERM and AFL against arithmetic done by hand, and at the edges of their formulas."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize
from support import outcomes, reports

from eiffel.aggregate import WEIGHTS, Agnostic, Mean, QFair, Tilted
from eiffel.aggregate.fair import onto_simplex
from eiffel.core.model import Outcomes
from eiffel.select import Tempo

SMALL = st.floats(-100, 100, allow_nan=False)


def play(rule: Any, updates: Any, loss: Any, lr: float = 1.0, **columns: Any) -> Any:
    """State and step of a rule for these updates (K, P) and losses, as a world carries its weights out."""
    told = reports(loss, **columns)
    state = rule.init(len(loss))
    row = rule.weigh(state, told, Tempo())
    row = np.where(np.isfinite(row), row, 0.0)
    return rule.step(state, outcomes(1, told.device, loss, updates, row[None], **columns), lr)


def step(rule: Any, updates: Any, loss: Any, lr: float = 1.0, **columns: Any) -> Any:
    return play(rule, updates, loss, lr, **columns)[1]


def test_qfedavg_by_hand() -> None:
    """Two devices, q = 1, lr = 0.5, so L = 2; losses 1 and 3; updates (1, 0) and (0, 2).

    Delta_1 = 1 * 2 (1, 0) = (2, 0)         h_1 = 1 * |(2, 0)|^2 + 2 * 1 = 4 + 2 = 6
    Delta_2 = 3 * 2 (0, 2) = (0, 12)        h_2 = 1 * |(0, 4)|^2 + 2 * 3 = 16 + 6 = 22
    step = (2, 12) / 28
    """
    got = step(QFair(q=1), [[1, 0], [0, 2]], [1.0, 3.0], lr=0.5)
    np.testing.assert_allclose(got, [2 / 28, 12 / 28], rtol=1e-6)


def test_qfedavg_square_by_hand() -> None:
    """One device, q = 2, lr = 0.1 (L = 10), F = 2, u = 0.3.

    Delta = 4 * 3 = 12;  h = 2 * 2 * 9 + 10 * 4 = 76;  step = 12/76.
    """
    np.testing.assert_allclose(step(QFair(q=2), [[0.3]], [2.0], lr=0.1), [12 / 76], rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(SMALL, st.floats(0, 1e3), st.integers(1, 50)), min_size=1, max_size=6),
    st.floats(0.01, 1),
)
def test_q_of_zero_is_fedavg(rows: list[tuple[float, float, int]], lr: float) -> None:
    updates, loss, n = [[r[0]] for r in rows], [r[1] for r in rows], [r[2] for r in rows]
    for by in ("equal", "samples"):
        fair = step(QFair(by=by, q=0), updates, loss, lr, examples=n)
        np.testing.assert_allclose(
            fair, step(Mean(by=by), updates, loss, lr, examples=n), rtol=1e-5, atol=1e-5
        )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.sampled_from([0.0, 1e-300, 1e-12, 0.1, 5.0, 1e12, 1e300, math.inf, math.nan]),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([0.0, 0.1, 1.0, 5.0, 100.0]),
)
def test_qfedavg_never_over_or_underflows(loss: list[float], q: float) -> None:
    """Losses of zero, tiny, huge and unknown, up to q = 100: the step is finite, never longer than the update."""
    got = step(QFair(q=q), [[1.0]] * len(loss), loss, lr=0.1)
    assert np.isfinite(got).all()
    assert 0 <= got[0] <= 1 + 1e-6


def test_all_losses_zero_count_alike() -> None:
    np.testing.assert_allclose(QFair(q=3).weigh(None, reports([0.0, 0.0]), Tempo()), [1, 1])


def test_without_any_loss_the_first_minibatch_is_asked_for() -> None:
    """NaN weights make a trainer measure the first minibatch; the rule then uses that."""
    unknown = reports([math.nan, math.nan], first_loss=[math.nan, math.nan])
    assert np.isnan(QFair().weigh(None, unknown, Tempo())).all()
    assert np.isnan(Tilted().weigh(None, unknown, Tempo())).all()
    first = reports([math.nan, math.nan], first_loss=[1.0, 3.0])
    np.testing.assert_allclose(QFair().weigh(None, first, Tempo()), [1 / 3, 1], rtol=1e-9)


def test_term_by_hand() -> None:
    """t = 1, losses 0 and ln 3: exp gives 1 and 3, weights 1/4 and 3/4; updates 4 and 8: 1 + 6 = 7."""
    rule = Tilted(t=1)
    np.testing.assert_allclose(rule.weigh(None, reports([0.0, math.log(3)]), Tempo()), [0.25, 0.75])
    np.testing.assert_allclose(step(rule, [[4], [8]], [0.0, math.log(3)]), [7], rtol=1e-6)


@pytest.mark.parametrize(("t", "expected"), [(0.0, [0.5, 0.5]), (1e4, [0.0, 1.0]), (-1e4, [1.0, 0.0])])
def test_term_at_its_limits(t: float, expected: list[float]) -> None:
    """t = 0 is the mean, t -> inf the maximum, t -> -inf the minimum; nothing overflows."""
    np.testing.assert_allclose(Tilted(t=t).weigh(None, reports([1.0, 1000.0]), Tempo()), expected)


@pytest.mark.parametrize("point", [[1.1, 0.06], [0.9, 0.35, -0.5]])
def test_projection_where_public_code_leaves_the_simplex(point: list[float]) -> None:
    """The sum in the condition must include the entry itself. Without it (fair_flearn) the first of these
    becomes (1.02, 0); the right answers: (1.1, 0.06) -> rho = 1, subtract 0.1: (1, 0);
    (0.9, 0.35, -0.5) -> rho = 2, subtract 0.125: (0.775, 0.225, 0).
    """
    got = onto_simplex(np.array(point))
    np.testing.assert_allclose(got, [1, 0] if len(point) == 2 else [0.775, 0.225, 0])


@settings(max_examples=50, deadline=None)
@given(arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e3, 1e3)))
def test_projection_is_the_nearest_point_of_the_simplex(point: Any) -> None:
    """On the simplex, and the condition of optimality: (point - p) is largest exactly where p > 0."""
    p = onto_simplex(point)
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1, abs=1e-9)
    pull = point - p
    assert pull[p > 1e-9].min() >= pull.max() - 1e-9


def test_projection_against_a_solver() -> None:
    point = np.array([0.4, -0.2, 1.3, 0.31])
    solved = optimize.minimize(
        lambda p: ((p - point) ** 2).sum(),
        np.full(4, 0.25),
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
    )
    np.testing.assert_allclose(onto_simplex(point), solved.x, atol=1e-4)


def test_afl_by_hand() -> None:
    """Two devices, lambda = (1/2, 1/2), updates 2 and 4: the step is 3. Losses 1 and 3, ascent 0.1:
    (0.6, 0.8) minus 0.2 each = (0.4, 0.6).
    """
    mix, got = play(Agnostic(ascent=0.1), [[2.0], [4.0]], [1.0, 3.0])
    np.testing.assert_allclose(got, [3.0])
    np.testing.assert_allclose(mix, [0.4, 0.6])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=4, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4))
def test_afl_stays_on_the_simplex(loss: list[float], here: list[bool]) -> None:
    """Whatever the losses and whoever takes part, round after round."""
    rule, who = Agnostic(ascent=0.5), np.flatnonzero(here)
    if not who.size:
        return
    state = rule.init(4)
    for round_ in range(1, 5):
        some = [loss[i] for i in who]
        row = rule.weigh(state, reports(some, device=who), Tempo())
        assert row.sum() == pytest.approx(1)
        state, _ = rule.step(state, outcomes(round_, who, some, [[1.0]] * who.size, row[None]))
        assert state.min() >= 0
        assert state.sum() == pytest.approx(1)


def test_afl_turns_to_the_worst_device_and_can_come_back() -> None:
    """lambda wanders to the device with the large loss; at 0 a device is still heard, and comes back."""
    rule = Agnostic(ascent=1.0)
    state = rule.init(2)
    for loss in ([5.0, 0.0], [5.0, 0.0]):
        row = rule.weigh(state, reports(loss), Tempo())
        state, _ = rule.step(state, outcomes(1, [0, 1], loss, [[1.0], [1.0]], row[None]))
    np.testing.assert_allclose(state, [1, 0])
    row = rule.weigh(state, reports([0.0, 3.0]), Tempo())
    assert (row > 0).all()
    state, _ = rule.step(state, outcomes(1, [0, 1], [0.0, 3.0], [[1.0], [1.0]], row[None]))
    np.testing.assert_allclose(state, [0, 1])


ROWS = st.tuples(st.integers(-1024, 1024), st.floats(0.01, 50), st.integers(1, 99), st.integers(1, 30))


@pytest.mark.parametrize("name", sorted(WEIGHTS))
@settings(max_examples=20, deadline=None)
@given(rows=st.lists(ROWS, min_size=2, max_size=6), rng=st.randoms(use_true_random=False))
def test_the_order_of_the_devices_changes_nothing(
    name: str, rows: list[tuple[int, float, int, int]], rng: Any
) -> None:
    """For every weight rule: the same updates in another order give the same step."""

    def run(order: list[int]) -> Any:
        told: Outcomes = outcomes(
            1,
            order,
            [rows[i][1] for i in order],
            [[rows[i][0], 1.0] for i in order],
            None,
            examples=[rows[i][2] for i in order],
            steps=[rows[i][3] for i in order],
        )
        rule = WEIGHTS[name]()
        row = rule.weigh(rule.init(len(rows)), told.trained.reports, Tempo(grown=True))
        full = np.array([[rows[i][0], 1.0] for i in order], np.float32)
        sums = (row @ full)[None].astype(np.float32)
        trained = type(told.trained)(
            told.trained.reports, (full.astype(float) ** 2).sum(1), row[None], sums, full
        )
        from dataclasses import replace

        return rule.step(rule.init(len(rows)), replace(told, trained=trained), 0.1)[1]

    order = list(range(len(rows)))
    rng.shuffle(order)
    distinct = len({r[1] for r in rows}) == len(rows)
    if name != "rank" or distinct:  # equal losses share no rank: the order is the tie-break
        np.testing.assert_allclose(run(order), run(sorted(order)), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("rule", "bad"), [(QFair, {"q": -1.0})])
def test_numbers_without_meaning_are_refused(rule: Any, bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="q is -1"):
        rule(**bad)
