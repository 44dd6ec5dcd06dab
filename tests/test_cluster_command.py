"""`eiffel cluster` as a person meets it: paths, misspelt words, a sweep, and answers about single jobs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from eiffel import cli, cluster, report
from eiffel import config as cfg
from eiffel.cluster import with_paths
from eiffel.report import cluster_folder

NODES = "nodes:\n  - {type: v100, nodes: 1, devices: 2}\n  - {type: k80, nodes: 1, devices: 2}\n"
JOBS = """id,arrival,work,gang,model,rate.v100,rate.k80
a,0,3600,2,ResNet,1,0.25
b,0,3600,2,ResNet,1,0.25
c,0,360,4,LM,0,0
d,720,720,1,LM,1,1
"""
"""a and b want both V100s for an hour; c runs nowhere; d takes 720 s wherever it is."""


def eiffel(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own, for Hydra keeps global state."""
    return subprocess.run(
        [sys.executable, "-m", "eiffel.cli", *words],
        cwd=cwd, text=True, capture_output=True, timeout=120, check=False, env=os.environ | {"COLUMNS": "120"},
    )  # fmt: skip


def composed(*words: str) -> dict:
    cfg.register()
    cluster.register()
    with initialize_config_dir(str(cfg.CONF), version_base=None):
        return cfg.plain(compose("cluster", list(words)))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("my files")  # a blank in the path is none of the user's business
    (home / "nodes.yaml").write_text(NODES)
    (home / "jobs.csv").write_text(JOBS)
    return home


@pytest.fixture(scope="module")
def run(files: Path) -> Path:
    """Four jobs first come, first served: b waits an hour for a, d for b, c is refused."""
    words = with_paths(
        [f"trace={files}/jobs.csv", f"cluster={files}/nodes.yaml", "strategies=fifo", "restart_s=0"]
    )
    cluster.simulate(composed(*words), files / "run", command="eiffel cluster here")
    return files / "run"


def test_a_path_stands_for_an_option(files: Path) -> None:
    assert with_paths(["trace=philly", "seed=1,2"]) == ["trace=philly", "seed=1,2"]
    path = f"'{files / 'jobs.csv'}'"
    assert with_paths([f"trace={files}/jobs.csv"]) == ["trace=csv", f"trace.path={path}", "trace.name='jobs'"]
    assert with_paths(["trace=x.trace", "trace.format=gavel"])[0] == "trace=gavel"
    assert with_paths(["cluster=a.yaml,b.yaml"]) == ["cluster=file", "cluster.path='a.yaml','b.yaml'"]
    with pytest.raises(cfg.ConfigError, match="mixes paths and options"):
        with_paths(["trace=jobs.csv,philly"])


@pytest.mark.parametrize("group", ["trace", "cluster"])
def test_every_option_composes_with_the_schema(group: str) -> None:
    for name in cfg.options(group):
        assert composed(f"{group}={name}")[group]["name"] == name


def test_every_policy_card_runs_jobs_to_their_end(tmp_path: Path) -> None:
    config = composed("trace.jobs=3", "progress=off")
    with initialize_config_dir(str(cfg.CONF), version_base=None):
        for name in cfg.options("strategies", "cluster"):
            card = cfg.plain(compose("cluster", [f"strategies={name}"]).strategies)
            summary = cluster.simulate(config | {"strategies": card}, tmp_path / name)
            assert (name, summary["measures"]["ended"]) == (name, 3)


def test_strategies_are_listed_for_their_command() -> None:
    every = set(cfg.options("strategies"))
    sim, jobs = (set(cfg.options("strategies", c)) for c in ("sim", "cluster"))
    assert sim | jobs == every
    assert not sim & jobs
    assert {"hadar", "gavel"} <= jobs
    assert {"eiffel", "fedavg"} <= sim


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("slot=60", "Did you mean 'slot_s'?"),
        ("trace.gapp=60", "Did you mean 'trace.gap'?"),
        ("strategies.policy.utilty=thr", "Did you mean 'strategies.policy.utility'?"),
        ("strategies=hadr", "Did you mean 'hadar'?"),
        ("trace=phily", "Did you mean 'philly'?"),
        ("seed=soon", "seed"),
    ],
)
def test_misspelt_words_are_answered_with_the_right_one(word: str, says: str) -> None:
    with pytest.raises((HydraException, OmegaConfBaseException)) as caught:
        composed(word)
    said = cfg.explain(caught.value, cli.composed("cluster", cfg), "cluster")
    assert says in said
    assert "eiffel sim" not in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["cluster", "-m", "strategies=hadar,fedavg"],
            "strategies=fedavg chooses the devices of a federation",
        ),
        (
            ["sim", "strategies=hadar"],
            "strategies=hadar schedules the jobs of a cluster: it is for `eiffel cluster`",
        ),
        (["explain", "nowhere", "--job", "17"], "nowhere"),
    ],
)
def test_the_wrong_command_is_pointed_out(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    assert says in capsys.readouterr().err


def test_help_names_keys_options_and_policies_of_the_cluster_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["cluster", "--help"]) == 0
    said = capsys.readouterr().out
    assert "elas, fifo, gavel" in said
    assert "slot_s: 360" in said
    assert "fedavg" not in said
    cli.main(["sim", "--help"])
    assert "hadar" not in capsys.readouterr().out


