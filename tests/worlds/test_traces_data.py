"""Every trace file of the reference data, read by us and counted again by hand with the csv module."""

import csv
import json
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from eiffel.worlds.traces import load_nodes, load_trace
from eiffel.worlds.traces.shape import length

THREE = ("v100", "p100", "k80")
PHYSICAL = (
    "artifact_evaluation",
    "debug",
    "max_min_fairness",
    "medium_test",
    "minimize_makespan",
    "small_test",
)
GENERATED = ("gavel_static480_seed0", "gavel_cont480_lam450_seed0")
DERIVED = ("msr/2869ce", "msr/7f04ca", "msr/e13805")


def rows(file: Path, delimiter: str = "\t") -> list[list[str]]:
    with file.open(newline="") as stream:
        return [r for r in csv.reader(stream, delimiter=delimiter, quoting=csv.QUOTE_NONE) if r]


def spec(data: Path, name: str) -> dict[str, str]:
    folder = data / "cluster" / "gavel"
    throughputs = folder / "simulation_throughputs.json"
    return {"format": "gavel", "path": str(folder / f"{name}.trace"), "throughputs": str(throughputs)}


@pytest.mark.parametrize("name", PHYSICAL + GENERATED)
def test_gavel_totals(shared_data: Path, name: str):
    """Jobs, steps, GPUs and ideal GPU-hours on a V100 as counted from the file and the JSON themselves."""
    given = spec(shared_data, name)
    raw = rows(Path(given["path"]))
    v100 = json.loads(Path(given["throughputs"]).read_text())["v100"]
    trace = load_trace(given, THREE)
    assert len(trace) == len(raw)
    assert trace.work.sum() == sum(int(r[5]) for r in raw)
    assert Counter(trace.gang.tolist()) == Counter(int(r[6]) for r in raw)
    assert trace.arrival.max() == max(float(r[9]) for r in raw)
    hours = sum(int(r[6]) * int(r[5]) / v100[str((r[0], int(r[6])))]["null"] for r in raw) / 3600
    assert (trace.gang * trace.work / trace.rate[:, 0]).sum() / 3600 == pytest.approx(hours, rel=1e-12)


@pytest.mark.parametrize("name", DERIVED)
def test_derived_traces_without_the_jobs_that_gavel_never_measured(shared_data: Path, name: str):
    given = spec(shared_data, name)
    raw = rows(Path(given["path"]))
    v100 = json.loads(Path(given["throughputs"]).read_text())["v100"]
    kept = [r for r in raw if str((r[0], int(r[6]))) in v100]
    trace = load_trace({**given, "unknown": "drop"}, THREE)
    assert 0 < len(trace) == len(kept) < len(raw)
    assert trace.work.sum() == sum(int(r[4]) for r in kept)
    assert trace.id == tuple(str(k) for k, r in enumerate(raw) if r in kept)


def test_subsets_of_the_derived_traces(shared_data: Path):
    """160 of the jobs between a minute and six hours, other ones for another seed."""
    given = {**spec(shared_data, "msr/e13805"), "unknown": "drop", "min_length": 60, "max_length": 21600}
    first, second = (load_trace({**given, "pick": "sample", "jobs": 160, "seed": s}, THREE) for s in (0, 1))
    assert length(first).min() >= 60
    assert length(first).max() <= 21600
    assert len(set(first.id)) == 160
    assert first.id != second.id


@pytest.mark.parametrize(("name", "gap"), [("gavel_static480_seed0", 0), ("gavel_cont480_lam450_seed0", 450)])
def test_generator_equals_gavels(shared_data: Path, name: str, gap: float):
    """Job for job what Gavel's own generator wrote with seed 0."""
    given = spec(shared_data, name)
    file = load_trace(given, THREE)
    made = {
        "format": "gavel_generator",
        "throughputs": given["throughputs"],
        "seed": 0,
        "jobs": 480,
        "gap": gap,
    }
    trace = load_trace(made, THREE)
    assert (trace.id, trace.model) == (file.id, file.model)
    for field in ("arrival", "work", "gang", "weight", "rate", "spread"):
        assert np.array_equal(getattr(trace, field), getattr(file, field)), field
    other = load_trace({**made, "seed": 1}, THREE)
    assert not np.array_equal(other.work, file.work)


