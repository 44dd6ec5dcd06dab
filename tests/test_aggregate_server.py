"""Server optimizers and SCAFFOLD, by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support import outcomes

from eiffel.aggregate import SERVERS, Aggregate, Scaffold
from eiffel.aggregate.server import Adagrad, Adam, Momentum, Yogi
from eiffel.core.model import Outcomes


def steps(rule: Any, updates: list[float]) -> list[float]:
    """The step after each of these updates of a model of one parameter."""
    state, out = rule.init(np.zeros(1, np.float32)), []
    for u in updates:
        state, step = rule.step(state, np.array([u], np.float32))
        out.append(float(step[0]))
    return out


def test_momentum_by_hand() -> None:
    """beta = 1/2, updates 4, 2: m = 4, then 2 + 2 = 4; the first step is FedAvg's."""
    assert steps(Momentum(beta=0.5), [4.0, 2.0]) == [4.0, 4.0]
    assert steps(Momentum(beta=0.0), [4.0, 2.0]) == steps(SERVERS["sgd"](), [4.0, 2.0])


def test_adagrad_by_hand() -> None:
    """tau = 1, so v starts at 1; updates 3, 4: v = 10, 26; step = 3/(sqrt 10 + 1), 4/(sqrt 26 + 1)."""
    np.testing.assert_allclose(
        steps(Adagrad(tau=1.0), [3.0, 4.0]), [3 / (10**0.5 + 1), 4 / (26**0.5 + 1)], rtol=1e-6
    )


def test_adam_by_hand() -> None:
    """beta1 = .9, beta2 = .99, tau = 1; u = 2: m = .2, v = .99 + .04 = 1.03; step = .2/(sqrt 1.03 + 1).
    u = 1: m = .18 + .1 = .28, v = 1.0197 + .01 = 1.0297.
    """
    expected = [0.2 / (1.03**0.5 + 1), 0.28 / (1.0297**0.5 + 1)]
    np.testing.assert_allclose(steps(Adam(tau=1.0), [2.0, 1.0]), expected, rtol=1e-6)


def test_yogi_by_hand() -> None:
    """u = 2, v = 1 < 4: v rises by .01 x 4 to 1.04. u = 0.5, v = 1.04 > .25: v falls by .01 x .25 to 1.0375."""
    expected = [0.2 / (1.04**0.5 + 1), (0.18 + 0.05) / (1.0375**0.5 + 1)]
    np.testing.assert_allclose(steps(Yogi(tau=1.0), [2.0, 0.5]), expected, rtol=1e-6)


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_a_server_without_a_valid_update_moves_nothing(name: str) -> None:
    """Model and moments stay bit for bit what they were, and no update of zeros makes a NaN."""
    aggregate = Aggregate(server=SERVERS[name]())
    state = aggregate.init(np.ones(3, np.float32), 2)
    nobody = outcomes(1, [0], [1.0], [[np.nan, 0, 0]], [[1.0]])
    assert aggregate.learn(state, nobody) is state
    zero = aggregate.learn(state, outcomes(1, [0], [1.0], [[0.0, 0, 0]], [[1.0]]))
    np.testing.assert_array_equal(zero.params, state.params)
    assert zero.params.dtype == np.float32


@pytest.mark.parametrize(
    ("kind", "bad"), [(Momentum, {"beta": 1.0}), (Adam, {"beta1": -0.1}), (Yogi, {"tau": 0.0})]
)
def test_numbers_that_explode_are_refused(kind: Any, bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"server\."):
        kind(**bad)


def whole(round_: int, updates: Any, steps: Any, device: Any) -> Outcomes:
    """Outcomes that keep every update, as SCAFFOLD asks."""
    k = len(updates)
    out = outcomes(round_, device, [1.0] * k, updates, np.full((1, k), 1 / k), steps=steps)
    return replace(out, trained=replace(out.trained, full=np.asarray(updates, np.float32)))


def test_scaffold_by_hand() -> None:
    """Four devices, lr = 0.5; devices 0 and 2 do 2 steps each and return u = 3 and 1.

    Round 1: c = c_k = 0. c_0 <- 3/(2 * .5) = 3, c_2 <- 1; c <- (3 + 1)/4 = 1; w moves by (3 + 1)/2 = 2.
    Round 2: device 0 steps by g - c_0 + c = g - 2. It does 4 steps and returns u = 2:
    c_0 <- 3 - 1 + 2/(4 * .5) = 3, unchanged, so c stays 1.
    """
    rule = Scaffold()
    state = rule.init(4)
    assert rule.shift(state, np.array([0, 2])) is None
    state, step = rule.step(state, whole(1, [[3.0], [1.0]], [2, 2], [0, 2]), lr=0.5)
    np.testing.assert_allclose(step, [2.0])
    np.testing.assert_allclose(state.own.ravel(), [3, 0, 1, 0])
    np.testing.assert_allclose(state.server, [1.0])
    np.testing.assert_allclose(rule.shift(state, np.array([0, 1])), [[-2.0], [1.0]])
    state, _ = rule.step(state, whole(2, [[2.0]], [4], [0]), lr=0.5)
    np.testing.assert_allclose(state.own.ravel(), [3, 0, 1, 0])
    np.testing.assert_allclose(state.server, [1.0])


def test_scaffold_c_is_the_mean_of_all_c_k() -> None:
    """The invariant of the paper, round after round, with changing cohorts and steps."""
    rule, rng = Scaffold(), np.random.default_rng(0)
    state = rule.init(6)
    for round_ in range(1, 8):
        who = np.sort(rng.choice(6, 3, replace=False))
        out = whole(round_, rng.normal(size=(3, 5)), rng.integers(1, 9, 3), who)
        state, _ = rule.step(state, out, lr=0.1)
        np.testing.assert_allclose(state.server, state.own.mean(0), atol=1e-4)


def test_scaffold_ignores_a_broken_update_and_says_what_it_needs() -> None:
    rule = Scaffold()
    state, _ = rule.step(rule.init(3), whole(1, [[np.nan], [2.0]], [1, 1], [0, 1]), lr=1.0)
    np.testing.assert_allclose(state.own.ravel(), [0, 2, 0])
    with pytest.raises(ValueError, match="every single update"):
        rule.step(rule.init(1), outcomes(1, [0], [1.0]))
