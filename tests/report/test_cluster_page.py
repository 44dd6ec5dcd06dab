"""The page and the table over cluster runs: true to the runs, whole, honest about what is missing."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from eiffel import report
from eiffel.core.jobs import Nodes, Trace
from eiffel.core.measures_jobs import isolated_jct
from eiffel.report import cluster_folder
from eiffel.report.cluster_charts import binned
from eiffel.report.cluster_gantt import _joined, _Seats, _stretches, held_between
from eiffel.report.cluster_gather import workloads
from eiffel.report.cluster_progress import Progress
from eiffel.schedule import policy
from eiffel.worlds.cluster import simulate
from eiffel.worlds.cluster_sims import measures
from eiffel.worlds.traces import load_trace
from eiffel.worlds.watch import Watched


class Nesting(HTMLParser):
    """Checks that every tag is closed in its turn, and collects ids, links and words."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.words = [], [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)
        self.ids += [v for k, v in attrs if k == "id"]
        self.links += [v for k, v in attrs if k == "href"]

    def handle_startendtag(self, tag, attrs):
        self.ids += [v for k, v in attrs if k == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.words.append(data)


def read(path: Path) -> Nesting:
    page = Nesting()
    page.feed(path.read_text(encoding="utf-8"))
    assert page.open == []
    return page


def cluster_run(
    home: Path, kind: str, seed: int = 0, nodes: Nodes | None = None, jobs: int = 24, **more
) -> Path:
    """A real run of a small trace, kept as the command keeps it; `more` goes into the summary."""
    nodes = nodes or Nodes.of({"v100": 4, "k80": 4}, 4)
    spec = {"format": "synthetic", "jobs": jobs, "seed": seed, "lengths": {"kind": "uniform", "hours": [0.2, 2]},
            "gangs": {1: 0.8, 2: 0.2}, "arrivals": "poisson", "gap": 200, "assign_models": True}  # fmt: skip
    trace: Trace = load_trace(spec, nodes.types, nodes)
    watched = Watched(policy(kind), len(trace))
    run = simulate(trace, nodes, watched, seed=seed)
    fair = isolated_jct(trace, nodes)
    home.mkdir(parents=True)
    cluster_folder.write_text(
        home / "config.yaml", f"seed: {seed}\nslot_s: 360.0\nstrategies: {{policy: {{kind: {kind}}}}}\n"
    )
    cluster_folder.write_tables(home, run, watched.waits(), fair)
    found = {name: getattr(measures(run, fair), name) for name in measures(run, fair).__slots__}
    cluster_folder.summary(home, {
        "kind": "cluster", "status": "finished", "why": "every job has ended", "seed": seed, "wall_s": 0.5,
        "command": f"eiffel cluster strategies={kind} seed={seed}", "strategy": {"name": kind},
        "trace": {"name": "small", "jobs": len(trace), "sha256": f"{seed:064d}"}, "versions": {"numpy": "2"},
        "cluster": {"name": "pair", "gpus": nodes.total, "types": {"v100": 4, "k80": 4},
                    "nodes": cluster_folder.node_groups(nodes)},
        "measures": found, "bounds": {"ttd": found["ttd"] / 1.25, "jct_mean": found["jct_mean"] / 1.5},
        "ratios": {"ttd": 1.25, "jct_mean": 1.5}, "rejected": {},
    } | more)  # fmt: skip
    return home


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    home = tmp_path_factory.mktemp("clusters")
    return [cluster_run(home / f"{k}-{s}", k, s) for k in ("fifo", "hadar", "gavel") for s in (0, 1)]


@pytest.fixture(scope="module")
def page(sweep: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.report([sweep[0].parent], tmp_path_factory.mktemp("page") / "report.html")


def test_one_file_with_nothing_from_elsewhere(page: Path, sweep: list[Path]) -> None:
    text = page.read_text()
    assert "https://" not in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"\bnan\b", text, re.I)
    seen = read(page)
    assert len(seen.ids) == len(set(seen.ids))
    assert sorted((page.parent / link).resolve() for link in seen.links if link.endswith("/")) == sorted(
        sweep
    )


def test_figures_stand_beside_their_limits_and_the_first_policy(page: Path, sweep: list[Path]) -> None:
    """Every run here is written to be 1.25 times its limit in TTD and 1.5 in JCT."""
    words = " ".join(read(page).words)
    (workload,) = workloads([cluster_folder.load(run) for run in sweep])
    assert [len(rival.runs) for rival in workload.rivals] == [2, 2, 2]
    fifo, hadar, _ = workload.rivals
    ends = [json.loads((run / "summary.json").read_text())["measures"]["ttd"] for run in sweep]
    assert workload.gain(hadar, "ttd") == pytest.approx(sum(ends[:2]) / sum(ends[2:4]))
    assert workload.limit("ttd") == pytest.approx(fifo.mean("ttd") / 1.25)
    for said in (
        "1.25× limit",
        "1.50× limit",
        "First to end",
        "Who sat where",
        "2 seeds (0, 1)",
        "no schedule ends before",
    ):
        assert said in words, said


def test_a_bar_for_every_job_and_the_reasons_in_words(page: Path) -> None:
    text = page.read_text()
    charts = re.findall(r'<svg[^>]*aria-labelledby="w0-gantt.*?</svg>', text, re.S)
    assert len(charts) == 3
    assert all(chart.count('class="job"') == 24 for chart in charts), (
        "480 jobs are 480 paths, however many bars"
    )
    assert "the price is above what it is worth" in text


def test_the_terminal_says_the_same(sweep: list[Path]) -> None:
    told = report.table(sweep)
    assert told.splitlines()[0].startswith("small on pair: 24 jobs, 8 GPUs (4 v100, 4 k80)")
    assert "(1.25)" in told
    assert "hadar: TTD" in told


def test_big_clusters_are_drawn_in_bundles(tmp_path: Path) -> None:
    """150 nodes of 4 are 600 devices: lanes of five nodes, in shades, instead of 600 rows."""
    run = cluster_run(tmp_path / "big", "fifo", nodes=Nodes.of({"v100": 300, "k80": 300}, 4))
    text = report.report([run], tmp_path / "report.html").read_text()
    assert "30 lanes of several nodes" in text
    assert 'class="held"' in text
    assert 'class="job"' not in text


def test_missing_unfinished_and_damaged_runs_are_shown_as_such(sweep: list[Path], tmp_path: Path) -> None:
    good, torn, running, failed = (shutil.copytree(sweep[i], tmp_path / str(i)) for i in (0, 1, 2, 3))
    (torn / "jobs.parquet").write_bytes((torn / "jobs.parquet").read_bytes()[:100])
    (running / "summary.json").write_text('{"kind": "cluster", "status": "running"}')
    (failed / "summary.json").write_text('{"kind": "cluster", "status": "failed", "why": "no such file"}')
    words = " ".join(read(report.report([good, torn, running, failed], tmp_path / "p.html")).words)
    assert "3 runs not whole or not counted" in words
    assert "jobs.parquet: damaged" in words
    assert "unfinished: the run was killed" in words
    assert "failed: no such file" in words
    ruins = " ".join(read(report.report([torn], tmp_path / "q.html")).words)
    assert "No run of a cluster has results yet" in ruins
    with pytest.raises(ValueError, match="damaged"):
        report.explain(torn, job="0")


def test_a_page_over_both_kinds_has_both_parts(sweep: list[Path], make_run, tmp_path: Path) -> None:
    federated = [
        make_run(tmp_path / f"f{k}", name, 0, rounds=8) for k, name in enumerate(("fedavg", "eiffel"))
    ]
    seen = read(report.report([*federated, sweep[0], sweep[2]], tmp_path / "p.html"))
    words = " ".join(seen.words)
    assert len(seen.ids) == len(set(seen.ids))
    assert "What accuracy costs" in words
    assert "Who sat where" in words
    chips = re.findall(r'data-series="(\d+)"', (tmp_path / "p.html").read_text())
    assert chips == ["0", "1", "2", "3"], "no colour means two things"
    assert "digits" in report.table([*federated, sweep[0]])
    with pytest.raises(ValueError, match="runs of clusters"):
        report.figures([sweep[0]], tmp_path / "figures")


def test_names_are_escaped(tmp_path: Path) -> None:
    run = cluster_run(tmp_path / "r", "fifo", strategy={"name": "<b>&x"}, command="<script>")
    text = report.report([run], tmp_path / "p.html").read_text()
    assert "<b>&x" not in text
    assert text.count("<script>") == 1


def test_devices_held_between_moments() -> None:
    """One sitting of 2 devices from 1 to 3 s, one of 1 from 2 to 4: 0, 2, 3, 1 devices in the first four seconds."""
    edges = np.arange(5.0)
    held = held_between(edges, np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([2, 1]))
    assert held == pytest.approx([0, 2, 3, 1])


def test_a_timeline_in_bins_keeps_its_sum() -> None:
    """30 units between 0 and 3 s, nothing decided until 5, 10 units from 5 to 6: 10, 10, 10, 0, 0, 10 a second."""
    line = {"time": np.array([0.0, 5.0]), "seconds": np.array([3.0, 1.0])}
    assert binned(line, np.array([30.0, 10.0]), np.arange(7.0)) == pytest.approx([10, 10, 10, 0, 0, 10])


def test_sittings_find_their_rows() -> None:
    """Two jobs on a node of four; the first comes back to its rows; a third takes what lies apart."""
    seats = _Seats(4)
    assert seats.take(7, 2, 0, 10) == [0, 1]
    assert seats.take(8, 1, 0, 5) == [2]
    assert seats.take(7, 2, 10, 20) == [0, 1]
    assert seats.take(9, 2, 5, 6) == [2, 3]
    assert list(_stretches([0, 1, 3])) == [(0, 2), (3, 4)]
    assert list(_joined([(5, 0, 5, 2), (0, 0, 5, 2), (0, 2, 5, 2)])) == [(0, 0, 10, 2), (0, 2, 5, 2)]


def test_progress_is_silent_at_first_and_off_when_told() -> None:
    class Out:
        said = ""

        def write(self, text: str) -> None:
            self.said += text

        def flush(self) -> None: ...

        def isatty(self) -> bool:
            return False

    now, out = [0.0], Out()
    with Progress("hadar", 4, clock=lambda: now[0], out=out) as progress:
        for ended, moment in enumerate((0.0, 1.0, 3.0, 4.0, 14.0)):
            now[0] = moment
            progress(ended, 3600.0 * ended)
    lines = out.said.splitlines()
    assert len(lines) == 2, "after 3 s and ten seconds later"
    assert "2 of 4 jobs ended" in lines[0]
    with pytest.raises(ValueError, match="must be one of"):
        Progress("hadar", 4, "loud")
