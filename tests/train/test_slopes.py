"""What some methods ask of training beside updates: control variates, gradients, answers to a probe."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from eiffel.core.model import Local
from eiffel.train import trainer

PATHS = ["ordinary", "closed", "vmap"]
LOGISTIC = {"kind": "logistic"}


@pytest.fixture
def single(federation):
    """One device, one sample x = (1, 2) of class 1 of two."""
    return federation(np.array([[1, 2]], np.float32), np.array([1]), 2, [1])


def engine_of(data, path="auto", model=LOGISTIC, **settings):
    return trainer(data, model, {"kind": "single", "path": path, "chunk": 4} | settings, 0)


def run(engine, plan):
    return engine.train(plan, plan.chosen, plan.steps, 0)


@pytest.mark.parametrize("path", PATHS)
def test_a_shift_is_added_to_every_gradient(single, plan_of, path):
    """From w = 0 the gradient is (.5, 1, -.5, -1, .5, -.5); with the shift (1, 0, ...) and lr .1, u_0 = .15.

    Step 2, without the shift on other entries: W_00 = -.15, W_01 = -.1, b_0 = -.05, class 1 the opposite but for
    W_10 = +.05. Logits: -.15 - .2 - .05 = -.4 and .05 + .2 + .05 = .3; p_0 = 1/(1 + e^.7) = .331812.
    u_0 = .15 + .1 (.331812 + 1) = .2831812.
    """
    plan = plan_of(np.zeros(6, np.float32), [0], [1], local=Local(lr=0.1))
    shift = np.array([[1, 0, 0, 0, 0, 0]], np.float32)
    one = run(engine_of(single, path), replace(plan, shift=shift))
    assert one.sums[0] == pytest.approx([0.15, 0.1, -0.05, -0.1, 0.05, -0.05], abs=1e-6)
    two = run(engine_of(single, path), replace(plan, shift=shift, steps=np.array([2])))
    assert two.sums[0][0] == pytest.approx(0.2831812, abs=1e-6)


def test_shifts_follow_their_devices(blobs, plan_of):
    """Unequal steps, and only some of the chosen deliver: every path gives each its own shift."""
    chosen, steps = np.array([1, 4, 7, 11, 15]), np.array([3, 1, 5, 2, 4])
    params = np.zeros(engine_of(blobs).size, np.float32)
    shift = np.random.default_rng(3).normal(size=(5, params.size)).astype(np.float32)
    plan = replace(plan_of(params, chosen, steps, local=Local(lr=0.2), full=True), shift=shift)
    got = [engine_of(blobs, p).train(plan, chosen[1:4], steps[1:4], 0).full for p in PATHS]
    for other in got[1:]:
        np.testing.assert_allclose(got[0], other, atol=2e-5)
    alone = replace(plan_of(params, [7], [5], local=Local(lr=0.2), full=True), shift=shift[2:3])
    np.testing.assert_allclose(run(engine_of(blobs, "closed"), alone).full[0], got[0][1], atol=2e-5)


@pytest.mark.parametrize("path", PATHS)
def test_slopes_by_hand(single, plan_of, path):
    """At w = 0: p_0 = 1/2, gradient .5 (1, 2, -1, -2, 1, -1), loss ln 2. One step of lr .1 leads to w_1 = -.1 of it,
    where p_0 = .354344 and the loss is ln(1 + e^-.6) = .437488.

    beta = (.5 - .354344) sqrt 12 / (.05 sqrt 12) = 2.913117;  rho = (.693147 - .437488)/(.05 sqrt 12) = 1.476056.
    """
    plan = replace(plan_of(np.zeros(6, np.float32), [0], [1], local=Local(lr=0.1), full=True), gradients=True)
    slopes = run(engine_of(single, path), plan).slopes
    np.testing.assert_allclose(slopes.gradient[0], [0.5, 1, -0.5, -1, 0.5, -0.5], atol=1e-6)
    p = 1 / (1 + math.exp(0.6))
    assert slopes.beta[0] == pytest.approx((0.5 - p) / 0.05, rel=1e-4)
    assert slopes.rho[0] == pytest.approx((math.log(2) + math.log(1 - p)) / (0.05 * math.sqrt(12)), rel=1e-4)


def test_a_device_that_did_not_move_has_no_slope(single, plan_of):
    """A step of next to nothing: beta and rho are 0, not a division by zero."""
    plan = plan_of(np.zeros(6, np.float32), [0], [1], local=Local(lr=1e-12), full=True)
    slopes = run(engine_of(single), replace(plan, gradients=True)).slopes
    assert (slopes.beta[0], slopes.rho[0]) == (0, 0)


def test_a_probe_measures_and_trains_nothing(blobs, plan_of):
    """Losses as before training, their root mean square at least their mean, updates of zero."""
    engine = engine_of(blobs)
    params = engine.initial(0)
    plan = plan_of(params, [0, 3, 9], [0, 0, 0], local=Local(probe=-1))
    answers = run(engine, plan)
    trained = run(engine, replace(plan, steps=np.array([2, 2, 2])))
    np.testing.assert_allclose(answers.reports.loss, trained.reports.loss)
    assert (answers.reports.rms >= answers.reports.loss).all()
    assert (answers.sumsq == 0).all()
    assert not answers.sums.any()
    few = replace(plan, local=Local(probe=1))  # one sample: its loss is both
    told = run(engine, few).reports
    np.testing.assert_allclose(told.loss, told.rms, rtol=1e-6)


def test_workers_answer_like_one_process(blobs, plan_of):
    """Slopes, shifts and probes are the same from two processes."""
    params = engine_of(blobs).initial(0)
    plan = plan_of(params, range(12), [2] * 12, local=Local(lr=0.1, probe=8), full=True)
    shift = np.random.default_rng(0).normal(size=(12, params.size)).astype(np.float32)
    plan = replace(plan, gradients=True, shift=shift)
    ask = replace(plan, steps=np.zeros(12, np.int64), gradients=False, shift=None)
    one = engine_of(blobs, "closed")
    crew = trainer(
        blobs, LOGISTIC, {"kind": "local", "workers": 2, "patience": 0, "path": "closed", "chunk": 4}, 0
    )
    try:
        for p in (plan, ask):
            a, b = run(one, p), run(crew, p)
            np.testing.assert_array_equal(a.sums, b.sums)
            np.testing.assert_array_equal(a.reports.rms, b.reports.rms)
            if p is plan:
                np.testing.assert_array_equal(a.slopes.gradient, b.slopes.gradient)
                np.testing.assert_array_equal(a.slopes.beta, b.slopes.beta)
    finally:
        crew.close()
