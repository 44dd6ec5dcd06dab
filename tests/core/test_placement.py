"""Gangs onto nodes: best fit, displacement, spreading, staying put; and the speed of what results."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eiffel.core.jobs import NOWHERE, Nodes, Rows
from eiffel.core.placement import best_fit, gangs, place, scatter

TWO = Nodes.of({"v100": 8}, 4)  # two nodes of four


def where(rows: Rows, job: int) -> list[tuple[int, int]]:
    mine = rows.job == job
    return list(zip(rows.node[mine].tolist(), rows.count[mine].tolist(), strict=True))


def test_best_fit_takes_the_fullest_node_that_still_has_room() -> None:
    assert best_fit(np.array([4, 2, 1, 3]), 2) == 1
    assert best_fit(np.array([1, 1]), 2) == -1


def test_scatter_takes_whole_nodes_and_fits_the_rest() -> None:
    nodes, counts = scatter(np.array([2, 4, 1, 4]), 9)  # 4 + 4, and 1 left: the node with exactly 1
    assert sorted(zip(nodes.tolist(), counts.tolist(), strict=True)) == [(1, 4), (2, 1), (3, 4)]
    assert [v.tolist() for v in scatter(np.array([4, 4]), 3)] == [[0], [3]]


def test_large_gangs_go_first_so_that_each_ends_on_one_node() -> None:
    """Gangs 1, 1, 2, 4 on two nodes of 4: 4 fills one node, 2 + 1 + 1 the other."""
    rows = place(np.array([[1], [1], [2], [4]]), NOWHERE, TWO, TWO.devices)
    assert len(rows) == 4
    assert rows.used(2).tolist() == [4, 4]


def test_a_job_stays_and_a_larger_gang_displaces_the_fewest_gpus() -> None:
    """Jobs 0 (2 GPUs) on node 0 and 1 (1 GPU) on node 1; a gang of 4 comes and 3 go: it takes node 1."""
    held = Rows.of([0, 1], [0, 1], [2, 1])
    rows = place(np.array([[2], [1], [4]]), held, TWO, TWO.devices)
    assert where(rows, 0) == [(0, 2)]
    assert where(rows, 2) == [(1, 4)]
    assert where(rows, 1) == [(0, 1)]


def test_nothing_moves_when_nothing_has_to() -> None:
    held = Rows.of([0, 1, 2], [0, 0, 1], [1, 2, 2])
    rows = place(np.array([[1], [2], [2]]), held, TWO, TWO.devices)
    assert [where(rows, j) for j in range(3)] == [[(0, 1)], [(0, 2)], [(1, 2)]]


def test_a_gang_larger_than_a_node_spreads_and_mixed_gangs_touch_both_types() -> None:
    nodes = Nodes.of({"v100": 8, "k80": 4}, 4)
    rows = place(np.array([[6, 0], [2, 2]]), NOWHERE, nodes, nodes.devices)
    assert rows.held(2).tolist() == [6, 4]
    assert {n for n, _ in where(rows, 1)} & {2}  # the K80 node
    assert sum(c for n, c in where(rows, 1) if n < 2) == 2


def test_a_node_out_of_service_is_left() -> None:
    held = Rows.of([0], [0], [2])
    rows = place(np.array([[2]]), held, TWO, np.array([0, 4]))
    assert where(rows, 0) == [(1, 2)]


def test_asking_for_too_much_is_an_error() -> None:
    with pytest.raises(ValueError, match="9 GPUs of 'v100' are to be placed, 8 are in service"):
        place(np.array([[9]]), NOWHERE, TWO, TWO.devices)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 100_000))
def test_gangs_are_whole_nodes_not_overfull_and_powers_of_two_fit_one_node(seed: int) -> None:
    """Two placements in a row: the second re-decides everything but keeps whom it can."""
    rng = np.random.default_rng(seed)
    nodes = Nodes.of({"a": int(4 * rng.integers(1, 5)), "b": int(4 * rng.integers(1, 5))}, 4)
    held, old = NOWHERE, np.zeros((0, 2), np.int64)
    gang = rng.choice([1, 2, 4, 8], 12)
    for _ in range(2):
        counts, room = np.zeros((12, 2), np.int64), nodes.capacity()
        for j in rng.permutation(12):
            r = int(rng.integers(2))
            if gang[j] <= room[r] and rng.random() < 0.7:
                counts[j, r] = gang[j]
                room[r] -= gang[j]
        rows = place(counts, held, nodes, nodes.devices)
        got = np.zeros((12, 2), np.int64)
        np.add.at(got, (rows.job, nodes.type[rows.node]), rows.count)
        assert (got == counts).all()
        assert (rows.used(len(nodes)) <= nodes.devices).all()
        parts = np.bincount(rows.job, minlength=12)
        assert (parts[(gang <= 4) & counts.any(axis=1)] == 1).all()
        if len(old):
            unchanged = (gang == gang.max()) & (counts == old).all(axis=1) & counts.any(axis=1)
            for j in np.flatnonzero(unchanged):  # nobody is larger, so nobody can push it away
                assert where(rows, int(j)) == where(held, int(j))
        held, old = rows, counts


def test_speed_is_the_rate_on_one_node_else_the_slowest_spread_rate() -> None:
    nodes = Nodes.of({"v100": 4, "k80": 4}, 4)
    rate, spread = np.array([[10.0, 4.0]] * 3), np.array([[8.0, 3.0]] * 3)
    rows = Rows.of([0, 1, 1, 2, 2], [0, 0, 1, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1])
    crew = gangs(rows, rate, spread, nodes)
    assert crew.job.tolist() == [0, 1, 2, 2]
    assert crew.speed.tolist() == [10, 3, 10, 4]  # alone; mixed, min(8, 3); two copies, each alone
