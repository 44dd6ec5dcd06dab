"""Bounds: by hand, and never above what a schedule reaches."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from eiffel.core.bounds import completion, makespan, mean_busy, shortest
from eiffel.core.jobs import Nodes, Trace
from eiffel.core.measures_jobs import isolated_jct, measure


def trace(
    arrival: list[float],
    work: list[float],
    gang: list[int],
    rate: list[list[float]],
    types: tuple[str, ...] = ("a",),
) -> Trace:
    n = len(work)
    x = np.array(rate, float)
    return Trace(
        tuple(str(k) for k in range(n)), np.array(arrival, float), np.array(work, float), np.array(gang),
        np.full(n, 10), np.ones(n), x, x, types, ("x",) * n,
    )  # fmt: skip


ONE = Nodes.of({"a": 1}, 1)


def test_makespan_by_hand() -> None:
    """Works 3 and 5 on one GPU of 1 step/s: 8 s. If the second arrives at 10: 15 s."""
    assert makespan(trace([0, 0], [3, 5], [1, 1], [[1], [1]]), ONE) == pytest.approx(8)
    assert makespan(trace([0, 10], [3, 5], [1, 1], [[1], [1]]), ONE) == pytest.approx(15)


def test_completion_by_hand() -> None:
    """Shortest first: ends at 3 and 8, mean 5.5. The bound is exact on one GPU: M = 1.5 and 5.5, plus 1.5, 2.5."""
    assert mean_busy(np.zeros(2), np.array([3.0, 5.0])) == pytest.approx([1.5, 5.5])
    assert completion(trace([0, 0], [3, 5], [1, 1], [[1], [1]]), ONE) == pytest.approx(5.5)


def test_preemption_in_mean_busy_times() -> None:
    """5 s from 0, 1 s from 2: the short one runs 2-3, the long one 0-2 and 3-6: mean (2 x 1 + 3 x 4.5) / 5 = 3.1."""
    assert mean_busy(np.array([0.0, 2.0]), np.array([5.0, 1.0])) == pytest.approx([3.1, 2.5])


def test_no_order_of_unit_gangs_on_unrelated_machines_beats_the_bounds() -> None:
    """All assignments and orders of 5 jobs on two different GPUs."""
    rng = np.random.default_rng(0)
    nodes = Nodes.of({"a": 1, "b": 1}, 1)
    for _ in range(5):
        rate, work = rng.uniform(0.5, 3, (5, 2)), rng.uniform(1, 9, 5)
        t = trace([0] * 5, work.tolist(), [1] * 5, rate.tolist(), ("a", "b"))
        ends, means = [], []
        for on in itertools.product([0, 1], repeat=5):
            need = work / rate[np.arange(5), on]
            done = [np.cumsum(np.sort(need[np.array(on) == r])) for r in (0, 1)]  # shortest first on each
            ends.append(max(d[-1] for d in done if len(d)))
            means.append(np.concatenate(done).mean())
        assert makespan(t, nodes) <= min(ends) + 1e-9
        assert completion(t, nodes) <= min(means) + 1e-9
        assert completion(t, nodes) >= 0.6 * min(means)  # not vacuous


def test_jobs_that_run_nowhere_or_have_no_work_do_not_count() -> None:
    t = trace([0, 0, 0], [3, 5, 0], [1, 1, 1], [[1], [0], [1]])
    assert shortest(t, ONE).tolist() == [3, np.inf, 0]
    assert makespan(t, ONE) == pytest.approx(3)
    assert completion(t, ONE) == pytest.approx(3)


def test_a_gang_larger_than_a_node_is_bounded_by_its_spread_rate() -> None:
    """A gang of 2, 10 steps, at 5 steps/s on one node and 1 over two: on nodes of 1 GPU it takes 10 s, not 2."""
    t = replace(trace([0], [10], [2], [[5]]), spread=np.array([[1.0]]))
    assert makespan(t, Nodes.of({"a": 2}, 1)) == pytest.approx(10)
    assert makespan(t, Nodes.of({"a": 2}, 2)) == pytest.approx(2)


def test_isolation_shares_the_cluster_equally() -> None:
    """Works 2 and 4 on one GPU: both at 1/2 until 4 s, then the second alone: 4 and 6 s."""
    assert isolated_jct(trace([0, 0], [2, 4], [1, 1], [[1], [1]]), ONE) == pytest.approx([4, 6])


def test_measures_by_hand() -> None:
    """JCTs 3 and 8 s on one GPU held throughout: queueing 0 and 3, rho 3/4... of isolated 6 and 8."""
    t = trace([0, 0], [3, 5], [1, 1], [[1], [1]])
    got = measure(
        t, ONE, start=np.array([0.0, 3]), finish=np.array([3.0, 8]), ran=np.array([3.0, 5]), busy=np.array([3.0, 5]),
        useful=8.0, moves=np.ones(2), preemptions=np.zeros(2), admitted=np.ones(2, bool), decision_s=np.array([0.001]),
    )  # fmt: skip
    assert (got.jct_mean * 3600, got.ttd * 3600, got.queue_mean * 3600) == pytest.approx((5.5, 8, 1.5))
    assert (got.cru, got.gru, got.decision_ms_mean) == pytest.approx((1, 1, 1))
    assert got.rho_mean == pytest.approx(
        (3 / 6 + 8 / 8) / 2
    )  # isolated: both at 1/2 until 6 s, then one: 6, 8
