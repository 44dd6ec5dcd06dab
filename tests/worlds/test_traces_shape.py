"""Which jobs and when: filters, windows, arrivals, offered load; generators; clusters."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eiffel.core.jobs import Nodes, Trace
from eiffel.worlds.traces import TraceError, jobtypes, load_nodes, load_trace, stop_early
from eiffel.worlds.traces.shape import demand, length

GPU = ("gpu",)
THREE = ("v100", "p100", "k80")


def synthetic(types: tuple[str, ...] = GPU, nodes: Nodes | None = None, **spec: object) -> Trace:
    return load_trace({"format": "synthetic", "gangs": {1: 1}, **spec}, types, nodes)


def small(rate: list[list[float]], work: list[float], gang: list[int], spread: list[list[float]]) -> Trace:
    jobs, types = len(work), tuple(f"t{k}" for k in range(len(rate[0])))
    ids, zeros, ones = tuple(map(str, range(jobs))), np.zeros(jobs), np.ones(jobs)
    whole = np.array(gang, np.int64)
    speeds = (np.array(rate, float), np.array(spread, float))
    return Trace(ids, zeros, np.array(work), whole, whole * 0 + 1, ones, *speeds, types, ("",) * jobs)


def test_length_is_alone_on_the_fastest_type():
    """100 steps at 4 steps/s: 25 s; nothing to do: 0 s; work that runs nowhere: never."""
    trace = small([[2, 4], [1, 1], [0, 0]], [100, 0, 5], [1, 1, 1], [[2, 4], [1, 1], [0, 0]])
    assert length(trace).tolist() == [25.0, 0.0, np.inf]


def test_demand_of_one_type():
    """Two jobs of 10 s on 3 and 1 GPUs: 40 GPU-s on 4 GPUs take 10 s."""
    trace = small([[1], [1]], [10, 10], [3, 1], [[1], [1]])
    assert demand(trace, Nodes.of({"t0": 4}, 4)) == pytest.approx(10)


def test_demand_over_two_types():
    """One GPU each. Job 0 runs 2x as fast on t0, job 1 as fast on both; 12 steps each.

    Job 0 on t0 alone takes 6 s, job 1 on t1 alone 12 s; t0 then helps: 6 + a = 12 - a, so T = 9 s.
    """
    trace = small([[2, 1], [1, 1]], [12, 12], [1, 1], [[2, 1], [1, 1]])
    assert demand(trace, Nodes.of({"t0": 1, "t1": 1}, 1)) == pytest.approx(9)


def test_demand_of_gangs_larger_than_a_node_uses_the_spread_speed():
    """A gang of 2: nodes of 2 GPUs give 1 step/s and 10 s, nodes of 1 GPU half of it."""
    trace = small([[1]], [10], [2], [[0.5]])
    assert demand(trace, Nodes.of({"t0": 2}, 2)) == pytest.approx(10)
    assert demand(trace, Nodes.of({"t0": 2}, 1)) == pytest.approx(20)
    assert demand(trace, Nodes.of({"t0": 1}, 1)) == 0  # it cannot run


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**30), st.floats(0.3, 4))
def test_load_is_what_was_asked_for(seed: int, load: float):
    """Offered load = demand / arrival span, exactly, whatever was drawn."""
    nodes = load_nodes({"nodes": [{"type": t, "nodes": 2, "devices": 4} for t in THREE]})
    spec = {"seed": seed, "jobs": 30, "assign_models": True, "gangs": {1: 0.5, 4: 0.5}}
    trace = synthetic(THREE, nodes, arrivals="poisson", load=load, **spec)
    assert demand(trace, nodes) / np.ptp(trace.arrival) == pytest.approx(load, rel=1e-6)
    assert trace.arrival[0] == 0


def test_load_needs_an_arrival_span():
    nodes = Nodes.of({"gpu": 4}, 4)
    with pytest.raises(TraceError, match="at once"):
        synthetic(nodes=nodes, load=1.0)
    with pytest.raises(TraceError, match="both set"):
        synthetic(nodes=nodes, arrivals="poisson", load=1.0, time_scale=2.0)


def test_arrivals_have_the_mean_gap_and_the_burstiness():
    """20,000 waits: mean within 5 %, coefficient of variation 1 for Poisson and 3 as asked for, within 10 %."""
    for spec, spread in (({"arrivals": "poisson"}, 1.0), ({"arrivals": "gamma", "burst": 3.0}, 3.0)):
        waits = np.diff(synthetic(jobs=20000, gap=300, **spec).arrival)
        assert waits.mean() == pytest.approx(300, rel=0.05)
        assert waits.std() / waits.mean() == pytest.approx(spread, rel=0.1)


FIVE = "id,arrival,duration,gang\na,10,5,1\nb,20,50,1\nc,30,500,2\nd,40,5000,1\ne,50,50000,8\n"


def five(tmp_path: Path, **spec: object) -> Trace:
    (tmp_path / "five.csv").write_text(FIVE)
    return load_trace({"format": "csv", "path": str(tmp_path / "five.csv"), **spec}, GPU)


def test_filters_and_cap(tmp_path: Path):
    assert five(tmp_path, min_length=50, max_length=5000).id == ("b", "c", "d")
    assert five(tmp_path, max_gang=2).id == ("a", "b", "c", "d")
    assert five(tmp_path, cap=100).work.tolist() == [5, 50, 100, 100, 100]


def test_first_and_scaled_time_keep_the_clock(tmp_path: Path):
    assert five(tmp_path, jobs=2).arrival.tolist() == [10, 20]
    assert five(tmp_path, time_scale=0.5).arrival.tolist() == [5, 10, 15, 20, 25]
    assert five(tmp_path, arrivals="static").arrival.tolist() == [0] * 5


def test_window_is_consecutive_and_starts_at_zero(tmp_path: Path):
    trace = five(tmp_path, pick="window", jobs=3, start=1)
    assert (trace.id, trace.arrival.tolist()) == (("b", "c", "d"), [0, 10, 20])
    with pytest.raises(TraceError, match="beyond"):
        five(tmp_path, pick="window", jobs=3, start=3)
    for seed in range(5):
        ids = "".join(five(tmp_path, pick="window", jobs=3, seed=seed).id)
        assert ids in "abcde"


def test_sample_is_without_and_iid_with_replacement(tmp_path: Path):
    assert five(tmp_path, pick="sample", jobs=5).id == tuple("abcde")
    with pytest.raises(TraceError, match="6 jobs wanted, 5"):
        five(tmp_path, pick="sample", jobs=6)
    trace = five(tmp_path, pick="iid", jobs=500, arrivals="poisson", gap=1)
    assert trace.id == tuple(map(str, range(500)))
    assert set(trace.work.tolist()) == {5, 50, 500, 5000, 50000}
    order = np.corrcoef(np.arange(500), trace.work)[0, 1]
    assert abs(order) < 0.15  # rows are shuffled, not sorted by their old arrival (3.3 sigma)


def test_seeds_repeat_and_differ(tmp_path: Path):
    pick = [synthetic(seed=s, jobs=50).work for s in (1, 1, 2)]
    assert np.array_equal(pick[0], pick[1])
    assert not np.array_equal(pick[0], pick[2])


def test_epochs(tmp_path: Path):
    assert set(five(tmp_path, epochs=10).epochs.tolist()) == {10}


def test_stopping_early(tmp_path: Path):
    """Nobody: nothing changes. Everybody: between a fifth and all of what was declared, .6 on average."""
    trace = synthetic(jobs=4000)
    same, declared = stop_early(trace, 0.0, seed=0)
    assert np.array_equal(same.work, declared)
    short, declared = stop_early(trace, 1.0, seed=0)
    part = short.work / declared
    assert np.array_equal(declared, trace.work)
    assert 0.2 <= part.min() <= part.max() <= 1
    assert part.mean() == pytest.approx(0.6, abs=0.02)
    some, _ = stop_early(trace, 0.3, seed=0)
    assert np.mean(some.work < trace.work) == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize(
    ("lengths", "low", "high", "median"),
    [
        ({"kind": "uniform", "hours": [1, 3]}, 3600, 10800, 7200),
        ({"kind": "choice", "hours": [1, 2, 3]}, 3600, 10800, 7200),
        ({"kind": "lognormal", "median_hours": 1, "sigma": 1.2}, 0, 1e6, 3600),
        # 80 % within 10^[1.5, 3] min: the median is at 5/8 of that range, 10^2.4375 = 274 min
        ({"kind": "gavel"}, 60 * 10**1.5, 60 * 1e4, 60 * 10**2.4375),
        ({"kind": "philly"}, 1, 4628226, 1144),
        ({"kind": "classes", "shares": {"M": 1}}, 3600, 36000, 5.5 * 3600),
    ],
)
def test_run_times(lengths: dict[str, object], low: float, high: float, median: float):
    """4,000 jobs of one GPU: in range, and the median where the distribution has it, within 10 %."""
    work = synthetic(jobs=4000, lengths=lengths).work
    assert work.min() >= low
    assert work.max() <= high
    assert np.median(work) == pytest.approx(median, rel=0.1)


def test_classes_are_gpu_hours():
    """An XL job is 60 to 100 GPU-hours: 7.5 to 12.5 h on 8 GPUs."""
    trace = synthetic(jobs=200, gangs={8: 1}, lengths={"kind": "classes", "shares": {"XL": 1}})
    assert trace.work.min() >= 7.5 * 3600
    assert trace.work.max() <= 12.5 * 3600


def test_gang_mix():
    gang = synthetic(jobs=20000, gangs={1: 3, 4: 1}).gang
    assert set(gang.tolist()) == {1, 4}
    assert np.mean(gang == 4) == pytest.approx(0.25, abs=0.01)


def test_speeds_of_invented_types():
    """lab2 at .5 +-20 %: between .4 and .6 of nominal; the run time is that on the fastest."""
    spec = {
        "speeds": {"lab1": 1, "lab2": 0.5},
        "speed_spread": 0.2,
        "lengths": {"kind": "uniform", "hours": [1, 1]},
    }
    trace = synthetic(("lab1", "lab2"), jobs=500, **spec)
    assert 0.8 <= trace.rate[:, 0].min() < trace.rate[:, 0].max() <= 1.2
    assert 0.4 <= trace.rate[:, 1].min() < trace.rate[:, 1].max() <= 0.6
    assert length(trace) == pytest.approx(3600)


def test_assigned_models_keep_the_run_time_on_the_reference():
    spec = {"assign_models": True, "jobs": 300, "gangs": {1: 0.5, 2: 0.2, 8: 0.2, 16: 0.1}}
    trace = synthetic(THREE, lengths={"kind": "uniform", "hours": [2, 2]}, **spec)
    assert trace.work / trace.rate[:, 0] == pytest.approx(7200)
    alone = np.array(["ResNet" in m or "LM" in m or "Transformer" in m for m in trace.model])
    assert alone[trace.gang > 1].all()
    assert (trace.rate > 0).all()
    with pytest.raises(TraceError, match="none of the job types trains on several"):
        synthetic(THREE, models=["A3C"], **spec)
    with pytest.raises(TraceError, match="not in the built-in table"):
        synthetic(THREE, models=["GPT-9"], **spec)


def test_table_figures():
    """Measured figures as they stand; between sizes the geometric mean at the geometric middle; per GPU beyond 8."""
    kind = jobtypes.TABLE["ResNet-50 (batch size 32)"]
    assert jobtypes.rate(kind, 2, "p100") == pytest.approx(9.749)
    assert jobtypes.rate(kind, 2, "p100", apart=True) == pytest.approx(9.429)
    assert jobtypes.rate(kind, 16, "k80") == pytest.approx(2 * 8.792)
    middle = jobtypes.rate(kind, 3, "k80")
    assert 2.353 < middle < 4.379
    assert jobtypes.rate(jobtypes.TABLE["CycleGAN"], 2, "v100") == 0.0
    assert all(kind.source for kind in jobtypes.JOB_TYPES)
    assert all(spec.source for spec in jobtypes.DEVICES.values())


def test_roofline():
    """I = 4 FLOP/B on a T4: min(8.1, 4 * 0.32) = 1.28 TFLOP/s; on a V100 3.6: the LM runs at .356 of its V100 speed."""
    assert jobtypes.attainable("T4", 4) == pytest.approx(1.28e12)
    kind = jobtypes.TABLE["LM (batch size 20)"]
    assert jobtypes.rate(kind, 1, "t4") == pytest.approx(64.74 * 1.28 / 3.6)
    assert jobtypes.estimated("t4")
    assert not jobtypes.estimated("V100M16")
    assert jobtypes.rate(kind, 1, "V100M16") == jobtypes.rate(kind, 1, "v100")


@pytest.mark.parametrize("name", ["sim60", "n16g4", "n32g4", "philly2490", "aws5", "lab5"])
def test_clusters_in_conf(root: Path, name: str):
    from omegaconf import OmegaConf

    nodes = load_nodes(OmegaConf.load(root / "conf" / "cluster" / f"{name}.yaml"))
    total = {"sim60": 60, "n16g4": 64, "n32g4": 128, "philly2490": 2490, "aws5": 5, "lab5": 5}
    assert nodes.total == total[name]


def test_sim60_equals_its_definition(root: Path):
    nodes = load_nodes({"path": str(root / "conf" / "cluster" / "sim60.yaml")})
    same = Nodes.of({"v100": 20, "p100": 20, "k80": 20}, 4)
    assert nodes.types == same.types
    assert np.array_equal(nodes.type, same.type)
    assert np.array_equal(nodes.devices, same.devices)


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        (
            "nodes:\n  - {type: v100, nodes: 1, devices: 4}\n  - {type: k80, nodes: 1, devices: 0}\n",
            3,
            "below 1",
        ),
        ("nodes:\n  - {type: v100, devices: 4}\n", 2, "missing"),
        ("nodes:\n  - {type: v100, nodes: 1, gpus: 4}\n", 2, "no such option"),
        ("nodes:\n  - v100\n", 2, "not a group"),
        ("nodes: 4\n", None, "not a list"),
        ("machines: []\n", None, "list of groups"),
        ("nodes: []\nname: x\nspeed: 3\n", None, "no such entry"),
        ("nodes: [\n", 2, "not YAML"),
    ],
)
def test_cluster_files_that_are_wrong(tmp_path: Path, text: str, line: int | None, word: str):
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    with pytest.raises(TraceError, match=word) as caught:
        load_nodes({"path": str(file)})
    assert caught.value.line == line
    assert str(file) in str(caught.value)


def test_node_tables_of_traces(tmp_path: Path):
    (tmp_path / "n.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,1,1,2,P100\nb,1,1,0,\nc,1,1,8,G3\n")
    nodes = load_nodes({"path": str(tmp_path / "n.csv")})
    assert (nodes.types, nodes.type.tolist(), nodes.devices.tolist()) == (("p100", "g3"), [0, 1], [2, 8])
    head = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n"
    (tmp_path / "n.csv").write_text(head + "2,3,4,40,256")
    nodes = load_nodes({"path": str(tmp_path / "n.csv"), "type": "v100"})
    assert (nodes.types, nodes.devices.tolist()) == (("v100",), [4] * 6)
    with pytest.raises(TraceError, match="either path"):
        load_nodes({})
