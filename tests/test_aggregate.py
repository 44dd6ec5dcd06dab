"""Aggregation by hand: weights, left-out updates, FedNova, ranks, and what is served."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import outcomes, reports

from eiffel.aggregate import Aggregate, Mean, Rank
from eiffel.select import Tempo

GROWN = Tempo(8, 0.5, True)


def server_step(rule: Mean, updates: Any, tempo: Tempo = GROWN, **told: Any) -> np.ndarray:
    """The server's update for these updates (K, P)."""
    k = len(updates)
    known = reports(told.pop("loss", [np.nan] * k), told.pop("examples", None), **told)
    weights = rule.weigh(None, known, tempo)
    out = outcomes(1, range(k), known.loss, updates, weights, examples=known.examples, steps=known.steps)
    return rule.step(None, out)[1]


def test_mean_by_samples() -> None:
    """(10*1 + 30*5)/40 = 4."""
    assert server_step(Mean(), [[1.0], [5.0]], examples=[10, 30]) == pytest.approx([4.0])


def test_mean_all_alike() -> None:
    assert server_step(Mean(by="equal"), [[1.0], [5.0]], examples=[10, 30]) == pytest.approx([3.0])


def test_a_left_out_update_leaves_no_hole() -> None:
    """w: [1,1] n=10; [NaN,5] n=30; [2,2] n=60 -> (10*[1,1] + 60*[2,2])/70 = 13/7."""
    step = server_step(Mean(), [[1, 1], [np.nan, 5], [2, 2]], examples=[10, 30, 60])
    assert step == pytest.approx([13 / 7, 13 / 7])


def test_zero_examples_weigh_nothing() -> None:
    assert server_step(Mean(), [[1, 2], [3, 4]], examples=[0, 10]) == pytest.approx([3, 4])


def test_without_any_valid_update_the_model_is_bit_identical() -> None:
    aggregate = Aggregate(Mean())
    state = aggregate.init(np.array([0.1, 0.7], np.float32), 3)
    nothing = outcomes(1, [0, 1], [1, 1], [[1, 2], [3, 4]], [0, 0])
    assert aggregate.learn(state, nothing) is state


def test_fednova_by_hand() -> None:
    """p = (1/4, 3/4), tau = (1, 3): mean tau = 10/4 = 2.5; d = u/tau = (2, 6/3 = 2); step = 2.5*2 = 5."""
    assert server_step(Mean(nova=True), [[2.0], [6.0]], examples=[10, 30], steps=[1, 3]) == pytest.approx(
        [5.0]
    )


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 9), st.integers(0, 99))
def test_fednova_with_equal_steps_is_the_mean(examples: list[int], tau: int, seed: int) -> None:
    u = np.random.default_rng(seed).normal(size=(len(examples), 3))
    steps = [tau] * len(examples)
    plain = server_step(Mean(), u, examples=examples, steps=steps)
    np.testing.assert_allclose(
        server_step(Mean(nova=True), u, examples=examples, steps=steps), plain, rtol=1e-4, atol=1e-6
    )


def test_rank_weights_by_hand() -> None:
    """kappa 3, losses 2, 1, 4 -> ranks 1, 0, 2 -> weights 4, 3, 5 of 12."""
    weights = Rank().weigh(None, reports([2.0, 1.0, 4.0]), GROWN)
    np.testing.assert_allclose(weights, np.array([4, 3, 5]) / 12)


def test_ten_ranks_run_from_four_to_sixteen_percent() -> None:
    weights = np.sort(Rank().weigh(None, reports(list(range(10))), GROWN))
    assert weights[0] == pytest.approx(0.04)
    assert weights[-1] == pytest.approx(0.16)


def test_before_tau_has_grown_ranks_do_not_count() -> None:
    np.testing.assert_allclose(Rank().weigh(None, reports([2.0, 1.0]), Tempo(4, 0, False)), [0.5, 0.5])


def test_an_unknown_loss_takes_the_middle_rank() -> None:
    """Losses 1, ?, 2 of three: ranks 0, 1 (the middle), 1 -> weights 3, 4, 4 of 11."""
    np.testing.assert_allclose(
        Rank().weigh(None, reports([1.0, np.nan, 2.0]), GROWN), np.array([3, 4, 4]) / 11
    )


def test_the_served_average_by_hand() -> None:
    """beta_1 = min(.9, 2/11); w0 = 1, step .5 -> w1 = .5, average = 2/11 * 1 + 9/11 * .5 = 13/22."""
    aggregate = Aggregate(Mean(by="equal"), serve="ema")
    state = aggregate.init(np.array([1.0], np.float32), 1)
    state = aggregate.learn(state, outcomes(1, [0], [1.0], [[0.5]], [[1.0]]))
    assert state.params == pytest.approx([0.5])
    assert aggregate.models(state)["ema"] == pytest.approx([13 / 22])
    assert aggregate.models(state)["last"] == pytest.approx([0.5])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 7),
    st.sampled_from([Mean(), Mean(by="equal"), Mean(nova=True), Rank()]),
)
def test_the_step_lies_among_the_updates_and_order_changes_nothing(seed: int, k: int, rule: Mean) -> None:
    """With equal local steps every rule is a convex combination, whatever the order of the devices."""
    rng = np.random.default_rng(seed)
    u, n, loss = rng.normal(size=(k, 4)), rng.integers(1, 99, k), rng.permutation(k) + 0.5
    step = server_step(rule, u, examples=n, loss=loss, steps=[3] * k)
    assert (step <= u.max(0) + 1e-5).all()
    assert (step >= u.min(0) - 1e-5).all()
    order = rng.permutation(k)
    again = server_step(rule, u[order], examples=n[order], loss=loss[order], steps=[3] * k)
    np.testing.assert_allclose(step, again, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", ["A1", "A2"])
def test_conformance(case: str, shared_data: Path) -> None:
    """Replies are models: with a global model of zero the update is minus the reply."""
    given_ = json.loads((shared_data / "conformance_A.json").read_text())[case]
    models = np.array([[float(x) for x in reply] for reply, _ in given_["replies"]])
    step = server_step(Mean(), -models, examples=[n for _, n in given_["replies"]])
    np.testing.assert_allclose(-step, given_["expect"], rtol=1e-6)
