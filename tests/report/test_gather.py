"""Runs sorted into problems, strategies and seeds, and averaged."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from eiffel.report import gather
from eiffel.report.compare import table_rows
from eiffel.report.read import Run, find, load


def run(seed, accuracy, *, name="a", overrides=(), total=None, status="finished", served="last", ema=None):
    """A run with one evaluation a round; round r has cost r MB, or `total`."""
    total = total or [1e6 * (i + 1) for i in range(len(accuracy))]
    records = []
    for i, (a, t) in enumerate(zip(accuracy, total, strict=True)):
        scores = {"served": served, "last": {"accuracy": a, "variance": 10.0, "worst10": a, "best10": a}}
        if ema is not None:
            scores["ema"] = {"accuracy": ema[i], "variance": 5.0, "worst10": ema[i], "best10": ema[i]}
        records.append({"round": i + 1, "total_bytes": t, "total_joules": t, "total_s": t, "scores": scores})
    summary = {
        "status": status,
        "seed": seed,
        "overrides": [f"seed={seed}", f"strategies={name}", *overrides],
        "strategy": {"name": name},
        "data": {"name": "d"},
    }
    return Run(Path(f"{name}-{seed}-{'-'.join(overrides)}"), summary, tuple(records), None)


@pytest.fixture
def copy(sweep, tmp_path):
    return shutil.copytree(sweep[0], tmp_path / "run")


def test_the_mean_of_two_lines_on_their_common_range():
    """0..2 rising to 2, and 1..3 constant 4: on 1..2 the means are (1+4)/2 = 2.5 and (2+4)/2 = 3."""
    lines = [(np.array([0.0, 2.0]), np.array([0.0, 2.0])), (np.array([1.0, 3.0]), np.array([4.0, 4.0]))]
    c = gather.average(lines, points=2)
    assert c.x.tolist() == [1, 2]
    assert c.mean.tolist() == [2.5, 3]
    assert c.low.tolist() == [1, 2]
    assert c.high.tolist() == [4, 4]


def test_lines_with_nothing_known_are_left_out():
    nan = np.array([np.nan, np.nan])
    assert gather.average([(nan, nan)]).x.size == 0
    assert gather.average([(nan, nan), (np.array([0.0, 1.0]), np.array([5.0, 7.0]))]).mean.tolist() == [5, 7]


def test_seeds_are_averaged_and_settings_are_not():
    """Two seeds of one setting are one strategy; another number of local steps is another."""
    runs = [
        run(0, [0.5] * 4),
        run(1, [0.7] * 4),
        run(0, [0.9] * 4, overrides=["strategies.pace.steps=50", "rounds=4"]),
    ]
    (problem,) = gather.problems(runs)
    assert [(g.label, g.seeds) for g in problem.groups] == [
        ("a", ("0", "1")),
        ("a rounds=4 steps=50", ("0",)),
    ]
    assert problem.groups[0].finals("accuracy").tolist() == pytest.approx([0.5, 0.7])
    assert problem.target(0.5) == pytest.approx(0.3), "half of the mean of .5 and .7"


def test_other_data_or_another_fleet_is_another_problem():
    runs = [run(0, [0.5] * 3), run(0, [0.5] * 3, overrides=["fleet.size=1000"]), run(0, [0.5] * 3, name="b")]
    found = gather.problems(runs)
    assert [p.title for p in found] == ["d", "d size=1000"]
    assert [g.label for g in found[0].groups] == ["a", "b"]
    assert found[1].groups[0].index == found[0].groups[0].index, "one strategy, one colour, everywhere"


def test_the_configuration_tells_runs_apart_where_there_is_one(sweep, tmp_path):
    """Not the command line: a resumed run has none. Local steps tune the strategy; alpha makes the problem."""
    runs = []
    for number, (steps, alpha, workers) in enumerate([(5, 0.3, 1), (50, 0.3, 1), (5, 1.0, 1), (5, 0.3, 8)]):
        path = shutil.copytree(sweep[0], tmp_path / str(number))
        card = (
            f"datasets: {{alpha: {alpha}, steps: {steps}}}\nengine: {{workers: {workers}}}\nseed: {number}\n"
        )
        (path / "config.yaml").write_text(card)
        runs.append(load(path))
    found = gather.problems(runs)
    assert [p.title for p in found] == ["digits alpha=0.3", "digits alpha=1.0"]
    assert [(g.label, len(g.runs) + len(g.left_out)) for g in found[0].groups] == [
        ("fedavg steps=5", 2),
        ("fedavg steps=50", 1),
    ]


def test_a_damaged_configuration_is_as_none(copy):
    (copy / "config.yaml").write_text("a: [")
    assert load(copy).settings == {"strategies": "fedavg", "seed": "0"}


def test_a_run_that_did_not_end_counts_only_where_none_did():
    broken = Run(Path("x"), run(1, [0.1] * 3).summary, run(1, [0.1] * 3).records, "unfinished: killed")
    (problem,) = gather.problems([run(0, [0.5] * 3), broken])
    assert problem.groups[0].seeds == ("0",)
    assert problem.groups[0].left_out == ((broken, "unfinished: killed"),)
    (problem,) = gather.problems([broken])
    assert problem.groups[0].partial
    assert problem.groups[0].seeds == ("1",)


def test_of_two_runs_of_one_seed_the_later_counts():
    first, second = run(0, [0.5] * 3), run(0, [0.6] * 3)
    second = Run(Path("later"), second.summary, second.records)
    (problem,) = gather.problems([first, second])
    assert problem.groups[0].runs == (second,)
    assert "same seed as later" in problem.groups[0].left_out[0][1]


def test_ratios_and_targets_by_hand():
    """The target .8 is met by the mean of three evaluations: a after 4 rounds (4 MB), b after 3 (half price)."""
    a = run(0, [0.2, 0.8, 0.8, 0.8], ema=[0.8, 0.8, 0.8, 0.8])
    b = run(0, [0.8, 0.8, 0.8, 0.8], name="b", total=[5e5, 1e6, 2e6, 3e6])
    rows = table_rows(gather.problems([a, b])[0], 0.8 - 1e-9)
    assert [(r.group.label, r.note) for r in rows] == [("a", ""), ("a", "+ EMA"), ("b", "")]
    assert [r.cost["bytes"].mean for r in rows] == [4e6, 3e6, 2e6]
    assert rows[2].ratio["bytes"][0] == 2
    assert rows[1].gain == pytest.approx(0.5), "variance 5 against 10"
    assert rows[0].ratio == {}
    assert np.isnan(rows[0].gain)


def test_a_seed_that_never_arrived_leaves_no_cost():
    a, b = run(0, [0.8] * 4), run(1, [0.2] * 4)
    (row,) = table_rows(gather.problems([a, b])[0], 0.7)
    assert row.reached == 1
    assert np.isnan(row.cost["bytes"].mean), "a mean over the seeds that got there would flatter"


def test_counts_and_accuracy_of_single_devices_come_from_the_rows(sweep):
    found = load(sweep[0])
    assert found.counts.sum() == 60 * 10, "60 rounds of 10 devices"
    assert found.counts.size == 50
    assert found.per_device.size == 50
    last = found.evaluations[-1]["scores"]["last"]["accuracy"]
    assert found.per_device.mean() == pytest.approx(last + 0.01, abs=0.005)


def test_the_folders_of_a_sweep_are_found_in_order(sweep, tmp_path):
    root = sweep[0].parent
    assert find([root]) == sweep
    assert find([sweep[1], root]) == [sweep[1], sweep[0], *sweep[2:]]
    assert find([tmp_path / "nowhere"]) == [tmp_path / "nowhere"], "kept, to be reported as missing"


def test_a_missing_run_is_a_run_with_a_problem(tmp_path):
    assert "no such run folder" in load(tmp_path / "x").problem
    (tmp_path / "y").mkdir()
    assert "missing" in load(tmp_path / "y").problem


def test_damage_is_named_by_file_and_line_and_what_was_before_is_kept(copy):
    lines = (copy / "records.jsonl").read_text().splitlines()
    lines[29] = lines[29][:40]
    (copy / "records.jsonl").write_text("\n".join(lines) + "\n")
    found = load(copy)
    assert len(found.records) == 29
    assert f"{copy / 'records.jsonl'}, line 30: not a record" in found.problem


def test_a_half_written_last_line_is_told_from_damage(copy):
    with open(copy / "records.jsonl", "a") as file:
        file.write('{"round": 61, "sec')
    found = load(copy)
    assert len(found.records) == 60
    assert "line 61: half written" in found.problem


@pytest.mark.parametrize(
    "text", ["{", "[1, 2]", '{"status": "running"}', '{"status": "failed", "why": "boom"}']
)
def test_a_summary_that_does_not_say_finished_is_a_problem(copy, text):
    (copy / "summary.json").write_text(text)
    found = load(copy)
    assert found.problem
    assert len(found.records) == 60


def test_a_failed_run_says_why(copy, summary_of):
    (copy / "summary.json").write_text(json.dumps(summary_of(copy) | {"status": "failed", "why": "boom"}))
    assert load(copy).problem == "failed after 60 rounds: boom"


def test_damaged_rows_of_devices_do_not_stop_the_rest(copy):
    (copy / "clients.parquet" / "round-000060.parquet").write_bytes(b"PAR1 no")
    found = load(copy)
    assert found.counts.sum() == 59 * 10
    assert found.per_device.size == 50, "of the evaluation before"
