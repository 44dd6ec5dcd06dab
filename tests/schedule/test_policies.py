"""Policies by hand: one decision at a time, no simulator; then ties (A10), and what each promises."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eiffel.core.jobs import NOWHERE, Nodes, Outcomes, Plan, Refusal, Rows, Snapshot, Trace
from eiffel.core.market import exponential, purchase
from eiffel.schedule import POLICIES, policy
from eiffel.schedule.elas import to_come
from eiffel.schedule.gavel import isolated
from eiffel.schedule.hadar import _Floor
from eiffel.schedule.hadare import merge, split
from eiffel.schedule.tiresias import gittins
from eiffel.schedule.utility import Guard, worth
from eiffel.worlds.cluster import simulate

RNG = np.random.default_rng(0)


def snapshot(gang: list[int], rate: list[list[float]], nodes: Nodes, **other: Any) -> Snapshot:
    """J jobs that arrived at 0 with 1000 steps each, unless told otherwise."""
    n = len(gang)
    x = np.array(rate, float)
    fields: dict[str, Any] = {
        "now": 0.0, "slot": 360.0, "restart": 0.0, "job": np.arange(n), "arrival": np.zeros(n),
        "work": np.full(n, 1000.0), "remaining": np.full(n, 1000.0), "gang": np.array(gang), "weight": np.ones(n),
        "rate": x, "spread": 0.8 * x, "attained": np.zeros(n), "ran": np.zeros(n), "progress": np.zeros(n),
        "epochs": np.full(n, 10), "last": np.zeros(n), "held": NOWHERE, "nodes": nodes, "free": nodes.devices,
    }  # fmt: skip
    return Snapshot(**{**fields, **other})


def decide(kind: str, seen: Snapshot, **options: Any) -> Plan:
    made = policy(kind, **options)
    return made.decide(made.init(seen.nodes), seen, np.random.default_rng(0))


def runs(plan: Plan, seen: Snapshot) -> list[int]:
    return plan.rows.held(len(seen)).tolist()


ONE_TYPE = Nodes.of({"gpu": 4}, 4)
TWO_TYPES = Nodes.of({"v100": 2, "k80": 2}, 2)


# ---- orders


def test_fifo_blocks_at_the_head_and_backfill_does_not() -> None:
    """4 GPUs; gangs 2, 4, 1 in order of arrival: the 4 blocks the 1, unless it may be passed over."""
    seen = snapshot([2, 4, 1], [[1.0]] * 3, ONE_TYPE, arrival=np.array([0.0, 1, 2]))
    plan = decide("fifo", seen)
    assert runs(plan, seen) == [2, 0, 0]
    assert plan.why.tolist() == [Refusal.NONE, Refusal.NO_ROOM, Refusal.BEHIND]
    assert runs(decide("fifo", seen, backfill=True), seen) == [2, 0, 1]


def test_yarn_relaxes_or_waits_for_one_node() -> None:
    """Two nodes of 2 with one GPU taken on each: a gang of 2 spreads at once, or waits."""
    nodes = Nodes.of({"gpu": 4}, 2)
    held = Rows.of([0, 1], [0, 1], [1, 1])
    seen = snapshot([1, 1, 2], [[1.0]] * 3, nodes, held=held)
    assert runs(decide("yarn_cs", seen), seen) == [1, 1, 2]
    waits = decide("yarn_cs", seen, patience="wait")
    assert runs(waits, seen) == [1, 1, 0]
    assert waits.why[2] == Refusal.FRAGMENTED


def test_srtf_and_srsf() -> None:
    """Times left 10 and 6 s with gangs 1 and 4: by time the second goes first, by GPU-seconds (10, 24) the first."""
    seen = snapshot([1, 4], [[1.0], [1.0]], ONE_TYPE, remaining=np.array([10.0, 6.0]))
    assert runs(decide("srtf", seen), seen) == [0, 4]
    assert runs(decide("srtf", seen, service=True), seen) == [1, 0]


def test_jobs_take_the_fastest_type_with_room() -> None:
    seen = snapshot([2, 2, 2], [[4.0, 1], [4, 2], [4, 3]], TWO_TYPES, remaining=np.array([1.0, 2, 3]))
    plan = decide("srtf", seen)
    assert TWO_TYPES.type[plan.rows.node].tolist() == [0, 1]
    assert runs(plan, seen) == [2, 2, 0]
    assert (plan.why[2], plan.limit[2]) == (Refusal.NO_ROOM, 0)


# ---- Tiresias, E-LAS


def test_tiresias_queues_by_service_then_running_then_arrival() -> None:
    """Service 4000, 100, 0 GPU-s with the limit 3250: the first is in the lower queue; the second runs and stays."""
    held = Rows.of([1], [0], [4])
    seen = snapshot([4, 4, 4], [[1.0]] * 3, ONE_TYPE, attained=np.array([4000.0, 100, 0]), held=held)
    plan = decide("tiresias", seen)
    assert runs(plan, seen) == [0, 4, 0]
    assert plan.until == pytest.approx((3250 - 100) / 4)  # when it will cross into the next queue
    crossed = replace(seen, attained=np.array([4000.0, 3250, 0]))
    assert runs(decide("tiresias", crossed), crossed) == [0, 0, 4]


def test_tiresias_promotes_a_job_that_has_waited_long() -> None:
    """It ran for 100 s and then waited for 200 s: with promote = 2 its service counts as 0 again."""
    seen = snapshot(
        [4, 4], [[1.0]] * 2, ONE_TYPE, now=1000.0, attained=np.array([4000.0, 3300]), ran=np.array([100.0, 100]),
        last=np.array([800.0, 1000]), held=Rows.of([1], [0], [4]),
    )  # fmt: skip
    assert runs(decide("tiresias", seen), seen) == [0, 4]
    assert runs(decide("tiresias", seen, promote=2.0), seen) == [4, 0]


def test_gittins_index_by_hand() -> None:
    """Sample 2, 4, 10; delta 3. At 0: one of three ends, spending 2 + 3 + 3: 1/8. At 5: none within 3: 0 / 3."""
    ended = np.array([2.0, 4.0, 10.0])
    assert gittins(np.array([0.0, 5.0, 8.0, 11.0]), ended, 3.0) == pytest.approx([1 / 8, 0, 1 / 2, 0])
    assert gittins(np.array([0.0, 5.0]), np.zeros(0), 3.0).tolist() == [0, -5]  # nothing known: least service


def test_elas_by_hand() -> None:
    """100 GPU-s for 3 of 10 epochs, e = .35: 100 x .65 / .35; for 0 of 10, e = .05: 1900; for 0 of 1: 100."""
    got = to_come(np.array([100.0, 100.0, 100.0]), np.array([0.3, 0.0, 0.0]), np.array([10.0, 10.0, 1.0]))
    assert got == pytest.approx([100 * 0.65 / 0.35, 1900, 100])


def test_elas_keeps_the_running_job_in_near_ties() -> None:
    """100 against 90 GPU-s still to come: the running one counts 70."""
    seen = snapshot(
        [4, 4], [[1.0]] * 2, ONE_TYPE, attained=np.array([100.0, 90]), held=Rows.of([0], [0], [4])
    )
    assert runs(decide("elas", seen), seen) == [4, 0]
    assert runs(decide("elas", seen, hysteresis=1.0), seen) == [0, 4]


# ---- Gavel


def test_isolated_shares() -> None:
    """2 + 2 GPUs, two jobs, gangs 1 and 2: 1 GPU of each type: 1 + 1 capped to 1/2 + 1/2; the other 1/2 + 1/2."""
    assert isolated(np.array([1, 2]), np.array([2.0, 2.0])) == pytest.approx(
        np.array([[0.5, 0.5], [0.5, 0.5]])
    )


def test_gavel_gives_time_by_share() -> None:
    """Two jobs, one V100 and one K80, rates (4, 1) and (1, 1): the first belongs on the V100."""
    nodes = Nodes.of({"v100": 1, "k80": 1}, 1)
    seen = snapshot([1, 1], [[4.0, 1], [1, 1]], nodes)
    plan = decide("gavel", seen)
    assert nodes.type[plan.rows.node].tolist() == [0, 1]


def test_min_objective_of_isolation_equals_max_min_on_one_type() -> None:
    """Gavel's own check: with one type and gangs of 1, max-min fairness is the isolated share (5 jobs, 2 GPUs)."""
    seen = snapshot([1] * 5, [[1.0]] * 5, Nodes.of({"gpu": 2}, 2))
    shares = decide("gavel", seen).memo.share
    assert shares == pytest.approx(decide("gavel", seen, objective="isolated").memo.share)
    assert shares == pytest.approx(np.full((5, 1), 0.4))


