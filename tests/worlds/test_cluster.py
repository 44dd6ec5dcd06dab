"""The cluster world: by hand on tiny clusters, and its laws: work is conserved, gangs are whole, nobody is lost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eiffel.core.jobs import Nodes, Plan, Policy, Refusal, Rows, Snapshot, Trace
from eiffel.core.refusals import verdict
from eiffel.schedule import POLICIES, policy
from eiffel.worlds.cluster import Outage, simulate
from eiffel.worlds.cluster_estimates import Learned, Wrong
from eiffel.worlds.cluster_run import ClusterRun
from eiffel.worlds.cluster_sims import measures

V100, THREE = ("v100",), ("v100", "p100", "k80")


def jobs(
    work: list[float], arrival: list[float] | None = None, gang: list[int] | None = None,
    rate: list[list[float]] | None = None, types: tuple[str, ...] = V100, apart: float = 1.0,
) -> Trace:  # fmt: skip
    n = len(work)
    x = np.array(rate if rate is not None else [[1.0] * len(types)] * n, float).reshape(n, len(types))
    return Trace(
        tuple(str(k) for k in range(n)), np.array(arrival or [0.0] * n), np.array(work, float),
        np.array(gang or [1] * n), np.full(n, 100), np.ones(n), x, apart * x, types, ("test",) * n,
    )  # fmt: skip


def random_trace(rng: np.random.Generator, n: int = 12) -> Trace:
    rate = rng.uniform(0.5, 4, (n, 3)) * (rng.random((n, 3)) < 0.9)
    rate[:, 0] = np.maximum(rate[:, 0], 0.5)
    return jobs(
        rng.uniform(0, 4000, n).tolist(), np.sort(rng.uniform(0, 3000, n)).tolist(),
        rng.choice([1, 2, 4, 8], n).tolist(), rate.tolist(), THREE, 0.7,
    )  # fmt: skip


def check_laws(run: ClusterRun) -> None:
    trace = run.trace
    assert run.complete
    assert np.isfinite(run.finish[run.admitted]).all()  # nobody waits for ever, nobody is lost
    assert run.done == pytest.approx(np.where(run.admitted, trace.work + run.lost, 0.0), rel=1e-9, abs=1e-6)
    s = run.sittings
    assert (s.end >= s.start - 1e-9).all()
    held = np.zeros(len(trace))
    np.add.at(held, s.job, s.count * (s.end - s.start))
    for t in np.unique(s.start):  # capacity at every moment at which something starts
        now = (s.start <= t) & (t < s.end)
        used = np.bincount(s.node[now], s.count[now], len(run.nodes))
        assert (used <= run.nodes.devices).all()
        gpus = np.bincount(s.job[now], s.count[now], len(trace))
        copies = np.bincount(s.job[now], s.copy[now] >= 0, len(trace)) > 0
        assert (gpus[copies] % trace.gang[copies] == 0).all()  # gangs are whole
    best = np.maximum(trace.rate, trace.spread).max(axis=1)
    ideal = np.where(best > 0, trace.work / np.where(best > 0, best, 1), 0)
    if not (s.copy > 0).any():
        assert (run.finish - trace.arrival >= ideal * (1 - 1e-9))[run.admitted].all()


def test_one_job_by_hand() -> None:
    """100 steps at 1 step/s after a restart of 10 s: ends at 110 s, 10 of them not useful."""
    run = simulate(jobs([100.0]), Nodes.of({"v100": 1}, 1), policy("fifo"))
    assert run.finish.tolist() == [110]
    assert (run.ran[0], run.busy[0], run.moves[0], run.preemptions[0]) == (100, 110, 1, 0)


def test_a_slot_leaves_gpus_idle_to_its_end_and_events_do_not() -> None:
    """Two jobs of 100 s on one GPU, restart 10: the second starts at the slot's end, 360, or at once, 110."""
    slots = simulate(jobs([100.0, 100.0]), Nodes.of({"v100": 1}, 1), policy("fifo"))
    events = simulate(jobs([100.0, 100.0]), Nodes.of({"v100": 1}, 1), policy("fifo"), mode="event")
    assert slots.finish.tolist() == [110, 470]
    assert events.finish.tolist() == [110, 220]


