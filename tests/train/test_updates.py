"""What a device sends back, worked out by hand, and what becomes of a cohort's updates."""

from __future__ import annotations

import math

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


def engine_of(data, path, model=LOGISTIC):
    return trainer(data, model, {"kind": "single", "path": path, "chunk": 4}, 0)


@pytest.mark.parametrize("path", PATHS)
def test_one_step_of_logistic_regression_by_hand(single, plan_of, path):
    """From w = 0 both classes have p = 1/2, so the loss is ln 2 = 0.693147 and d loss/d logits = (.5, -.5).

    d loss/dW = (.5, -.5) x (1, 2) = [[.5, 1], [-.5, -1]], d loss/db = (.5, -.5).
    With lr 0.1 the update u = w_global - w_local = 0.1 * slope = [.05, .1, -.05, -.1, .05, -.05],
    and |u|^2 = 2 (.05^2 + .1^2 + .05^2) = 0.03.
    """
    plan = plan_of(np.zeros(6, np.float32), [0], [1], local=Local(lr=0.1), full=True)
    got = engine_of(single, path).train(plan, plan.chosen, plan.steps, 0)
    assert got.full[0] == pytest.approx([0.05, 0.1, -0.05, -0.1, 0.05, -0.05], abs=1e-7)
    assert got.sumsq == pytest.approx([0.03])
    assert got.reports.first_loss == pytest.approx([math.log(2)])
    assert got.sums[0] == pytest.approx(got.full[0])


@pytest.mark.parametrize("path", PATHS)
def test_the_proximal_term_by_hand(single, plan_of, path):
    """mu/2 |w - w_global|^2 has the gradient mu (w - w_global): none in step 1, then it pulls back.

    After step 1: row 0 of W is (-.05, -.1), b_0 = -.05, class 1 the opposite. Logits -.3 and .3,
    so p_0 = 1/(1 + e^.6) = 0.354344. Step 2 with mu = 1 on W_00: slope .354344 + 1 (-.05) = .304344,
    W_00 = -.05 - .1 * .304344 = -.0804344, and u_00 = .0804344. Without it u_00 = .0854344.
    """
    engine = engine_of(single, path)
    for mu, expected in ((1.0, 0.0804344), (0.0, 0.0854344)):
        plan = plan_of(np.zeros(6, np.float32), [0], [2], local=Local(lr=0.1, mu=mu))
        got = engine.train(plan, plan.chosen, plan.steps, 0)
        assert got.sums[0][0] == pytest.approx(expected, abs=1e-6)


def test_weights_make_the_sums_and_probe_and_first_loss_can_make_the_weights(blobs, plan_of):
    """Row 0: the incoming loss; row 1: the loss on the first batch, which only training reveals."""
    engine = engine_of(blobs, "ordinary")
    local = Local(probe=-1, batch=1000)
    weigh = lambda r: np.stack([r.loss, r.first_loss])  # noqa: E731
    plan = plan_of(engine.initial(0), range(20), [2] * 20, local=local, weigh=weigh, full=True)
    got = engine.train(plan, plan.chosen, plan.steps, 0)
    assert got.weights[0] == pytest.approx(got.reports.loss)
    assert got.weights[1] == pytest.approx(got.reports.first_loss, rel=1e-5)
    # A batch that takes in all samples has the mean loss of all samples.
    assert got.reports.loss == pytest.approx(got.reports.first_loss, rel=1e-5)
    assert got.sums == pytest.approx(got.weights @ got.full, abs=1e-5)
    assert got.sumsq == pytest.approx((got.full**2).sum(1), rel=1e-5)


