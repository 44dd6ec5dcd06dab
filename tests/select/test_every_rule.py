"""What every selection rule owes: as many distinct candidates as there are, up to k, whatever it has heard."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import outcomes, snapshot

from eiffel.aggregate import Aggregate
from eiffel.core.model import Local, Outcomes, Reason, Reports, generator
from eiffel.method import Cohort, Method
from eiffel.pace import Fixed
from eiffel.select import RULES, Candidates, Tempo

N = 12
ODD = st.sampled_from([0.0, 0.0, 1.0, 1.0, 1e-30, 1e30, math.inf, math.nan])
LISTS = st.lists(ODD, min_size=N, max_size=N)
NAMES = sorted(set(RULES) - {"all"})


def heard(round_: int, device: Any, loss: Any) -> Outcomes:
    """Outcomes of a cohort with these losses, with root mean squares and every update at hand."""
    device, loss = np.asarray(device, np.int64), np.asarray(loss, float)
    u = np.random.default_rng(round_).normal(size=(device.size, 5)).astype(np.float32)
    out = outcomes(round_, device, loss, u, np.full((1, device.size), 0.1))
    told = replace(out.trained.reports, rms=loss)
    return replace(out, trained=replace(out.trained, full=u, reports=told))


def candidates(mask: Any, round_: int = 3, **columns: Any) -> Candidates:
    world = snapshot(len(mask), round_=round_, **columns)
    task = np.asarray(world.step_s + world.exchange_s, np.float32)
    return Candidates(world, np.asarray(mask), task, task, Tempo(3))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(
    mask=st.lists(st.booleans(), min_size=N, max_size=N),
    loss=LISTS,
    speed=LISTS,
    battery=LISTS,
    told=st.integers(0, N),
    k=st.integers(0, N + 2),
)
def test_as_many_distinct_candidates_as_exist(
    name: str,
    mask: list[bool],
    loss: list[float],
    speed: list[float],
    battery: list[float],
    told: int,
    k: int,
) -> None:
    """NaN, infinite, equal and zero losses, durations and charges; none, some or all devices explored."""
    rule = RULES[name]()
    columns = {"step_s": np.array(speed, np.float32), "battery_j": np.array(battery, np.float32)}
    among = candidates(mask, **columns)
    # A cost that is no number rules a device out in Eiffel's rule; everybody else's must cope.
    able = np.asarray(mask) & (np.isfinite(among.task_s) | (name != "eiffel"))
    state = rule.init(N)
    for round_ in (1, 2):
        state = rule.see(state, among.snapshot)
        state = rule.learn(state, heard(round_, range(told), loss[:told]))
    asked = rule.ask(state, among, k, generator(0, 3, 1))
    if asked.size:
        state = rule.hear(state, heard(3, asked, [loss[i] for i in asked]))
    chosen, score = rule.choose(state, among, k, generator(0, 3))
    if name != "eiffel":
        assert chosen.size == min(k, int(able.sum()))
    assert (np.diff(chosen) > 0).all()
    assert able[chosen].all()
    assert set(asked) <= set(np.flatnonzero(mask))
    assert score.shape == (N,)
    assert (score[~np.asarray(mask)] == -np.inf).all()


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_refusal_has_a_reason(name: str) -> None:
    """Through a Method: nobody eligible, then a few; who is not chosen is offline, flat, or was not drawn."""
    method = Method(select=RULES[name](), cohort=Cohort(size=3), pace=Fixed(2))
    state = method.init(np.zeros(4, np.float32), 6)
    offline = np.full(6, Reason.OFFLINE, np.uint8)
    nobody = method.decide(state, snapshot(6, reason=offline), generator(0, 1))
    assert nobody.chosen.size == 0
    assert set(nobody.reason) == {Reason.OFFLINE}
    some = snapshot(
        6, reason=np.array([2, 0, 0, 0, 0, 0], np.uint8), battery_j=np.array([9, 1, 9, 9, 9, 9], np.float32)
    )
    plan = method.decide(state, some, generator(0, 1))
    want = 4 if name == "all" else 3
    assert plan.chosen.size == plan.wait_for == want
    assert plan.reason[0] == Reason.OFFLINE
    assert plan.reason[1] == Reason.BATTERY
    assert np.bincount(plan.reason, minlength=9)[[Reason.CHOSEN, Reason.NOT_DRAWN]].tolist() == [
        want,
        4 - want,
    ]


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_choice_is_a_function_of_its_arguments(name: str) -> None:
    """Same state, candidates and generator: same choice; and the state is not touched."""
    rule = RULES[name]()
    among = candidates([True] * N)
    state = rule.learn(rule.see(rule.init(N), among.snapshot), heard(1, range(6), np.arange(6.0)))
    first = rule.choose(state, among, 4, generator(7, 3))
    again = rule.choose(state, among, 4, generator(7, 3))
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])


@pytest.mark.parametrize("name", sorted(set(RULES) - {"divfl"}))
def test_a_million_devices_are_few(name: str) -> None:
    """The machine may be busy, so the limit is generous: the best of three within half a second.

    DivFL compares samples of 1,000 devices and has its own test.
    """
    import time

    n = 1_000_000
    rng = np.random.default_rng(0)
    rule, mask = RULES[name](), rng.random(n) < 0.9
    task = rng.lognormal(size=n).astype(np.float32)
    world = snapshot(n, round_=3, step_s=task, examples=rng.integers(1, 100, n).astype(np.int32))
    among = Candidates(world, mask, task, task, Tempo(3))
    who = np.arange(0, n, 2)
    told = Reports(who, world.examples[who], np.ones(who.size), rng.random(who.size), rng.random(who.size))
    past = outcomes(1, [0], [1.0])
    past = replace(
        past, device=who, status=np.zeros(who.size, np.uint8), trained=replace(past.trained, reports=told)
    )
    state = rule.learn(rule.see(rule.init(n), world), past)
    seconds = []
    for trial in range(3):
        began = time.perf_counter()
        chosen, _ = rule.choose(state, among, 100, generator(0, trial))
        seconds.append(time.perf_counter() - began)
    assert chosen.size == 100 or name == "all"
    assert min(seconds) < 0.5, f"{name}: {min(seconds) * 1000:.0f} ms"


def test_a_rule_that_scores_minus_infinity_excludes() -> None:
    """A candidate that a rule may not choose is reported as excluded, others as not drawn."""
    method = Method(
        select=RULES["fedcs"](round_s=3.5), cohort=Cohort(size=2), pace=Fixed(1), aggregate=Aggregate()
    )
    slow = np.array([1, 1, 9, 9], np.float32)
    plan = method.decide(
        method.init(np.zeros(1, np.float32), 4),
        snapshot(4, step_s=slow, exchange_s=slow / 10),
        generator(0, 1),
    )
    assert plan.chosen.tolist() == [0, 1]
    roomy = Method(select=RULES["fedcs"](round_s=1.5), cohort=Cohort(size=4), pace=Fixed(1), local=Local())
    plan = roomy.decide(
        roomy.init(np.zeros(1, np.float32), 4),
        snapshot(4, step_s=slow, exchange_s=slow / 10),
        generator(0, 1),
    )
    assert plan.chosen.tolist() == [0, 1]
    assert plan.reason[2:].tolist() == [Reason.EXCLUDED, Reason.EXCLUDED]