@pytest.mark.parametrize("objective", ["max_min", "makespan", "finish_time", "isolated"])
def test_ties_take_turns_a10(objective: str) -> None:
    """3 identical jobs on 1 GPU: in 30 slots each runs 10, and none waits for more than 2 in a row."""
    made = policy("gavel", objective=objective)
    nodes = Nodes.of({"gpu": 1}, 1)
    for order in ([0, 1, 2], [2, 0, 1]):
        seen = snapshot([1] * 3, [[1.0]] * 3, nodes, work=np.full(3, 1e9), remaining=np.full(3, 1e9))
        state, ran = made.init(nodes), []
        for k in range(30):
            now = replace(seen, now=360.0 * k)
            plan = made.decide(state, now, np.random.default_rng(k))
            busy = np.where(plan.rows.held(3) > 0, 360.0, 0.0)
            out = Outcomes(now.now, 360.0, busy, busy, busy, busy > 0, np.zeros(3, bool))
            state = made.learn(state, plan, out, now)
            seen = replace(seen, held=plan.rows, remaining=seen.remaining - busy)
            ran.append(order[int(plan.rows.job[0])])
        assert np.bincount(ran).tolist() == [10, 10, 10]
        assert all(len(set(ran[k : k + 3])) == 3 for k in range(0, 30, 3))


