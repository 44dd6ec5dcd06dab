"""The command as a person meets it: help, errors that suggest, sweeps that survive a failing job."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eiffel import config as cfg
from eiffel.cli import COMMANDS, main, overview

QUICK = ["datasets.clients=12", "rounds=2", "cohort.size=3", "report=quiet", "engine=single"]


def eiffel(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own, for Hydra keeps global state."""
    return subprocess.run(
        [sys.executable, "-m", "eiffel.cli", *words],
        cwd=cwd,
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
        env=os.environ | {"COLUMNS": "120"},
    )


def test_alone_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)
    assert out.strip() == overview()


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str, tmp_path: Path) -> None:
    done = eiffel(command, "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 80


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["simm"], "Did you mean 'sim'?"),
        (["sim", "rouns=3"], "Did you mean 'rounds'?"),
        (["sim", "strategies=eifel"], "Did you mean 'eiffel'?"),
        (["sim", "strategies.select.agee=0"], "Did you mean 'strategies.select.age'?"),
        (["sim", "datasets=digts"], "Did you mean 'digits'?"),
        (["sim", "seed=soon"], "seed"),
        (["explain", "nowhere", "--round", "1", "--device", "1"], "nowhere"),
        (["report", "nowhere"], "nowhere"),
        (["resume", "nowhere"], "holds no run"),
    ],
)
def test_mistakes_are_answered_in_one_line_with_the_right_word(
    words: list[str], says: str, tmp_path: Path
) -> None:
    done = eiffel(*words, cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_sweep_keeps_every_job_and_loses_none_to_a_failing_one(tmp_path: Path) -> None:
    done = eiffel("sim", "-m", "strategies=fedavg,eiffel", "strategies.local.lr=0.1,-1", *QUICK, cwd=tmp_path)
    assert done.returncode == 1
    assert "2 of 4 jobs finished" in done.stdout
    (kept,) = tmp_path.glob("outputs/*/*-sweep/sweep.json")
    jobs = json.loads(kept.read_text())
    assert [job["status"] for job in jobs] == ["finished", "failed", "finished", "failed"]
    assert "local.lr is -1" in jobs[1]["error"]
    assert "strategies.local.lr=-1" in jobs[1]["overrides"]
    again = eiffel("report", str(kept.parent), cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (kept.parent / "report.html").stat().st_size > 10_000


def test_explain_answers_why_not_me(tmp_path: Path) -> None:
    assert eiffel("sim", *QUICK, "hydra.run.dir=run", cwd=tmp_path).returncode == 0
    answers = [
        eiffel("explain", "run", "--round", "2", "--device", str(d), cwd=tmp_path).stdout for d in range(12)
    ]
    assert sum("not chosen: a candidate, but others were drawn" in answer for answer in answers) == 9


@pytest.mark.parametrize("group", ["strategies", "datasets", "fleet", "engine", "report"])
def test_every_option_of_every_group_composes(group: str) -> None:
    from hydra import compose, initialize_config_dir

    cfg.register()
    names = cfg.options(group)
    assert names
    with initialize_config_dir(str(cfg.CONF), version_base=None):
        for name in names:
            assert cfg.plain(compose("sim", [f"{group}={name}"]))[group]


def test_a_choice_can_be_swapped_on_the_command_line() -> None:
    from hydra import compose, initialize_config_dir

    cfg.register()
    with initialize_config_dir(str(cfg.CONF), version_base=None):
        config = cfg.plain(compose("sim", ["strategies/select=uniform", "strategies.pace.start=2"]))
    method = cfg.build_method(config, 10)
    assert type(method.select).__name__ == "Uniform"
    assert method.pace.tempo(method.pace.init()).steps == 2
