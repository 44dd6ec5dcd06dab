"""Files of sims/ become runs, tables and verdicts; every file builds and runs in a small size."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eiffel.reproduce import cluster, command, field, page, results, sims, tables, text
from eiffel.reproduce.measured import Interval, Measured, difference, ratio, resample
from eiffel.reproduce.sims import Cluster, Sim, SimsError

SMALL: dict[str, Any] = {
    "title": "Two runs",
    "shows": "that it works",
    "seeds": [1, 2],
    "rounds": 2,
    "data": {"digits": {"set": {"datasets.clients": 5}}},
    "runs": {"eiffel": {}, "fedavg": {"set": {"strategies.pace.steps": 2}}},
}


def fake(path: Path, seed: int, accuracy: Sequence[float], megabytes: float, **last: float) -> Path:
    """A run folder with one evaluation a round; every round costs `megabytes` and one joule."""
    path.mkdir(parents=True)
    rows = []
    for i, value in enumerate(accuracy, 1):
        scores = {"accuracy": value, "variance": 10.0, "worst10": value - 0.1, "best10": 1.0, "jain": 0.9}
        rows.append(
            {
                "round": i,
                "total_bytes": i * megabytes * 1e6,
                "total_joules": float(i),
                "total_s": 2.0 * i,
                "steps_mean": float(i),
                "scores": {"served": "last", "last": scores, "ema": scores | last},
            }
        )
    (path / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    summary = {"status": "finished", "seed": seed, "strategy": {"name": path.parent.name}, "wall_s": 3.0}
    (path / "summary.json").write_text(json.dumps(summary))
    return path


@pytest.fixture
def measured(tmp_path: Path) -> Measured:
    """Ours reaches .8 at once for 1 MB a round, theirs after two rounds for 2 MB; "never" stays at .5."""
    from eiffel.report.read import load

    curves: Mapping[str, tuple[Sequence[float], float]] = {
        "ours": ((0.8,) * 6, 1.0),
        "theirs": ((0.6, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8), 2.0),
        "never": ((0.5,) * 6, 1.0),
    }
    runs = {
        name: [load(fake(tmp_path / name / str(s), s, [a + s / 100 for a in curve], mb)) for s in (1, 2, 3)]
        for name, (curve, mb) in curves.items()
    }
    return Measured(runs, "ours", 1.0, "theirs")


def test_costs_count_to_the_same_target_for_all(measured: Measured) -> None:
    """Target: theirs' own final accuracy, .8 + mean(.01, .02, .03) = .82; three evaluations have to average it.

    Seed 1 ends at .81 and never gets there; seeds 2 and 3 do: ours at its third evaluation (3 rounds x 1 MB).
    """
    assert measured.goal() == pytest.approx(0.82)
    np.testing.assert_allclose(measured.figures("ours", "bytes"), [np.nan, 3.0, 3.0])
    np.testing.assert_allclose(measured.figures("theirs", "bytes"), [np.nan, 10.0, 10.0])
    assert np.isnan(measured.figures("never", "joules")).all()


def test_a_target_may_be_that_of_another_run(measured: Measured) -> None:
    """never's own final accuracy is .52: ours is there after its third evaluation on every seed."""
    np.testing.assert_allclose(measured.figures("ours", "seconds", target="never"), [6.0, 6.0, 6.0])


def test_an_expression_is_worked_out_on_means(measured: Measured) -> None:
    """accuracy in per cent: (81 + 82 + 83)/3 - (51 + 52 + 53)/3 = 30 on every sample of seeds."""
    value, each = measured.expression(
        "ours.accuracy - never.accuracy", {("ours", "accuracy"), ("never", "accuracy")}
    )
    assert (value.mean, value.low, value.high) == pytest.approx((30, 30, 30))
    np.testing.assert_allclose(each, [30, 30, 30])


def test_what_was_never_reached_costs_infinitely_much(measured: Measured) -> None:
    """never's seed 1 ends at .51, below the .52 that seeds 2 and 3 reach after 3 MB, as ours does."""
    terms = {("never", "bytes"), ("ours", "bytes")}
    value, each = measured.expression("never.bytes / ours.bytes", terms, target="never")
    assert value.mean == np.inf
    np.testing.assert_allclose(each, [np.inf, 1, 1])
    assert results.verdict(value.mean, each, ">= 1.5", "")[0] == results.HOLDS
    value, _ = measured.expression("ours.bytes / never.bytes", terms, target="ours")
    assert results.verdict(value.mean, [], "<= 1", "")[0] == results.FAILS  # inf / inf is no victory