@pytest.mark.parametrize("kind", sorted(set(POLICIES) - {"gavel", "hadare", "elas"}))
def test_equal_jobs_never_preempt_each_other(kind: str) -> None:
    """Gavel shares time, HadarE forks, and for E-LAS a job that has had no service goes first: not equal."""
    n = 6
    trace = Trace(
        tuple(str(k) for k in range(n)), np.zeros(n), np.full(n, 3000.0), np.ones(n, int), np.full(n, 10), np.ones(n),
        np.ones((n, 1)), np.ones((n, 1)), ("gpu",), ("x",) * n,
    )  # fmt: skip
    made = policy("market", utility="jct") if kind == "market" else policy(kind)
    run = simulate(trace, Nodes.of({"gpu": 2}, 2), made, slot_s=300, restart_s=10)
    assert run.preemptions.sum() == 0
    assert run.complete


# ---- Hadar, the market


def test_utilities_by_hand() -> None:
    """rate (4, 2), 1000 steps left of 1000, gang 2, at t = 0."""
    seen = snapshot([2], [[4.0, 2.0]], TWO_TYPES)
    assert worth("jct", seen, seen.rate) == pytest.approx(np.array([[4 / 2000, 2 / 2000]]))
    assert worth("thr", seen, seen.rate) == pytest.approx(np.array([[250 / 250 / 2, 250 / 500 / 2]]))
    assert worth("mkq", seen, seen.rate) == pytest.approx(np.array([[1.0, 0.5]]))
    assert worth("ftf", seen, seen.rate).argmax() == 0
    with pytest.raises(ValueError, match="utility 'speed' is not one of"):
        worth("speed", seen, seen.rate)


def test_guard_turns_late_when_the_promise_is_broken() -> None:
    """1000 steps at 4 or 2 steps/s on one GPU at a time: promised at 250 s; at 2000 s with 500 left it is late."""
    seen = snapshot([1], [[4.0, 2.0]], TWO_TYPES)
    guard = Guard().look(seen, 0.06)
    assert guard.promise == pytest.approx(250)
    assert not guard.late
    assert guard.look(replace(seen, now=2000.0, remaining=np.array([500.0])), 0.06).late


@pytest.mark.parametrize("kind", ["hadar", "market"])
def test_comparative_advantage(kind: str) -> None:
    """Both are faster on the V100, but the second loses little on the K80: it goes there."""
    seen = snapshot([2, 2], [[4.0, 1.0], [4.0, 3.8]], TWO_TYPES)
    plan = decide(kind, seen, utility="jct")
    if kind == "market":
        assert TWO_TYPES.type[plan.rows.node].tolist() == [0, 1]
    assert runs(plan, seen) == [2, 2]


@pytest.mark.parametrize("kind", ["hadar", "market"])
def test_a_gang_may_lie_on_two_types(kind: str) -> None:
    seen = snapshot([4], [[4.0, 1.0]], TWO_TYPES)
    assert runs(decide(kind, seen), seen) == [4]
    assert runs(decide(kind, seen, mixed=False), seen) == [0]


def test_prices_are_reasons() -> None:
    """Hadar without refill: the second job is worth less than the full type's price, and is told so."""
    seen = snapshot([4, 4], [[4.0], [1.0]], ONE_TYPE)
    plan = decide("hadar", seen, refill=False)
    assert plan.why.tolist() == [Refusal.NONE, Refusal.PRICE]
    assert plan.price[1] > plan.value[1]


def test_the_auction_charges_the_prices_of_the_market_module() -> None:
    """The sequential loop keeps prices in plain floats; they are `exponential` and `purchase` all the same."""
    value, capacity = np.array([[4.0, 1.0], [2.0, 3.0]]), np.array([4, 8])
    floor = _Floor(value, capacity, 0.1)
    low, high = 0.1 * value.min(axis=0), value.max(axis=0)
    size = capacity.astype(float)
    for used in ([0, 0], [2, 0], [2, 8]):
        spent = np.array(used, float)
        assert floor.prices() == pytest.approx(exponential(spent, size, low, high))
        for count in (1, 3):
            take = np.full(2, float(count))
            assert [floor.cost(r, count) for r in (0, 1)] == pytest.approx(
                purchase(spent, take, size, low, high)
            )
        floor.take([2, 0] if used == [0, 0] else [0, 8])