def test_spread_speeds_that_gavel_lacks(shared_data: Path):
    """Six K80 entries are missing; everywhere else the file's own figure stands."""
    given = spec(shared_data, "gavel_static480_seed0")
    data = json.loads(Path(given["throughputs"]).read_text())
    trace = load_trace(given, THREE)
    absent = 0
    for model, gang, spread, rate in zip(trace.model, trace.gang, trace.spread, trace.rate, strict=True):
        entry = data["k80_unconsolidated"].get(str((model, int(gang))))
        absent += entry is None
        assert spread[2] == (0.75 * rate[2] if entry is None else entry["null"])
    assert absent > 0


def test_philly_totals(shared_data: Path):
    file = shared_data / "cluster" / "philly" / "philly.csv"
    with file.open(newline="") as stream:
        raw = list(csv.DictReader(stream))
    began = time.perf_counter()
    trace = load_trace({"format": "philly", "path": str(file)}, ("gpu",))
    assert time.perf_counter() - began < 2.0  # 0.13 s where this was written
    assert len(trace) == len(raw) == 82247
    hours = sum(float(r["gpu_time"]) for r in raw) / 3600
    assert (trace.work * trace.gang).sum() / 3600 == pytest.approx(hours, rel=1e-12)
    assert Counter(trace.gang.tolist()) == Counter(int(r["num_gpus"]) for r in raw)
    assert trace.arrival[0] == 0
    assert trace.arrival[-1] == 9408690  # 2017-09-04 10:30:41 to 2017-12-22 08:02:11: 108 d 21 h 31 min 30 s
    one = load_trace({"format": "philly", "path": str(file), "vc": "6214e9"}, ("gpu",))
    assert len(one) == sum(r["cluster"] == "6214e9" for r in raw)


def test_philly_quantiles_of_the_generator(shared_data: Path):
    """The quantiles in synthetic.py are those of the file."""
    from eiffel.worlds.traces.synthetic import PHILLY_SECONDS, PHILLY_SHARE

    work = load_trace(
        {"format": "philly", "path": str(shared_data / "cluster/philly/philly.csv")}, ("gpu",)
    ).work
    assert np.quantile(work, PHILLY_SHARE) == pytest.approx(PHILLY_SECONDS, rel=0.01)


def test_busy_philly(shared_data: Path, root: Path):
    """Random Philly jobs, cut at 4 h, at twice the capacity of n32g4: GPU time / (128 GPUs x span) = 2."""
    nodes = load_nodes({"path": str(root / "conf/cluster/n32g4.yaml")})
    given = {"format": "philly", "path": str(shared_data / "cluster/philly/philly.csv"), "min_length": 30}
    pick = {"max_gang": 32, "pick": "iid", "jobs": 1500, "cap": 14400, "arrivals": "poisson", "load": 2}
    trace = load_trace({**given, **pick}, nodes.types, nodes)
    assert (trace.work * trace.gang).sum() / 128 / np.ptp(trace.arrival) == pytest.approx(2)
    assert 30 <= trace.work.min() <= trace.work.max() <= 14400


def test_tiresias_totals(shared_data: Path):
    file = shared_data / "cluster" / "tiresias" / "60_job.csv"
    raw = rows(file, ",")[1:]
    trace = load_trace({"format": "tiresias", "path": str(file)}, ("gpu",))
    assert len(trace) == len(raw) == 60
    assert (trace.work * trace.gang).sum() == sum(int(r[1]) * int(r[5]) for r in raw)
    nodes = load_nodes({"path": str(file.with_name("n32g4.csv"))})
    assert (len(nodes), nodes.total) == (32, 128)


def test_built_in_figures_are_gavels(shared_data: Path):
    """Every measured figure of the table, against the file that it is from, to four digits."""
    from eiffel.worlds.traces.jobtypes import GAVEL, JOB_TYPES, MEASURED

    folder = shared_data / "cluster" / "gavel"
    for kind in JOB_TYPES:
        name = "simulation" if kind.source == GAVEL else "physical_cluster"
        data = json.loads((folder / f"{name}_throughputs.json").read_text())
        for device in MEASURED:
            for k, gang in enumerate(kind.gangs):
                key = str((kind.name, gang))
                assert kind.node[device][k] == float(f"{data[device][key]['null']:.4g}")
                apart = (
                    data[f"{device}_unconsolidated"][key]["null"] if gang > 1 else data[device][key]["null"]
                )
                assert kind.apart[device][k] == float(f"{apart:.4g}")