def test_local_steps_are_looked_at_within_rounds(measured: Measured) -> None:
    """The fake runs do i steps in round i, six rounds."""
    assert measured.figures("ours", "tau_most", rounds=(2, 4)).tolist() == [4, 4, 4]
    assert measured.figures("ours", "tau_least", rounds=(2, 0)).tolist() == [2, 2, 2]
    assert measured.figures("ours", "tau_end").tolist() == [6, 6, 6]


def test_the_best_is_the_best_of_the_others(measured: Measured) -> None:
    assert measured.best("accuracy") == "theirs"
    assert replace(measured, variants=("theirs",)).best("accuracy") == "never"


def test_a_bootstrap_of_three_seeds_is_about_their_range() -> None:
    """Differences 1, 2, 6: mean 3; all three draws alike has probability 1/27 > 2.5 %, so the ends are 1 and 6."""
    gap = difference(np.array([2.0, 4.0, 9.0]), np.array([1.0, 2.0, 3.0]))
    assert (gap.mean, gap.low, gap.high) == (3, 1, 6)


def test_one_seed_has_no_interval() -> None:
    gap = ratio(np.array([6.0]), np.array([3.0]))
    assert gap.mean == 2
    assert np.isnan([gap.low, gap.high]).all()
    assert np.isnan(resample(lambda s: np.nan, 3).mean)


def test_nobody_wins_inside_the_noise(measured: Measured) -> None:
    """Ours and theirs end alike; never is 30 points below on every seed."""
    first, level = tables.leaders(measured, "accuracy")
    assert first in level
    assert level == {"ours", "theirs"}
    assert "no winner" in tables.sentence(measured, "accuracy")
    assert "never" not in tables.sentence(measured, "accuracy")


def test_a_table_compares_with_ours_and_says_who_never_got_there(measured: Measured) -> None:
    shown = tables.table("communication", "made up", replace(measured, of="never"), [1, 2, 3])
    rows = dict(shown.rows)
    assert rows["ours"][0].text == "3.00"
    assert rows["theirs"][0].text == "6.00"
    assert rows["theirs"][0].small.startswith("2.0x")
    strict = dict(tables.table("communication", "made up", measured, [1, 2, 3]).rows)
    assert strict["ours"][0].small == "2 of 3 seeds"
    assert "-0.0" not in text.table_text(shown)


@pytest.mark.parametrize(
    ("mean", "each", "bound", "bound_each", "state"),
    [
        (1.3, [1.0, 1.6], ">= 1.3", "", results.HOLDS),
        (1.29, [1.0, 1.58], ">= 1.3", "", results.FAILS),
        (1.3, [1.0, 1.6], "", ">= 1.1", results.FAILS),
        (1.3, [1.2, 1.4], ">= 1.3", ">= 1.1", results.HOLDS),
        (np.inf, [np.inf], ">= 1.3", "", results.HOLDS),
        (np.nan, [np.nan], ">= 1.3", "", results.FAILS),
        (1.0, [1.0], "", "", results.SHOWN),
    ],
)
def test_verdicts(mean: float, each: list[float], bound: str, bound_each: str, state: str) -> None:
    assert results.verdict(mean, each, bound, bound_each)[0] == state