def test_hadar_on_single_gpu_nodes_is_the_best_assignment() -> None:
    """Rates (4, 3) and (4, 1), one node of each type: the sum 3 + 4 beats 4 + 1."""
    nodes = Nodes.of({"v100": 1, "k80": 1}, 1)
    seen = snapshot([1, 1], [[4.0, 3.0], [4.0, 1.0]], nodes)
    assert nodes.type[decide("hadar", seen, utility="jct").rows.node].tolist() == [1, 0]


def test_hadar_that_stays_does_not_move_a_running_job() -> None:
    nodes = Nodes.of({"v100": 1, "k80": 1}, 1)
    seen = snapshot([1], [[4.0, 1.0]], nodes, held=Rows.of([0], [1], [1]))
    assert decide("hadar", seen).rows.node.tolist() == [0]
    assert decide("hadar", seen, migrate=False).rows.node.tolist() == [1]


# ---- HadarE


def test_idle_nodes_take_copies_only_if_that_pays() -> None:
    """Rates 4 and 1: with copies worth .9 each, .9 x 5 = 4.5 > 4; worth .7, 3.5 < 4: no fork."""
    nodes = Nodes.of({"v100": 1, "k80": 1}, 1)
    seen = snapshot([1], [[4.0, 1.0]], nodes)
    forked = decide("hadare", seen, efficiency=0.9)
    assert (forked.rows.node.tolist(), forked.rows.copy.tolist()) == ([0, 1], [0, 1])
    assert len(decide("hadare", seen, efficiency=0.7).rows) == 1


def test_the_longest_job_gets_the_idle_node() -> None:
    nodes = Nodes.of({"v100": 3}, 1)
    seen = snapshot([1, 1], [[1.0], [1.0]], nodes, remaining=np.array([500.0, 900.0]))
    assert runs(decide("hadare", seen), seen) == [1, 2]


def test_a_forked_job_does_the_same_steps_sooner() -> None:
    trace = Trace(
        ("a",), np.zeros(1), np.array([9000.0]), np.ones(1, int), np.array([10]), np.ones(1), np.ones((1, 1)),
        np.ones((1, 1)), ("gpu",), ("x",),
    )  # fmt: skip
    nodes = Nodes.of({"gpu": 5}, 1)
    alone = simulate(trace, nodes, policy("hadar"))
    forked = simulate(trace, nodes, policy("hadare", efficiency=1.0))
    assert forked.done.tolist() == alone.done.tolist() == [9000]
    assert forked.finish[0] == pytest.approx(9000 / 5 + 10 + 10 * 6)  # restart, and merging once in 6 slots


def test_split_gives_every_step_once() -> None:
    assert split(10, np.array([2.0, 1.0, 1.0])).tolist() == [5, 3, 2]
    assert split(7, np.array([0.0, 3.0])).tolist() == [0, 7]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        steps, rates = int(rng.integers(0, 1000)), rng.uniform(0, 3, int(rng.integers(1, 7)))
        part = split(steps, rates)
        assert part.sum() == steps
        assert np.abs(part - steps * rates / rates.sum()).max() < 1
    with pytest.raises(ValueError, match="cannot split"):
        split(5, np.zeros(2))


def test_merging_copies_is_the_federated_average() -> None:
    """w = 1 and 4 after 10 and 30 steps: (10 + 120) / 40 = 3.25; and bit for bit what FedAvg's code gives."""
    start = np.zeros(1, np.float32)
    one, four = np.ones(1, np.float32), np.full(1, 4, np.float32)
    assert merge(start, [one, four], np.array([10, 30])).tolist() == [3.25]
    rng = np.random.default_rng(0)
    start = rng.normal(size=1000).astype(np.float32)
    models = [start + rng.normal(size=1000).astype(np.float32) for _ in range(3)]
    steps = np.array([5, 11, 2])
    weights = (steps / steps.sum()).astype(np.float32)
    step = weights @ np.stack([start - m for m in models]) * np.float32(1 / (steps / steps.sum()).sum())
    assert (merge(start, models, steps) == start - step).all()


def test_names_and_options_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="no policy 'slurm'; there are yarn_cs"):
        policy("slurm")
    with pytest.raises(ValueError, match=r"policy 'elas'.*'speed'"):
        policy("elas", speed=3)
    assert policy("hadare", inner={"kind": "market", "utility": "jct"}).mixes
