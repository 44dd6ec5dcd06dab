"""A method as a policy: everybody gets a reason, refusals are right, budgets are priced, order does not matter."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import outcomes, snapshot

from eiffel.aggregate import Aggregate, Rank
from eiffel.budget import Budget
from eiffel.core.model import Local, Reason, generator
from eiffel.method import Cohort, Method
from eiffel.pace import EiffelPace, Fixed
from eiffel.select import EiffelSelect, SizeWeighted, Uniform

W0 = np.zeros(2, np.float32)
SELECTS = [Uniform(), SizeWeighted(), EiffelSelect(), EiffelSelect(pick="top")]


def method(**choices: Any) -> Method:
    return Method(**({"pace": Fixed(3), "cohort": Cohort(2)} | choices))


def decide(m: Method, world: Any, seed: int = 0) -> Any:
    return m.decide(m.init(W0, world.size), world, generator(seed, world.round))


def test_reasons_by_hand() -> None:
    """3 steps of 1 J and one exchange of 1 J cost 4 J; 3 s + 1 s = 4 s, or 3*5 + 1 = 16 s on device 3.

    Device 0 offline, 1 has only 4 J left (a task must leave something), 2 fine, 3 misses the deadline of 10 s.
    """
    world = snapshot(
        4,
        reason=np.array([Reason.OFFLINE, 0, 0, 0], np.uint8),
        battery_j=np.array([100, 4, 100, 100], np.float32),
        step_s=np.array([1, 1, 1, 5], np.float32),
    )
    plan = decide(method(cohort=Cohort(2, deadline_s=10.0)), world)
    assert plan.chosen.tolist() == [2]
    assert plan.steps.tolist() == [3]
    assert [Reason(c) for c in plan.reason] == [
        Reason.OFFLINE,
        Reason.BATTERY,
        Reason.CHOSEN,
        Reason.DEADLINE,
    ]


def test_the_probe_counts_against_charge_and_deadline() -> None:
    """A probe of 6 samples at batch 2 costs 6/(3*2) = 1 step: 5 J and 5 s in all, where 4.5 are to be had."""
    world = snapshot(2, battery_j=np.array([4.5, 100], np.float32))
    assert decide(method(local=Local(batch=2)), world).chosen.tolist() == [0, 1]
    probing = method(local=Local(batch=2, probe=6))
    assert decide(probing, world).reason.tolist() == [Reason.BATTERY, Reason.CHOSEN]
    hurried = method(local=Local(batch=2, probe=6), cohort=Cohort(2, deadline_s=4.5))
    assert decide(hurried, snapshot(2)).reason.tolist() == [Reason.DEADLINE] * 2


def test_a_reserve_keeps_charge() -> None:
    """Capacity 200 J, reserve 25 % = 50 J: with 53 J left a task of 4 J is refused, with 55 J it is not."""
    world = snapshot(2, battery_j=np.array([53, 55], np.float32))
    plan = decide(method(cohort=Cohort(2, battery_reserve=0.25)), world)
    assert plan.reason.tolist() == [Reason.BATTERY, Reason.CHOSEN]


def test_mains_power_is_never_refused_for_its_battery() -> None:
    inf = np.full(2, np.inf, np.float32)
    plan = decide(method(cohort=Cohort(2, battery_reserve=0.5)), snapshot(2, battery_j=inf, capacity_j=inf))
    assert plan.chosen.tolist() == [0, 1]


def test_over_selection_asks_more_and_waits_for_fewer() -> None:
    plan = decide(method(cohort=Cohort(4, over_select=1.5)), snapshot(20))
    assert plan.chosen.size == 6
    assert plan.wait_for == 4


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 9999), st.integers(1, 30), st.integers(1, 12), st.sampled_from(SELECTS), st.floats(0, 1)
)
def test_every_device_has_one_reason_and_the_cohort_is_as_full_as_it_can_be(
    seed: int, n: int, k: int, select: Any, offline: float
) -> None:
    rng = np.random.default_rng(seed)
    reason = np.where(rng.random(n) < offline, Reason.OFFLINE, 0).astype(np.uint8)
    cost = rng.lognormal(size=n).astype(np.float32)
    cost[rng.random(n) < 0.1] = np.nan
    world = snapshot(
        n, reason=reason, step_j=cost, step_s=cost, battery_j=rng.uniform(0, 20, n).astype(np.float32)
    )
    plan = decide(method(select=select, cohort=Cohort(k)), world, seed)
    chosen = np.flatnonzero(plan.reason == Reason.CHOSEN)
    np.testing.assert_array_equal(plan.chosen, chosen)
    assert (plan.reason[reason != 0] == Reason.OFFLINE).all()
    drawable = np.isin(plan.reason, [Reason.CHOSEN, Reason.NOT_DRAWN])
    usable = drawable & (np.isfinite(cost) | isinstance(select, Uniform))
    assert chosen.size == min(k, usable.sum())


def test_a_round_is_a_function_of_seed_and_round_alone() -> None:
    m, world = method(select=EiffelSelect()), snapshot(50)
    first = [decide(m, world, 7).chosen.tolist() for _ in range(2)]
    assert first[0] == first[1]
    assert decide(m, replace(world, round=2), 7).chosen.tolist() != first[0]
    assert decide(m, world, 8).chosen.tolist() != first[0]


def test_the_plain_sum_is_asked_for_only_when_the_weights_differ() -> None:
    m = method(pace=EiffelPace(), aggregate=Aggregate(Rank(always=True)), local=Local(probe=4))
    plan = decide(m, snapshot(5))
    from support import reports

    assert plan.weigh(reports([1.0, 2.0])).shape == (2, 2)
    assert plan.weigh(reports([np.nan, np.nan])).shape == (1, 2)


def test_too_few_deliveries_do_not_move_the_model() -> None:
    m = method(cohort=Cohort(2, quorum=2))
    state = m.init(W0, 3)
    world = snapshot(3)
    plan = m.decide(state, world, generator(0, 1))
    one = outcomes(1, plan.chosen[:1], [1.0], [[1.0, 1.0]], [[1.0]])
    assert m.learn(state, world, plan, one).aggregate is state.aggregate


def test_an_overspent_budget_raises_its_price_until_cheap_devices_win() -> None:
    """Half the devices cost 10 J a round, half 1 J; 3 J a round are allowed for two devices."""
    cost = np.tile([10, 1], 20).astype(np.float32)
    world = snapshot(
        40, exchange_j=cost, step_j=np.zeros(40, np.float32) + 1e-6, battery_j=np.full(40, 1e9, np.float32)
    )

    def spent(budget: Budget) -> float:
        m = method(select=EiffelSelect(q=0), budget=budget)
        state, joules = m.init(W0, 40), []
        for round_ in range(1, 301):
            now = replace(world, round=round_)
            plan = m.decide(state, now, generator(0, round_))
            out = replace(outcomes(round_, plan.chosen, [1.0, 1.0]), joules=cost[plan.chosen].astype(float))
            state = m.learn(state, now, plan, out)
            joules.append(out.joules.sum())
        return float(np.mean(joules[100:]))

    free, tight = spent(Budget()), spent(Budget(joules_round=3.0))
    assert free > 5
    assert tight == pytest.approx(3.0, rel=0.15)


def test_a_spent_budget_ends_the_run_with_a_reason() -> None:
    """Tasks are predicted at 4 J; after 4 J of 5 nobody's task can be paid: the next round is the last."""
    m = method(budget=Budget(joules=5.0, rounds=10))
    state = m.init(W0, 4)
    world = snapshot(4)
    for round_ in range(1, 4):
        plan = m.decide(state, replace(world, round=round_), generator(0, round_))
        out = replace(
            outcomes(round_, plan.chosen, [1.0] * plan.chosen.size), joules=np.full(plan.chosen.size, 2.0)
        )
        state = m.learn(state, world, plan, out)
        if m.stop(state):
            break
    assert m.stop(state) == "the energy budget is spent: 4 of 5 J"


def test_without_budgets_the_prices_stay_one_half() -> None:
    m = method()
    state, world = m.init(W0, 3), snapshot(3)
    plan = m.decide(state, world, generator(0, 1))
    after = m.learn(state, world, plan, outcomes(1, plan.chosen, [1.0, 1.0]))
    assert (after.spending.price_s, after.spending.price_j, after.spending.price_b) == (0.5, 0.5, 0.0)


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ({"size": 0}, "cohort.size is 0"),
        ({"size": 4, "wait_for": 9}, "cohort.wait_for is 9"),
        ({"over_select": 0.5}, "cohort.over_select is 0.5"),
        ({"deadline_s": -1.0}, "cohort.deadline_s is -1.0"),
        ({"battery_reserve": 1.0}, "cohort.battery_reserve is 1.0"),
    ],
)
def test_impossible_rounds_are_refused_by_name(numbers: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Cohort(**numbers)


def test_impossible_budgets_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"budget\.joules is 0"):
        Budget(joules=0)
    assert Budget().left_j(Budget().init()) == math.inf