def test_spread_and_mixed_gangs_run_at_the_slowest_spread_rate() -> None:
    """A gang of 6 on nodes of 4 at 0.5: 100 steps take 200 s. A gang of 4 on 2 V100 and 2 K80: the K80's 0.5 x 1."""
    spread = simulate(
        jobs([100.0], gang=[6], apart=0.5), Nodes.of({"v100": 8}, 4), policy("hadar"), restart_s=0
    )
    assert spread.finish.tolist() == [200]
    trace = jobs([100.0], gang=[4], rate=[[2.0, 1.0]], types=("v100", "k80"), apart=0.5)
    mixed = simulate(trace, Nodes.of({"v100": 2, "k80": 2}, 2), policy("hadar"), restart_s=0)
    assert mixed.finish.tolist() == [200]


def test_a_failed_node_costs_the_work_since_the_checkpoint_and_comes_back() -> None:
    """One GPU, 1000 steps, slots of 100 s, restart 10, down from 250 to 300 s.

    Steps: 240 by 250 s, the last 100 s of them lost = 140 left over; from 300 s 10 s of restart, then 860: 1170.
    """
    run = simulate(
        jobs([1000.0]), Nodes.of({"v100": 1}, 1), policy("fifo"), slot_s=100, outages=[Outage(0, 250, 300)]
    )
    assert run.lost[0] == pytest.approx(100)
    assert run.finish[0] == pytest.approx(1170)
    assert run.moves[0] == 2
    check_laws(run)