@pytest.mark.parametrize("path", PATHS)
def test_a_device_whose_update_is_not_finite_is_left_out(federation, plan_of, path):
    """Device 1 holds an infinite feature. The sums are those of devices 0 and 2 alone."""
    x = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    x[4] = np.inf
    data = federation(x, np.arange(9) % 3, 3, [3, 3, 3])
    engine = engine_of(data, path)
    half = lambda r: np.full(r.device.size, 0.5)  # noqa: E731
    start = engine.initial(0)
    plan = plan_of(start, range(3), [2] * 3, weigh=half)
    got = engine.train(plan, plan.chosen, plan.steps, 0)
    without = engine.train(plan, np.array([0, 2]), np.array([2, 2]), 0)
    assert np.isfinite(got.sumsq).tolist() == [True, False, True]
    assert got.weights.tolist() == [[0.5, 0.0, 0.5]]
    assert np.isfinite(got.sums).all()
    assert got.sums == pytest.approx(without.sums, abs=1e-7)


@pytest.mark.parametrize("path", PATHS)
def test_the_order_in_which_devices_are_named_changes_nothing(blobs, plan_of, path):
    """Rows ascend by device and the sums are the same bits."""
    engine = engine_of(blobs, path, {"kind": "mlp", "hidden": [8]})
    plan = plan_of(engine.initial(0), range(20), [1 + d % 5 for d in range(20)], local=Local(probe=3))
    straight = engine.train(plan, plan.chosen, plan.steps, 0)
    order = np.random.default_rng(1).permutation(20)
    mixed = engine.train(plan, plan.chosen[order], plan.steps[order], 0)
    assert mixed.reports.device.tolist() == list(range(20))
    assert np.array_equal(straight.sums, mixed.sums)
    assert np.array_equal(straight.reports.loss, mixed.reports.loss)


@pytest.mark.parametrize("path", PATHS)
def test_a_device_does_the_same_alone_and_among_others(blobs, plan_of, path):
    """Unequal steps (1 to 5) and unequal batches (3 to 10 samples) side by side."""
    engine = engine_of(blobs, path, {"kind": "mlp", "hidden": [8]})
    plan = plan_of(engine.initial(0), range(20), [1 + d % 5 for d in range(20)], full=True)
    together = engine.train(plan, plan.chosen, plan.steps, 0)
    for d in (0, 7, 19):
        alone = engine.train(plan, plan.chosen[[d]], plan.steps[[d]], 0)
        assert alone.full[0] == pytest.approx(together.full[d], abs=1e-6)
        assert alone.reports.first_loss[0] == pytest.approx(together.reports.first_loss[d], rel=1e-5)


def test_more_devices_than_clients_share_their_data_but_not_their_batches(blobs, plan_of):
    """Devices 7, 27 and 47 of a fleet on 20 clients all own the data of client 7."""
    assert blobs.train.sizes[7] > 10
    engine = engine_of(blobs, "closed")
    plan = plan_of(engine.initial(0), [7, 27, 47], [1, 1, 1], full=True, local=Local(probe=-1, batch=2))
    got = engine.train(plan, plan.chosen, plan.steps, 0)
    assert got.reports.examples.tolist() == [blobs.train.sizes[7]] * 3
    assert got.reports.loss == pytest.approx([got.reports.loss[0]] * 3, rel=1e-5)
    assert not np.allclose(got.full[0], got.full[1])


def test_a_cohort_of_nobody_yields_sums_of_zero(blobs, plan_of):
    engine = engine_of(blobs, "closed")
    plan = plan_of(engine.initial(0), [0], [1], weigh=lambda r: np.ones((2, r.device.size)))
    got = engine.train(plan, np.zeros(0, np.int64), np.zeros(0, np.int64), 0)
    assert got.sums.shape == (2, engine.size)
    assert not got.sums.any()


@pytest.mark.parametrize(
    ("device", "steps", "params", "words"),
    [
        ([0, 0], [1, 1], None, "named twice"),
        ([0, 1], [1, 0], None, "device 1 has no local steps"),
        ([0, 1], [1, 1], np.zeros(3, np.float32), "shape"),
    ],
)
def test_what_cannot_be_trained_is_refused(blobs, plan_of, device, steps, params, words):
    engine = engine_of(blobs, "ordinary")
    plan = plan_of(engine.initial(0) if params is None else params, [0, 1], [1, 1])
    with pytest.raises(ValueError, match=words):
        engine.train(plan, np.array(device), np.array(steps), 0)
