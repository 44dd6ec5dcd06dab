"""FedCS, TiFL and REFL on fleets small enough to follow by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import outcomes, snapshot

from eiffel.core.model import Reason, generator
from eiffel.select import Candidates, FedCs, Refl, Tempo, TiFl
from eiffel.select.fedcs import greedy


def candidates(n: int, round_: int = 1, steps: int = 1, **columns: Any) -> Candidates:
    world = snapshot(n, round_=round_, **columns)
    task = np.asarray(steps * world.step_s + world.exchange_s, np.float32)
    return Candidates(world, world.reason == 0, task, task, Tempo(steps))


# FedCS.


def test_fedcs_by_hand() -> None:
    """Uploads 1, 1, 3 s; ready after 2, 4, 0 s.

    First: 1 + 2 = 3, 1 + 4 = 5, 3 + 0 = 3: device 0 (the lower index), 3 s gone.
    Then: device 1 prolongs by 1 + max(0, 4 - 3) = 2, device 2 by 3 + 0 = 3: device 1, 5 s gone. Then device 2: 8 s.
    """
    upload, ready = np.array([1.0, 1.0, 3.0]), np.array([2.0, 4.0, 0.0])
    assert greedy(upload, ready, 3, np.inf)[0].tolist() == [0, 1, 2]
    assert greedy(upload, ready, 3, 7.9)[0].tolist() == [0, 1]
    assert greedy(upload, ready, 3, 7.9)[1]
    assert greedy(upload, ready, 2, 7.9) == (pytest.approx([0, 1]), False)
    assert greedy(upload, ready, 3, 2.9)[0].size == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(0, 9)), min_size=1, max_size=6), st.integers(1, 6))
def test_fedcs_takes_the_shortest_extension_each_time(rows: list[tuple[float, float]], k: int) -> None:
    """Against the definition, device by device."""
    upload, ready = (np.array([r[i] for r in rows]) for i in (0, 1))
    elapsed, left, expected = 0.0, list(range(len(rows))), []
    for _ in range(min(k, len(rows))):
        best = min(left, key=lambda i: (rows[i][0] + max(0.0, rows[i][1] - elapsed), i))
        elapsed += rows[best][0] + max(0.0, rows[best][1] - elapsed)
        left.remove(best)
        expected.append(best)
    assert greedy(upload, ready, k, np.inf)[0].tolist() == expected


def test_fedcs_prefers_fast_devices_but_only_among_those_asked() -> None:
    """10 devices, ever slower. All asked: the two fastest. Two asked: whoever was asked."""
    slow = np.arange(1, 11, dtype=np.float32)
    among = candidates(10, step_s=slow)
    assert FedCs(candidates=5).choose(None, among, 2, generator(0, 1))[0].tolist() == [0, 1]
    few = {tuple(FedCs(candidates=1).choose(None, among, 2, generator(s, 1))[0]) for s in range(50)}
    assert len(few) > 10


# TiFL.


def test_tifl_tiers_by_speed_and_one_a_round() -> None:
    """Ten devices, five tiers of two; a cohort of two comes from one of them."""
    among = candidates(10, step_s=np.array([9, 1, 8, 2, 7, 3, 6, 4, 5, 10], np.float32))
    rule = TiFl(steps=1)
    state = rule.see(rule.init(10), among.snapshot)
    assert state.tier.tolist() == [4, 0, 3, 0, 3, 1, 2, 1, 2, 4]
    for s in range(20):
        chosen, _ = rule.choose(state, among, 2, generator(s, 1))
        assert np.unique(state.tier[chosen]).size == 1


def test_tifl_fills_from_the_neighbours() -> None:
    """A cohort of three from tiers of two: the third device is from a tier next to it."""
    among = candidates(10, step_s=np.arange(1, 11, dtype=np.float32))
    rule = TiFl()
    state = rule.see(rule.init(10), among.snapshot)
    for s in range(20):
        tiers = np.sort(state.tier[rule.choose(state, among, 3, generator(s, 1))[0]])
        assert tiers[1] in (tiers[0], tiers[2])
        assert tiers[2] - tiers[0] == 1


def test_tifl_odds_by_hand() -> None:
    """n = 3 tiers, losses 1, 5, 3 of the devices 0, 1, 2: D = 3 x 4/2 = 6; neediest first: 3/6, 2/6, 1/6."""
    rule = TiFl(tiers=3, every=1)
    state = rule.see(rule.init(3), candidates(3, step_s=np.array([1, 2, 3], np.float32)).snapshot)
    state = rule.learn(state, outcomes(1, [0, 1, 2], [1.0, 5.0, 3.0]))
    np.testing.assert_allclose(state.odds, [1 / 6, 3 / 6, 2 / 6])


def test_tifl_credits_run_out() -> None:
    """Credits 1 for the slowest tier, 2 for the faster: after three rounds all are spent, and chance decides."""
    rule = TiFl(tiers=2, every=1, credits=1)
    among = candidates(2, step_s=np.array([1, 2], np.float32))
    state = rule.see(rule.init(2), among.snapshot)
    assert state.credits.tolist() == [2, 1]
    state = rule.learn(state, outcomes(1, [1], [9.0]))
    assert state.credits.tolist() == [2, 0]
    picks = {rule.choose(state, among, 1, generator(s, 2))[0][0] for s in range(20)}
    assert picks == {0}
    for round_ in (2, 3):
        state = rule.learn(state, outcomes(round_, [0], [1.0]))
    picks = {rule.choose(state, among, 1, generator(s, 4))[0][0] for s in range(40)}
    assert picks == {0, 1}


# REFL.


def test_refl_prefers_those_who_are_seldom_there() -> None:
    """Device 0 was offline in two of three rounds, 1 and 2 never: it is first whenever it is there."""
    rule = Refl(smoothing=0.5, pause=0)
    state = rule.init(3)
    for there in (False, False, True):
        reason = np.array([Reason.CHOSEN if there else Reason.OFFLINE, 0, 0], np.uint8)
        state = rule.see(state, snapshot(3, reason=reason))
    np.testing.assert_allclose(state.reach, [0.625, 1, 1])  # 1 -> 1/2 -> 1/4 -> 1/4 + 1/2 (1 - 1/4) = 5/8
    for s in range(20):
        chosen, _ = rule.choose(state, candidates(3), 2, generator(s, 4))
        assert 0 in chosen


def test_refl_gives_a_rest() -> None:
    """Who took part in round 1 pauses in rounds 2 to 6, unless nobody else is there."""
    rule = Refl(pause=5)
    state = rule.learn(rule.init(4), outcomes(1, [0, 1], [1.0, 1.0]))
    for round_ in (2, 6):
        assert rule.choose(state, candidates(4, round_), 2, generator(0, round_))[0].tolist() == [2, 3]
    assert rule.choose(state, candidates(4, 3), 3, generator(0, 3))[0].size == 3
    later = {tuple(rule.choose(state, candidates(4, 7), 2, generator(s, 7))[0]) for s in range(60)}
    assert len(later) == 6


@pytest.mark.parametrize(
    ("kind", "bad"),
    [(FedCs, {"candidates": 0.5}), (FedCs, {"round_s": 0.0}), (TiFl, {"tiers": 0}), (Refl, {"pause": -1})],
)
def test_numbers_without_meaning_are_refused(kind: Any, bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="select"):
        kind(**bad)