@pytest.mark.parametrize("kind", sorted(POLICIES))
@pytest.mark.parametrize("mode", ["slot", "event"])
def test_laws_hold_for_every_policy(kind: str, mode: str) -> None:
    rng = np.random.default_rng(3)
    trace = random_trace(rng)
    nodes = Nodes.of({"v100": 8, "p100": 8, "k80": 10}, 4)
    for outages in ((), (Outage(0, 500, 1500), Outage(3, 900, 1000))):
        run = simulate(trace, nodes, policy(kind), slot_s=120, mode=mode, outages=outages)  # type: ignore[arg-type]
        check_laws(run)
        assert (run.lost == 0).all() or outages


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(sorted(POLICIES)))
def test_laws_hold_on_random_workloads(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    run = simulate(
        random_trace(rng, 8), Nodes.of({"v100": 8, "p100": 4, "k80": 8}, 4), policy(kind), slot_s=200
    )
    check_laws(run)


@pytest.mark.parametrize("kind", sorted(POLICIES))
def test_the_same_seed_gives_the_same_run(kind: str) -> None:
    trace, nodes = random_trace(np.random.default_rng(0)), Nodes.of({"v100": 8, "p100": 4, "k80": 8}, 4)
    runs = [simulate(trace, nodes, policy(kind), seed=4) for _ in range(2)]
    assert (runs[0].finish == runs[1].finish).all()


# ---- A8: infeasible and odd jobs


@pytest.mark.parametrize("kind", sorted(POLICIES))
def test_odd_jobs_a8(kind: str) -> None:
    """2 + 2 + 2 GPUs. J0 needs 8; J1 one, at rates 4, 3, 2; J2 needs 3: only policies that mix types can."""
    trace = jobs([1e4, 720.0, 100.0], gang=[8, 1, 3], rate=[[1, 1, 1], [4, 3, 2], [1, 1, 1]], types=THREE)
    run = simulate(trace, Nodes.of({"v100": 2, "p100": 2, "k80": 2}, 2), policy(kind), restart_s=0)
    why = dict(run.rejections())
    assert why["0"] == "needs 8 > total 6"
    assert "refused at admission: needs 8" in run.explain("0")
    mixing = kind in ("hadar", "hadare", "market")
    assert ("2" in why) == (not mixing)
    assert np.isfinite(run.finish[2]) == mixing
    assert run.start[1] == 0
    if kind not in ("yarn_cs", "hadare", "gavel"):  # blind to types; forked; round robin of types
        assert run.finish[1] == 180  # on a V100 at once: 720 / 4


def test_no_steps_late_arrivals_and_order() -> None:
    trace = jobs([0.0, 50.0, 50.0], arrival=[5.0, 2e6, 1e6])
    assert trace.id == ("0", "2", "1")  # stably sorted by arrival
    run = simulate(trace, Nodes.of({"v100": 1}, 1), policy("fifo"))
    assert run.finish.tolist() == [5.0, 1e6 + 60, 2e6 + 60]
    assert len(run.timeline.time) == 2  # the clock jumps over what is idle


def test_unrunnable_and_empty() -> None:
    run = simulate(jobs([10.0, 10.0], rate=[[0.0], [1.0]]), Nodes.of({"v100": 1}, 1), policy("market"))
    assert run.refused.tolist() == [Refusal.UNRUNNABLE, Refusal.NONE]
    assert "unrunnable" in dict(run.rejections())["0"]
    nothing = simulate(jobs([]), Nodes.of({"v100": 1}, 1), policy("gavel"))
    assert nothing.complete
    none = simulate(jobs([10.0]), Nodes.of({"v100": 0}, 1), policy("gavel"))
    assert not none.admitted.any()


def test_bad_traces_name_field_and_job() -> None:
    good = jobs([1.0, 2.0])
    with pytest.raises(ValueError, match="work of job '1' is nan"):
        replace(good, work=np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match="arrival of job '0' is -1"):
        replace(good, arrival=np.array([-1.0, 0.0]))
    with pytest.raises(ValueError, match="'0' occurs twice"):
        replace(good, id=("0", "0"))
    with pytest.raises(ValueError, match="no rates for device type 'h100'"):
        simulate(good, Nodes.of({"h100": 1}, 1), policy("fifo"))
    with pytest.raises(ValueError, match="slot_s > 0"):
        simulate(good, Nodes.of({"v100": 1}, 1), policy("fifo"), slot_s=0)


# ---- estimates, explanations, broken policies


def test_wrong_estimates_change_decisions_not_physics() -> None:
    trace, nodes = random_trace(np.random.default_rng(5), 20), Nodes.of({"v100": 8, "p100": 8, "k80": 8}, 4)
    run = simulate(trace, nodes, policy("market", utility="jct"), estimates=Wrong(0.5))
    check_laws(run)


def test_an_estimator_learns_the_rate_it_sees() -> None:
    """Believes the K80 twice as fast as the V100; each job that ran on a K80 is then known to be slow there."""
    trace = jobs([4000.0] * 2, rate=[[4.0, 1.0]] * 2, types=("v100", "k80"))
    learned = Learned(prior=(1.0, 2.0))
    nodes = Nodes.of({"v100": 2, "k80": 2}, 2)
    run = simulate(trace, nodes, policy("market", utility="jct"), estimates=learned, slot_s=100)
    known = simulate(trace, nodes, policy("market", utility="jct"), slot_s=100)
    check_laws(run)
    assert run.finish.max() >= known.finish.max()
    state = learned.init(trace, trace.rate)
    assert learned.rates(state, np.array([0]))[0].tolist() == [[1.0, 2.0]]

    class Seen:
        job, type, apart = np.array([0]), np.array([1]), np.array([False])
        speed, seconds = np.array([1.0]), np.array([50.0])

    state = learned.learn(state, np.array([0]), Seen)
    assert learned.rates(state, np.array([0]))[0].tolist() == [[0.5, 1.0]]  # measured, and rescaled by 1/2


def test_a_waiting_job_is_told_why() -> None:
    trace = jobs([1000.0, 1000.0], gang=[2, 2])
    run = simulate(trace, Nodes.of({"v100": 2}, 2), policy("fifo"))
    text = run.explain("1")
    assert "no_room" in text
    assert "0 free, it needs 2" in text
    assert "2 more v100 GPUs" in text
    with pytest.raises(ValueError, match="no job 'x'"):
        run.explain("x")
    assert run.waited[1].sum() == pytest.approx(run.start[1] - trace.arrival[1])


class Broken:
    """Puts every job on node 0."""

    name, mixes = "broken", False

    def init(self, nodes: Nodes) -> None:
        """Nothing."""

    def learn(self, *_: object) -> None:
        """Nothing."""

    def decide(self, state: None, s: Snapshot, rng: np.random.Generator) -> Plan:
        """Too much on one node."""
        n = len(s)
        return verdict(s, Rows.of(np.arange(n), np.zeros(n), s.gang))


class Idle(Broken):
    """Never runs anything."""

    name = "idle"

    def decide(self, state: None, s: Snapshot, rng: np.random.Generator) -> Plan:
        """Wait."""
        return verdict(s, Rows.of([], [], []))


def test_a_policy_that_breaks_the_rules_is_named() -> None:
    bad: Policy = Broken()
    with pytest.raises(ValueError, match="broken: 2 GPUs planned on node 0, which has 1"):
        simulate(jobs([5.0, 5.0]), Nodes.of({"v100": 1}, 1), bad)
    with pytest.raises(ValueError, match="idle: nothing has run for"):
        simulate(jobs([5.0]), Nodes.of({"v100": 1}, 1), Idle())


def test_measures_of_a_run() -> None:
    got = measures(simulate(jobs([100.0, 100.0]), Nodes.of({"v100": 1}, 1), policy("fifo"), mode="event"))
    assert got.ttd == pytest.approx(220 / 3600)
    assert got.jct_mean == pytest.approx(165 / 3600)
    assert (got.cru, got.gru) == pytest.approx((1.0, 200 / 220))