def test_a_miss_that_the_file_tells_is_no_surprise_but_stays_a_miss() -> None:
    """The bound is judged as ever; `missed` only tells a known miss from a new one, and is not believed blindly."""
    assert results.verdict(1.2, [1.2], ">= 1.3", "", "few samples") == (results.MISSED, "few samples")
    state, why = results.verdict(1.3, [1.3], ">= 1.3", "", "few samples")
    assert state == results.HOLDS
    assert "few samples" in why
    result = results.Result(sims.read("gates"))
    result.figures = [results.Judged("x", "har", Interval(1.2, 1.2, 1.2), np.ones(1), state=results.MISSED)]
    assert result.missed
    assert not result.failed
    assert "1 missed, as their files say" in command.summary([result])
    assert "0 of 1 gates hold" in page.html([result], "short")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"titel": "x"}, "has no key 'titel'. Did you mean 'title'"),
        ({"title": None}, "title is missing"),
        ({"data": {"digitz": {}}}, "data.digitz.card is 'digitz'. Did you mean 'digits'"),
        ({"data": {}}, "data must name at least one"),
        ({"runs": {"fedavgg": {}}}, "runs.fedavgg.strategy is 'fedavgg'. Did you mean 'fedavg'"),
        ({"runs": {"fed-avg": {"strategy": "fedavg"}}}, "runs.fed-avg: a run's name is"),
        ({"runs": {"fedavg": {"sett": {}}}}, "runs.fedavg has no key 'sett'"),
        ({"runs": {"fedavg": {"data": ["har"]}}}, "runs.fedavg.data is 'har'"),
        ({"ours": "oort"}, "ours is 'oort'"),
        ({"views": ["fair"]}, "views is 'fair'"),
        ({"seeds": {"short": [1]}}, "seeds has no 'long'"),
        ({"target": {"of": "oort"}}, "target.of is 'oort'"),
        ({"figures": {"x": {"value": "fedavg.bytes"}}}, "figures.x.data is missing"),
        (
            {"figures": {"x": {"value": "fedavg.bites", "data": "digits"}}},
            "figures.x.value, measure is 'bites'",
        ),
        (
            {"figures": {"x": {"value": "oort.bytes", "data": "digits"}}},
            "figures.x.value on digits is 'oort'",
        ),
        (
            {"figures": {"x": {"value": "fedavg.bytes", "data": "digits", "bound": "> 2"}}},
            "figures.x.bound is",
        ),
        ({"figures": {"x": {"value": "fedavg.bytes", "data": "har"}}}, "figures.x.data is 'har'"),
        (
            {"figures": {"x": {"value": "fedavg.bytes", "data": "digits", "missed": "why"}}},
            "figures.x.missed needs a bound",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_key(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SimsError) as problem:
        sims.parse(SMALL | change, "small", "long")
    assert str(problem.value).startswith("sims/small.yaml")
    assert words in str(problem.value)


def test_a_file_that_is_no_yaml_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("title: [")
    with pytest.raises(SimsError, match=r"sims/broken.yaml: not YAML .*line 1"):
        sims.read("broken", folder=tmp_path)
    with pytest.raises(SimsError, match=r"there is no sims/brokn.yaml. Did you mean 'broken'"):
        sims.read("brokn", folder=tmp_path)


def test_settings_of_any_shape_reach_hydra_as_they_are() -> None:
    """A mapping goes over the command line as {a:1,b:[2]}: Hydra knows no quoted keys."""
    model = {"kind": "lstm", "hidden": [32], "embed": 8, "layers": 1}
    one = field.job(
        sims.Method("f", "fedavg", {}), sims.Data("s", "shakespeare", {"datasets.model": model}), 1, 2
    )
    assert one.config["datasets"]["model"] == model
    assert "'datasets.model={kind:lstm,hidden:[32],embed:8,layers:1}'" in one.command


def test_a_misspelt_setting_is_refused_before_anything_runs() -> None:
    sim = sims.parse(SMALL | {"runs": {"fedavg": {"set": {"strategies.pace.stepz": 2}}}}, "small", "short")
    assert isinstance(sim, Sim)
    with pytest.raises(ValueError, match="stepz"):
        field.jobs(sim, {})


def test_tuned_settings_come_below_the_file_s_own() -> None:
    tuned = {"fedavg": {"digits": {"set": {"strategies.local.lr": 0.5, "strategies.pace.steps": 7}}}}
    method = sims.Method("fedavg", "fedavg", {"strategies.pace.steps": 9}, tuned=True)
    card = field.job(method, sims.Data("digits", "digits", {}), 1, None, tuned).config["strategies"]
    assert (card["local"]["lr"], card["pace"]["steps"]) == (0.5, 9)


def test_without_an_own_search_a_strategy_takes_the_learning_rate_and_steps_of_uniform() -> None:
    tuned = {"uniform": {"digits": {"set": {"strategies.local.lr": 0.5, "strategies.pace.steps": 7}}}}
    data = sims.Data("digits", "digits", {})
    fedprox = field.job(sims.Method("fedprox", "fedprox", {}, tuned=True), data, 1, None, tuned)
    assert fedprox.config["strategies"]["pace"]["steps"] == 7
    wang = field.job(sims.Method("wang", "wang", {}, tuned=True), data, 1, None, tuned)
    assert wang.config["strategies"]["local"]["lr"] == 0.5


def test_a_table_says_how_its_settings_were_found() -> None:
    """Trials and seeds from what `eiffel tune` kept, who sits on the grid's edge, who borrowed."""
    entry = {"set": {}, "trials": [[0.1, 3, 90.0]] * 7, "seeds": [0, 7], "edge": ["strategies.local.lr"]}
    runs = {"eiffel": {}, "fedavg": {"tuned": True}, "oort": {"tuned": True}}
    sim = sims.parse(SMALL | {"runs": runs}, "small", "short")
    assert isinstance(sim, Sim)
    how, edge, borrowed = field.tuning(sim, {"fedavg": {"digits": entry}})
    assert "at most 7 trials" in how
    assert "seeds 0, 7." in how
    assert edge.endswith(": on digits fedavg (lr).")
    assert borrowed.endswith(": on digits oort.")
    plain = sims.parse(SMALL, "small", "short")
    assert isinstance(plain, Sim)
    assert field.tuning(plain, {}) == []


def test_runs_are_made_once_reused_and_their_commands_are_told(tmp_path: Path) -> None:
    sim = sims.parse(SMALL, "small", "short")
    assert isinstance(sim, Sim)
    jobs = field.jobs(sim, {})
    said: list[str] = []
    wanted = [*jobs.values(), *jobs.values()]
    assert field.perform(wanted, tmp_path, field.Workers(1), said.append) == {}
    assert len(said) == 4
    assert field.perform(wanted, tmp_path, field.Workers(1), said.append) == {}
    assert said[-1].startswith("4 runs lie in")
    broken_off = jobs["digits", "fedavg", 1].folder(tmp_path) / "summary.json"
    broken_off.write_text(broken_off.read_text().replace('"finished"', '"stopped"', 1))
    assert field.perform(wanted, tmp_path, field.Workers(1), said.append) == {}
    assert said[-2].startswith("3 runs lie in")
    assert said[-1].startswith("[1/1] digits-fedavg-seed1")
    result = results.federated(sim, jobs, tmp_path, {})
    assert not result.failed
    assert jobs["digits", "fedavg", 1].command == (
        "eiffel sim datasets=digits strategies=fedavg datasets.clients=5 strategies.pace.steps=2 rounds=2 seed=1"
    )
    # A file without charts before it, whose runs come in another order: a button still hides the line of its name.
    runs = dict(reversed(result.measured["digits"].runs.items()))
    bare = replace(
        result,
        sim=replace(sim, chart=False),
        measured={"digits": replace(result.measured["digits"], runs=runs)},
    )
    drawn = page.html([bare, result], "short")
    buttons = dict(re.findall(r'data-series="(\d+)" aria-pressed="true">(\w+)<', drawn))
    lines = set(re.findall(r'<path class="line s(\d+)[^>]*data-name="(\w+)"', drawn))
    assert lines
    assert lines == set(buttons.items())


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie that nobody has fetched yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_workers_end_with_the_command_even_if_that_is_killed(tmp_path: Path) -> None:
    """kill -9 of the command: its worker, in the middle of a task of a minute, is gone within seconds."""
    script = tmp_path / "command.py"
    script.write_text(
        "import os, sys, time\n"
        "from eiffel.reproduce.field import Workers\n"
        "def task(file):\n"
        "    open(file + '.new', 'w').write(str(os.getpid())); os.rename(file + '.new', file); time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    Workers(2).submit(task, sys.argv[1])()\n"
    )
    told = tmp_path / "pid"
    command = subprocess.Popen([sys.executable, str(script), str(told)], cwd=Path(__file__).parents[1])
    until = time.monotonic() + 60
    while not told.exists() and time.monotonic() < until:
        time.sleep(0.05)
    worker = int(told.read_text())
    command.kill()
    command.wait()
    while runs(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not runs(worker)


def test_the_same_run_in_two_files_is_one_run() -> None:
    """fairness, communication and energy are three views of the same runs."""
    keys = []
    for name in ("fairness", "communication", "energy"):
        sim = sims.read(name, "short")
        assert isinstance(sim, Sim)
        one = replace(sim, data=sim.data[:1], runs=sim.runs[:2])
        keys.append({j.key for j in field.jobs(one, {}).values()})
    assert keys[0] == keys[1] == keys[2]


def test_absent_data_are_named_and_not_judged(tmp_path: Path) -> None:
    figures = {"x": {"value": "fedavg.variance", "data": "digits", "bound": "<= 1"}}
    sim = sims.parse(SMALL | {"figures": figures, "seeds": [1]}, "small", "short")
    assert isinstance(sim, Sim)
    jobs = field.jobs(sim, {})
    lost = {j.key: ("MissingData", "not on this machine") for j in jobs.values()}
    result = results.federated(sim, jobs, tmp_path, lost)
    assert [f.state for f in result.figures] == [results.UNJUDGED]
    assert not result.failed
    broken = results.federated(sim, jobs, tmp_path, {k: ("ValueError", "diverged") for k in lost})
    assert broken.failed


@pytest.mark.parametrize("name", sims.names())
def test_every_file_is_whole_in_both_forms(name: str) -> None:
    for form in sims.FORMS:
        sim = sims.read(name, form)
        assert sim.title
        assert text.listing([sim])
        if isinstance(sim, Sim):
            assert sim.takes, f"sims/{name}.yaml: takes is missing; measure it"
            used = {(run, f.data) for f in sim.figures for run, _ in sims.terms(f.value) if run != sims.BEST}
            assert all(run in {r.name for r in sim.runs} for run, _ in used)


FEDERATED = [name for name in sims.names() if not isinstance(sims.read(name, "short"), Cluster)]


@pytest.mark.parametrize("name", FEDERATED)
def test_every_federated_file_runs_in_a_small_size(name: str, tmp_path: Path) -> None:
    """Two rounds, one seed, three runs at most, on the first data set: all the way to the page."""
    sim = sims.read(name, "short")
    assert isinstance(sim, Sim)
    data = sim.data[0]
    runs = [r for r in sim.runs if r.runs_on(data.name)][:3]
    tiny = {"cohort.size": 2, **({"fleet.size": 20} if "fleet.size" in data.set else {})}
    data = replace(data, set={**data.set, **tiny, "score_every": 1})
    sim = replace(
        sim,
        seeds=sim.seeds[:1],
        rounds={data.name: 2},
        data=(data,),
        runs=tuple(runs),
        figures=tuple(
            f for f in sim.figures if {r for r, _ in sims.terms(f.value)} <= {r.name for r in runs}
        ),
        of=sim.of if sim.of in {r.name for r in runs} else sims.BEST,
    )
    jobs = field.jobs(sim, {})
    failed = field.perform(list(jobs.values()), tmp_path, field.Workers(1), lambda words: None)
    result = results.federated(sim, jobs, tmp_path, failed)
    if result.absent:
        pytest.skip(next(iter(result.absent.values())))
    assert not result.broken
    assert sim.name in text.result_text(result, "short")
    assert sim.title in page.html([result], "short").replace("&#x27;", "'")


def test_a_file_of_kind_cluster_is_worked_out_once_and_kept(tmp_path: Path) -> None:
    """One job on two unlike nodes: two policies, a ratio, a bound on it, and a second call that reads it back."""
    job = {"format": "synthetic", "jobs": 1, "seed": 0, "gangs": {1: 1}, "speeds": {"v100": 1, "k80": 0.2}}
    nodes = [{"type": "v100", "nodes": 1, "devices": 1}, {"type": "k80", "nodes": 1, "devices": 1}]
    spec = {
        "kind": "cluster",
        "title": "one job",
        "minutes": 1,
        "cases": {
            "one": {
                "cluster": {"nodes": nodes},
                "trace": job | {"lengths": {"kind": "uniform", "hours": [1, 1]}},
            }
        },
        "runs": {"fifo": {"policy": "fifo"}, "hadar": {"policy": "hadar"}},
        "figures": {
            "no slower": {"case": "one", "value": "fifo.jct_mean / hadar.jct_mean", "bound": ">= 0.5"}
        },
    }
    sim = sims.parse(spec, "one_job", "short")
    assert isinstance(sim, Cluster)
    first = cluster.evaluated(sim, tmp_path)
    assert [f.state for f in first.figures] == [results.HOLDS]
    kept = list((tmp_path / "cluster").iterdir())
    assert len(kept) == 1
    again = cluster.evaluated(sim, tmp_path)
    assert again.processor == 0
    assert again.figures[0].value.mean == first.figures[0].value.mean
    assert "no slower" in text.result_text(again, "short")
    assert "one job" in page.html([again], "short")


@pytest.mark.parametrize(
    ("entry", "words"), [({"bound": "about 1"}, "f.bound is"), ({"missed": "x"}, "f.missed needs")]
)
def test_bounds_of_a_cluster_file_are_checked_before_it_runs(entry: dict[str, str], words: str) -> None:
    figures = {"f": {"case": "c", "value": "r.ttd"} | entry}
    with pytest.raises(SimsError, match=rf"^sims/x.yaml: figures.{words}"):
        sims.parse(
            {"kind": "cluster", "title": "t", "cases": {"c": 1}, "runs": {"r": 1}, "figures": figures},
            "x",
            "short",
        )


def test_cluster_files_without_traces_are_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EIFFEL_DATA", str(tmp_path))
    sim = sims.read("elas_vs_tiresias")
    assert isinstance(sim, Cluster)
    result = cluster.evaluated(sim, tmp_path)
    assert {f.state for f in result.figures} == {results.UNJUDGED}
    assert not result.failed
    assert "EIFFEL_DATA" in text.result_text(result, "short")
