"""Power-of-Choice: who is asked, who trains, and what the asking costs."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support import outcomes, snapshot

from eiffel.core.model import Local, Reason, generator
from eiffel.method import Cohort, Method
from eiffel.pace import Fixed
from eiffel.select import Candidates, PowerOfChoice, Tempo


def candidates(n: int, round_: int = 1, **columns: Any) -> Candidates:
    world = snapshot(n, round_=round_, **columns)
    return Candidates(world, world.reason == 0, world.step_s, world.step_j, Tempo(1))


def test_the_largest_losses_of_those_asked() -> None:
    """k = 2 of d = 4 asked (1, 3, 5, 7) with losses 1, 4, 2, 3: 3 and 7 train. 0 was not asked, whatever its loss."""
    rule, among = PowerOfChoice(d=2), candidates(8)
    state = rule.learn(rule.init(8), outcomes(0, [0], [99.0]))
    state = rule.hear(state, outcomes(1, [1, 3, 5, 7], [1.0, 4.0, 2.0, 3.0]))
    chosen, score = rule.choose(state, among, 2, generator(0, 1))
    assert chosen.tolist() == [3, 7]
    assert score[[1, 3, 5, 7]].tolist() == [1, 4, 2, 3]
    assert (score > -np.inf).all()
    assert rule.held(state, 1).tolist() == [1, 3, 5, 7]
    assert rule.held(state, 2).size == 0


def test_asked_in_proportion_to_samples() -> None:
    """One of two devices with 30 and 10 samples: the first is asked three times in four."""
    rule, among = PowerOfChoice(d=1), candidates(2, examples=np.array([30, 10], np.int32))
    first = [rule.ask(rule.init(2), among, 1, generator(s, 1)).tolist() == [0] for s in range(2000)]
    assert np.mean(first) == pytest.approx(0.75, abs=4 * math.sqrt(0.75 * 0.25 / 2000))


def test_silence_is_filled_and_nan_comes_last() -> None:
    """One of those asked answered, with NaN: it and others train, so that the cohort is full."""
    rule, among = PowerOfChoice(), candidates(5)
    state = rule.hear(rule.init(5), outcomes(1, [2, 4], [math.nan, 0.1]))
    assert rule.choose(state, among, 1, generator(0, 1))[0].tolist() == [4]
    assert rule.choose(state, among, 2, generator(0, 1))[0].tolist() == [2, 4]
    assert rule.choose(state, among, 4, generator(0, 1))[0].size == 4


def test_stale_losses_need_no_probe_and_unknown_ones_come_first() -> None:
    """rpow-d with d = all: 3 never reported, so it is first; then the largest old loss."""
    rule, among = PowerOfChoice(loss="stale", d=4), candidates(4)
    state = rule.learn(rule.init(4), outcomes(1, [0, 1, 2], [1.0, 9.0, 5.0]))
    assert rule.ask(state, among, 1, generator(0, 1)).size == 0
    assert rule.choose(state, among, 1, generator(0, 1))[0].tolist() == [3]
    assert rule.choose(state, among, 2, generator(0, 1))[0].tolist() == [1, 3]


def test_the_probe_and_the_plan_of_a_method() -> None:
    """The probe moves scalars up and asks on 64 samples (cpow-d); who was asked does not download again."""
    method = Method(
        select=PowerOfChoice(d=3, probe=64), cohort=Cohort(size=2), pace=Fixed(3), local=Local(probe=0)
    )
    state, world = method.init(np.zeros(2, np.float32), 9), snapshot(9, 1)
    probe = method.ask(state, world, generator(0, 1, 1))
    assert probe is not None
    assert probe.chosen.size == 6
    assert probe.probing
    assert probe.local.probe == 64
    assert (probe.downlink, probe.uplink) == (1.0, 16 / 56)
    state = method.hear(state, world, probe, outcomes(1, probe.chosen, np.arange(6.0)))
    plan = method.decide(state, world, generator(0, 1))
    assert plan.chosen.tolist() == probe.chosen[-2:].tolist()
    assert (plan.downlink, plan.uplink, plan.local.probe) == (0.0, 1.0, 0)
    later = method.decide(state, replace(world, round=2), generator(0, 2))
    assert later.downlink == 1.0
    assert set(plan.reason) == {Reason.CHOSEN, Reason.NOT_DRAWN}


def test_fewer_candidates_than_the_cohort_are_refused() -> None:
    with pytest.raises(ValueError, match=r"select\.d is 0\.5"):
        PowerOfChoice(d=0.5)