def test_a_misspelt_key_ends_the_command_with_a_suggestion(tmp_path: Path) -> None:
    done = eiffel("cluster", "slot=60", cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Did you mean 'slot_s'? `eiffel cluster --cfg job` prints all keys." in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("trace", "nodes", "says"),
    [
        (JOBS.replace("3600,2", "3600,half"), NODES, ["jobs.csv, line 2, field 'gang'", "'half'"]),
        (JOBS, NODES.replace("nodes: 1, devices: 2}\n", "nodes: 1}\n"), ["nodes.yaml, line 2", "devices", "missing"]),
        (JOBS, NODES.replace("k80", "t4"), ["jobs.csv, line 1, field 'rate.t4'", "add it"]),
    ],
)  # fmt: skip
def test_bad_files_are_named_with_line_and_field(
    trace: str, nodes: str, says: list[str], tmp_path: Path
) -> None:
    (tmp_path / "jobs.csv").write_text(trace)
    (tmp_path / "nodes.yaml").write_text(nodes)
    words = with_paths([f"trace={tmp_path}/jobs.csv", f"cluster={tmp_path}/nodes.yaml"])
    with pytest.raises(ValueError, match="line") as caught:
        cluster.simulate(composed(*words), tmp_path / "run")
    assert all(word in str(caught.value) for word in says), caught.value
    kept = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert kept["status"] == "failed"
    assert kept["why"] == str(caught.value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["mode=slots"], "Did you mean 'slot'?"),
        (["estimates.kind=learned"], "estimates.prior is missing"),
        (["estimates.kind=guess"], "estimates.kind is 'guess'"),
        (["estimates.kind=wrong", "estimates.error=1.5"], "must be in \\[0, 1\\)"),
        (["outages=[{node: 99, down: 1, up: 2}]"], "a node is a number from 0 to 14"),
        (["stop_early=2"], "from 0 to 1"),
        (["slot_s=0"], "slot_s > 0"),
        (["progress=loud"], "progress is 'loud'"),
        (["trace.path=x.csv"], "no such option"),
        (["+strategies.policy.colour=red"], "colour"),
    ],
)
def test_values_that_cannot_be_are_refused(words: list[str], says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        cluster.simulate(composed("trace.jobs=3", *words), tmp_path / "run")


def test_the_summary_counts_what_the_arithmetic_says(run: Path) -> None:
    """First come, first served, the fastest type with room, slots of 360 s, restarts free.

    a takes both V100s, b both K80s: a ends at 3600 s, b at 3600 / 0.25 = 14400 s. d arrives at 720 s and finds
    nothing free before a ends: it runs from 3600 to 4320 s. c runs nowhere. JCT: 3600, 14400, 3600.
    GPU time held: 2 x 3600 + 2 x 14400 + 720 of 4 x 14400 GPU-s. No schedule ends before both a and b are done:
    spread over the types at will, 7200 steps at (1 + 0.25) steps/s take 5760 s, and d's 720 GPU-s a bit more.
    """
    summary = json.loads((run / "summary.json").read_text())
    found = summary["measures"]
    assert summary["status"] == "finished"
    assert summary["kind"] == "cluster"
    assert (found["jobs"], found["ended"], found["rejected"]) == (4, 3, 1)
    assert found["ttd"] == pytest.approx(4.0)
    assert found["jct_mean"] == pytest.approx((3600 + 14400 + 3600) / 3 / 3600)
    assert found["cru"] == pytest.approx((2 * 3600 + 2 * 14400 + 720) / (4 * 14400))
    assert 5760 / 3600 <= summary["bounds"]["ttd"] <= 6120 / 3600
    assert summary["ratios"]["ttd"] == pytest.approx(found["ttd"] / summary["bounds"]["ttd"])
    assert summary["waited_h"] == {"no_room": pytest.approx(0.8)}, "d, from 720 to 3600 s"
    assert list(summary["rejected"]) == ["c"]
    assert summary["cluster"]["nodes"] == [
        {"type": "v100", "nodes": 1, "devices": 2}, {"type": "k80", "nodes": 1, "devices": 2},
    ]  # fmt: skip


def test_tables_hold_every_job_and_every_sitting(run: Path) -> None:
    saved = cluster_folder.load(run)
    assert saved.problem is None
    assert list(saved.jobs["id"]) == ["a", "b", "c", "d"]
    held = (saved.sittings["end"] - saved.sittings["start"]) * saved.sittings["count"]
    assert held.sum() == pytest.approx(saved.jobs["busy"].sum())
    assert saved.timeline["busy.v100"].sum() + saved.timeline["busy.k80"].sum() == pytest.approx(held.sum())
    assert saved.nodes == [("v100", 2), ("k80", 2)]


def test_a_run_is_never_written_over(run: Path) -> None:
    with pytest.raises(cfg.ConfigError, match="already holds a run"):
        cluster.simulate(composed(), run)


def test_explain_says_what_a_job_waited_for(run: Path) -> None:
    told = report.explain(run, job="d")
    assert "first ran after 48.0 min" in told, "3600 - 720 s"
    assert "it waited 48.0 min in all" in told
    assert "0 to 48.0 min:" in told
    assert "it never waited for a device" in report.explain(run, job="a")
    assert "refused when it arrived: unrunnable" in report.explain(run, job="c")
    with pytest.raises(ValueError, match="no job 'e'"):
        report.explain(run, job="e")
    with pytest.raises(ValueError, match="--job"):
        report.explain(run, 1, 2)


def test_prices_are_named(tmp_path: Path) -> None:
    """Hadar's refusals quote the price and what the GPU is worth to the job."""
    words = ["trace.jobs=60", "cluster=aws5", "trace.lengths.hours=[0.5]", "strategies=hadar"]
    cluster.simulate(composed(*words), tmp_path / "run")
    saved = cluster_folder.load(tmp_path / "run")
    waits = saved.jobs["waited.price"]
    job = str(saved.jobs["id"][waits.argmax()])
    assert waits.max() > 0
    assert "GPU costs" in report.explain(tmp_path / "run", job=job)


def test_outages_estimates_and_an_early_end(tmp_path: Path) -> None:
    """Everything `simulate` takes can be asked for; a run cut short says so."""
    words = [
        *("trace.jobs=20", "outages=[{node: 0, down: 3600, up: 7200}]", "estimates.kind=learned"),
        *("estimates.prior=[3,2,1]", "stop_early=0.5", "mode=event", "until_s=7300", "strategies=market"),
    ]
    summary = cluster.simulate(composed(*words), tmp_path / "run")
    assert summary["status"] == "stopped"
    assert "until_s" in summary["why"]
    assert summary["settings"]["outages"] == [{"class": "Outage", "node": 0, "down": 3600.0, "up": 7200.0}]
    assert cluster_folder.load(tmp_path / "run").timeline["service.v100"].min() == 16


def test_the_same_seed_is_the_same_run(tmp_path: Path) -> None:
    words = ["trace.jobs=40", "trace.arrivals=poisson", "trace.gap=300"]
    first, same, other = (
        cluster.simulate(composed(*words, f"seed={seed}"), tmp_path / str(k))
        for k, seed in enumerate((1, 1, 2))
    )
    assert first["trace"]["sha256"] == same["trace"]["sha256"] != other["trace"]["sha256"]
    timed = ("decision_ms_mean", "decision_ms_max")
    figures = [{k: v for k, v in s["measures"].items() if k not in timed} for s in (first, same)]
    assert figures[0] == figures[1]


def test_a_sweep_ends_with_a_table_and_a_page(files: Path, tmp_path: Path) -> None:
    words = [f"trace={files}/jobs.csv", f"cluster={files}/nodes.yaml", "hydra.sweep.dir=sweep"]
    done = eiffel("cluster", "-m", "strategies=fifo,hadar,gavel", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 of 3 jobs finished" in done.stdout
    lines = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert [w for w in lines if w in ("fifo", "hadar", "gavel", "limit")] == [
        "fifo",
        "hadar",
        "gavel",
        "limit",
    ]
    assert "report: sweep/report.html" in done.stdout
    assert (tmp_path / "sweep" / "report.html").stat().st_size > 10_000
    told = eiffel("explain", "sweep/0-fifo-jobs-seed0", "--job", "b", cwd=tmp_path)
    assert told.stdout.startswith("Job b (ResNet, 2 GPUs), fifo, jobs on nodes, seed 0"), told.stderr
    again = eiffel("resume", "sweep/0-fifo-jobs-seed0", cwd=tmp_path)
    assert again.returncode == 2
    assert "run of a cluster" in again.stderr


def test_the_example_of_the_docs_runs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A policy without a simulator: what the example says it prints is what it prints."""
    text = (root / "docs" / "cluster.md").read_text()
    part = text[text.index("    import numpy") : text.index("`plan.why` says")]
    code = "\n".join(line[4:] for line in part.splitlines())
    exec(code, {})
    promised = code.strip().splitlines()[-1].split("# ")[1]
    assert capsys.readouterr().out.strip() == promised
