"""One hand-made file per format, small enough to check by eye; and the plain CSV, there and back."""

import json
import string
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eiffel.core.jobs import Trace
from eiffel.worlds.traces import FORMATS, TraceError, load_trace, write

GPU = ("gpu",)


def load(tmp_path: Path, text: str, types: tuple[str, ...] = GPU, **spec: object) -> Trace:
    file = tmp_path / "trace.txt"
    file.write_text(text)
    return load_trace({"path": str(file), **spec}, types)


def test_philly(tmp_path: Path):
    """Earliest job 08:00:00, so the other, 90 s later and first in the file, arrives at 90; a step is a second."""
    text = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 08:01:30,66.0,8,528.0,11cb48
2017-10-09 08:00:00,10,1,10.0,6214e9
"""
    trace = load(tmp_path, text, format="philly")
    assert trace.id == ("1", "0")
    assert trace.arrival.tolist() == [0, 90]
    assert trace.work.tolist() == [10, 66]
    assert trace.gang.tolist() == [1, 8]
    assert trace.rate.tolist() == trace.spread.tolist() == [[1], [1]]
    assert load(tmp_path, text, format="philly", vc="11cb48").arrival.tolist() == [0]
    with pytest.raises(TraceError, match="it has 11cb48, 6214e9"):
        load(tmp_path, text, format="philly", vc="other")


def test_spread_applies_to_gangs_only(tmp_path: Path):
    text = "id,arrival,duration,gang\na,0,10,1\nb,0,10,2\n"
    assert load(tmp_path, text, format="csv", spread=0.7).spread.tolist() == [[1.0], [0.7]]


def test_tiresias(tmp_path: Path):
    text = """job_id,num_gpu,submit_time,iterations,model_name,duration,interval
0,1,0,606,vgg19,164,30
1,8,30,133,vgg11,147,23
"""
    trace = load(tmp_path, text, format="tiresias")
    assert (trace.id, trace.model) == (("0", "1"), ("vgg19", "vgg11"))
    assert trace.arrival.tolist() == [0, 30]
    assert trace.work.tolist() == [164, 147]
    assert trace.gang.tolist() == [1, 8]


HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
7,u1,vcA,8,32,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:20,2020-04-01 01:00:20,3600,10
8,u1,vcA,0,4,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:01:00,60,0
9,u2,vcB,1,4,1,FAILED,2020-04-01 00:00:40,2020-04-01 00:00:41,2020-04-01 00:00:46,5,1
"""


def test_helios(tmp_path: Path):
    """The CPU job (gpu_num 0) is left out, so time starts with job 7."""
    trace = load(tmp_path, HELIOS, format="helios")
    assert trace.id == ("7", "9")
    assert trace.arrival.tolist() == [0, 30]
    assert trace.work.tolist() == [3600, 5]
    assert load(tmp_path, HELIOS, format="helios", states=["COMPLETED"]).id == ("7",)
    assert load(tmp_path, HELIOS, format="helios", vc="vcB").id == ("9",)


PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,1000,,LS,Running,0,100,10
p1,6000,12288,1,460,V100M16|V100M32,LS,Running,5,25,5
p2,6000,12288,0,0,,LS,Running,6,25,6
p3,6000,12288,8,1000,,LS,Pending,7,25,
"""


def test_alibaba_2023(tmp_path: Path):
    """p2 has no GPU, p3 never ran. p1 shares a GPU and may run on V100 only. Run time = deleted - scheduled."""
    trace = load(tmp_path, PODS, ("v100m16", "t4"), format="alibaba")
    assert trace.id == ("p0", "p1")
    assert trace.arrival.tolist() == [0, 5]
    assert trace.work.tolist() == [90, 20]
    assert trace.rate.tolist() == [[1, 1], [1, 0]]
    assert load(tmp_path, PODS, format="alibaba", shared="drop").id == ("p0",)
    with pytest.raises(TraceError, match="before scheduled_time"):
        load(tmp_path, PODS.replace("0,100,10", "0,9,10"), format="alibaba")


TASKS = """j1,worker,2.0,Terminated,1000.0,1600.0,600.0,29.3,50.0,MISC
j1,ps,1.0,Terminated,990.0,1700.0,600.0,29.3,,
j1,chief,1.0,Terminated,1100.0,1650.0,600.0,29.3,100.0,MISC
j2,worker,3.0,Terminated,2000.0,2010.0,600.0,29.3,25.0,T4
j3,worker,1.0,Failed,1.0,2.0,600.0,29.3,100.0,T4
"""


def test_alibaba_2020(tmp_path: Path):
    """j1: GPU tasks 2 x 50 % + 1 x 100 % = 2 GPUs, 1000..1650 s; j2: 3 x 25 % = 0.75, so 1 GPU. No header line."""
    trace = load(tmp_path, TASKS, format="alibaba")
    assert trace.id == ("j1", "j2")
    assert trace.gang.tolist() == [2, 1]
    assert trace.arrival.tolist() == [1000, 2000]
    assert trace.work.tolist() == [650, 10]
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("j1,i1,u,Terminated,940.0,1700.0\nj9,i9,u,Running,1.0,\n")
    assert load(tmp_path, TASKS, format="alibaba", jobs_path=str(jobs)).arrival.tolist() == [940, 2000]


def gavel_files(tmp_path: Path) -> dict[str, str]:
    """ResNet measured on one GPU and two; over several nodes only on the V100."""
    one, two = "('ResNet-18 (batch size 16)', 1)", "('ResNet-18 (batch size 16)', 2)"
    rates = {
        "v100": {one: {"null": 30.0}, two: {"null": 50.0, one: [1.0, 2.0]}},
        "k80": {one: {"null": 5.0}, two: {"null": 8.0}},
        "v100_unconsolidated": {one: {"null": 30.0}, two: {"null": 35.0}},
    }
    (tmp_path / "rates.json").write_text(json.dumps(rates))
    return {"format": "gavel", "throughputs": str(tmp_path / "rates.json")}


WIDE = (
    "ResNet-18 (batch size 16)\tpython3 main.py\tdir\t--num_steps\t1\t{steps}\t{gang}\t1\t-1.000000\t{at}\n"
)
NARROW = "ResNet-18 (batch size 16)\tcd x && python3 main.py\t--num_steps\t1\t{steps}\t{at}\t{gang}\n"


@pytest.mark.parametrize("line", [WIDE, NARROW])
def test_gavel_layouts(tmp_path: Path, line: str):
    """Both layouts give the same jobs. 0.75 stands in for the K80's missing figure over several nodes: 8 -> 6."""
    text = line.format(steps=300, gang=1, at=0) + line.format(steps=100, gang=2, at=7.5)
    trace = load(tmp_path, text, ("v100", "k80"), **gavel_files(tmp_path))
    assert trace.id == ("0", "1")
    assert trace.work.tolist() == [300, 100]
    assert trace.arrival.tolist() == [0, 7.5]
    assert trace.rate.tolist() == [[30, 5], [50, 8]]
    assert trace.spread.tolist() == [[30, 5], [35, 6]]
    assert trace.model == ("ResNet-18 (batch size 16)",) * 2


