"""A run end to end: killed in the middle it goes on bit for bit; worker counts and damaged files change nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from eiffel import config as cfg
from eiffel.core.checkpoint import CheckpointError
from eiffel.simulation import resume, simulate, stop_when, targets

QUICK = ["datasets.clients=12", "rounds=6", "cohort.size=4", "report=quiet", "engine=single"]


def compose(*overrides: str) -> dict[str, Any]:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    cfg.register()
    with initialize_config_dir(str(cfg.CONF), version_base=None):
        return cfg.plain(hydra_compose("sim", [*QUICK, *overrides]))


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


def model(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "model.npz") as saved:
        return {name: saved[name] for name in saved.files}


def assert_same_run(left: Path, right: Path) -> None:
    """Weights, records and per-device rows, bit for bit."""
    assert records(left) == records(right)
    a, b = model(left), model(right)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
    tables = [pq.read_table(folder / "clients.parquet") for folder in (left, right)]
    assert tables[0].equals(tables[1])


STRATEGIES = ["eiffel", "fedavg"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_killed_in_the_middle_of_a_round_it_goes_on_bit_for_bit(tmp_path: Path, strategy: str) -> None:
    """kill -9 while round 4 trains (the trainer announces the round, then dawdles), resume, compare."""
    config = compose(f"strategies={strategy}", "fleet.battery.rounds=30", "fleet.dropout=0.1")
    simulate(config, tmp_path / "whole")
    killed = tmp_path / "killed"
    script = f"""
import json, sys, time
from pathlib import Path
from eiffel.simulation import simulate
from eiffel.worlds.fleet import FleetWorld
run = FleetWorld.run
def slow(self, plan):
    if plan.round == 4:
        print("round 4", flush=True)
        time.sleep(60)
    return run(self, plan)
FleetWorld.run = slow
simulate(json.loads(sys.stdin.read()), Path({str(killed)!r}))
"""
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin as stdin:
        stdin.write(json.dumps(config))
    with child.stdout as stdout:
        assert "round 4" in stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait(timeout=20) == -signal.SIGKILL
    assert len(records(killed)) == 3
    assert json.loads((killed / "summary.json").read_text())["status"] == "running"
    summary = resume(killed)
    assert summary["status"] == "finished"
    assert_same_run(tmp_path / "whole", killed)


def test_a_truncated_newest_checkpoint_costs_one_round_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = compose()
    simulate(config, tmp_path / "whole")
    simulate(config | {"rounds": 4}, tmp_path / "cut")
    newest = sorted((tmp_path / "cut" / "checkpoints").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:200])
    text = (tmp_path / "cut" / "config.yaml").read_text().replace("rounds: 4\n", "rounds: 6\n")
    (tmp_path / "cut" / "config.yaml").write_text(text)
    with open(tmp_path / "cut" / "records.jsonl", "a") as torn:
        torn.write('{"round": 5, "sta')
    resume(tmp_path / "cut")
    assert "checkpoint-000004.npz is damaged" in capsys.readouterr().err
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_one_worker_or_two_make_the_same_run(tmp_path: Path) -> None:
    simulate(compose(), tmp_path / "one")
    simulate(compose("engine=local", "engine.workers=2", "engine.patience=0"), tmp_path / "two")
    assert records(tmp_path / "one") == records(tmp_path / "two")
    np.testing.assert_array_equal(model(tmp_path / "one")["last"], model(tmp_path / "two")["last"])


def test_ctrl_c_ends_after_the_round_and_says_how_to_go_on(tmp_path: Path) -> None:
    config = compose("rounds=100000", "report=terminal")
    script = "import json, sys; from pathlib import Path; from eiffel.simulation import simulate\n"
    script += f"simulate(json.loads(sys.stdin.read()), Path({str(tmp_path / 'run')!r}))"
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL
    )
    assert child.stdin is not None
    with child.stdin as stdin:
        stdin.write(json.dumps(config))
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "records.jsonl").exists() or not records(tmp_path / "run"):
        assert time.monotonic() < deadline, "the run never began"
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=30) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "stopped"
    assert "interrupted by SIGINT" in summary["why"]


def test_a_folder_that_holds_a_run_is_not_written_over(tmp_path: Path) -> None:
    simulate(compose("rounds=1"), tmp_path / "run")
    with pytest.raises(cfg.ConfigError, match="already holds a run"):
        simulate(compose("rounds=1"), tmp_path / "run")


def test_resume_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(cfg.ConfigError, match="holds no run"):
        resume(tmp_path)
    simulate(compose("rounds=1"), tmp_path / "run")
    for file in (tmp_path / "run" / "checkpoints").iterdir():
        file.unlink()
    with pytest.raises(CheckpointError, match="Start the run anew"):
        resume(tmp_path / "run")


def test_a_run_that_cannot_begin_leaves_its_reason(tmp_path: Path) -> None:
    with pytest.raises(cfg.ConfigError, match=r"local\.lr is -1"):
        simulate(compose("strategies.local.lr=-1"), tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert "local.lr is -1" in summary["why"]


def test_a_fleet_larger_than_the_data_reuses_its_parts(tmp_path: Path) -> None:
    summary = simulate(compose("fleet.size=40", "datasets.parts=10", "rounds=2"), tmp_path / "run")
    assert summary["fleet"]["devices"] == 40
    assert summary["data"]["clients"] == 10


def test_the_summary_says_what_was_run(tmp_path: Path) -> None:
    summary = simulate(compose(), tmp_path / "run", command="eiffel sim rounds=6")
    assert summary["command"] == "eiffel sim rounds=6"
    assert summary["totals"]["rounds"] == 6
    assert summary["totals"]["bytes"] == records(tmp_path / "run")[-1]["total_bytes"]
    assert len(next(iter(summary["data"]["sources"].values()))) == 64
    assert summary["versions"]["numpy"] == np.__version__


def test_targets_by_hand() -> None:
    """Accuracies 0 .25 .5 .75 1; the mean of three first reaches .5 at the fourth evaluation (round 8)."""
    rows = [
        {
            "round": 2 * i + 2,
            "total_bytes": 10 * (i + 1),
            "total_joules": float(i + 1),
            "total_s": float(i),
            "scores": {name: {"accuracy": 0.25 * i} for name in ("last", "ema")},
        }
        for i in range(5)
    ]
    reached = targets(rows, "ema", 0.5)["served"]
    assert (reached["rounds"], reached["bytes"], reached["joules"]) == (8, 40, 4.0)
    assert targets(rows, "last", 0.95)["served"] is None
    assert targets([], "last", None)["served"] is None


def test_a_run_may_end_when_it_is_good_enough() -> None:
    row = {"scores": {"served": "ema", "ema": {"accuracy": 0.91}, "last": {"accuracy": 0.5}}}
    assert stop_when(row, 0.9) == "the served model reached 0.9"
    assert stop_when(row, 0.95) == ""
    assert stop_when({"scores": None}, 0.1) == ""