def test_gavel_jobs_without_throughput(tmp_path: Path):
    spec, text = (
        gavel_files(tmp_path),
        WIDE.format(steps=1, gang=1, at=0) + WIDE.format(steps=1, gang=4, at=0),
    )
    with pytest.raises(TraceError, match=r"unknown=drop .*\(1 of 2 jobs\)") as caught:
        load(tmp_path, text, ("v100",), **spec)
    assert caught.value.line == 2
    assert load(tmp_path, text, ("v100",), unknown="drop", **spec).id == ("0",)


def test_gavel_files_that_are_not(tmp_path: Path):
    spec = gavel_files(tmp_path)
    with pytest.raises(TraceError, match="3 tab-separated fields"):
        load(tmp_path, "a\tb\tc\n", ("v100",), **spec)
    with pytest.raises(TraceError, match="no throughputs for this device type"):
        load(tmp_path, WIDE.format(steps=1, gang=1, at=0), ("h100",), **spec)
    Path(spec["throughputs"]).write_text('{"v100":\n{')
    with pytest.raises(TraceError, match="not JSON") as caught:
        load(tmp_path, WIDE.format(steps=1, gang=1, at=0), ("v100",), **spec)
    assert caught.value.line == 2
    for bad in ('{"v100": {"(\'A\', 1)": {"null": -1}}}', '{"v100": {"A": {"null": 1}}}'):
        Path(spec["throughputs"]).write_text(bad)
        with pytest.raises(TraceError, match=r"give steps/s|does not read"):
            load(tmp_path, WIDE.format(steps=1, gang=1, at=0), ("v100",), **spec)


def test_csv_with_rates(tmp_path: Path):
    text = "id,arrival,work,gang,rate.v100,rate.k80\na,0,100,2,4,0\n"
    trace = load(tmp_path, text, ("k80", "v100"), format="csv")
    assert trace.rate.tolist() == [[0, 4]]
    with pytest.raises(TraceError, match=r"rate\.t4.*add it, 0 where"):
        load(tmp_path, text, ("t4",), format="csv")
    with pytest.raises(TraceError, match="not above 0"):
        load(tmp_path, "id,arrival,duration,gang,weight\na,0,1,1,0\n", format="csv")


names = st.text(string.ascii_letters + string.digits + " ,\"'._-|éß中", min_size=1, max_size=8)
reals = st.floats(0, 1e12, allow_subnormal=False)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    ids = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    types = ("v100", "k80")
    jobs = len(ids)

    def column(values: st.SearchStrategy[float]) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=jobs, max_size=jobs)))

    def pairs() -> np.ndarray:
        return column(st.tuples(reals, reals)).reshape(jobs, 2)

    return Trace(
        tuple(ids),
        column(reals),
        column(reals),
        column(st.integers(1, 10**6)),
        column(st.integers(1, 10**12)),
        column(st.floats(1e-9, 1e9)),
        pairs(),
        pairs(),
        types,
        tuple(draw(st.lists(names, min_size=jobs, max_size=jobs))),
    )


@settings(max_examples=50, deadline=None)
@given(traces())
def test_csv_there_and_back(tmp_path_factory: pytest.TempPathFactory, trace: Trace):
    """Ids with commas, quotes and blanks, numbers to the last bit."""
    file = tmp_path_factory.mktemp("csv") / "jobs.csv"
    write(trace, file)
    back = load_trace({"format": "csv", "path": str(file)}, trace.types)
    assert (back.id, back.model, back.types) == (trace.id, trace.model, trace.types)
    for name in ("arrival", "work", "gang", "epochs", "weight", "rate", "spread"):
        assert np.array_equal(getattr(back, name), getattr(trace, name)), name
    assert [p.name for p in file.parent.iterdir()] == ["jobs.csv"]


def test_every_format_has_a_config(root: Path):
    """conf/trace has at least one file per format, and names none that does not exist."""
    from omegaconf import OmegaConf

    cards = [OmegaConf.load(f) for f in sorted((root / "conf" / "trace").glob("*.yaml"))]
    assert {card.format for card in cards if "format" in card} == set(FORMATS)
