"""Explanations, live progress, and the sinks that a card opens."""

import io
import json
import shutil
import sys
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eiffel.core.model import Reason
from eiffel.report import Report, RunFolder, explain, open_sinks
from eiffel.report.folder import rows_file
from eiffel.report.terminal import Terminal
from eiffel.report.wandb_sink import Wandb, flat, run_id


@pytest.fixture
def tiny(tmp_path):
    """Two rounds over four devices; in the second, device 2 is chosen and comes too late."""
    folder = RunFolder(tmp_path / "tiny")
    folder.summary({"status": "finished", "seed": 7, "strategy": {"name": "eiffel"}, "fleet": {"size": 4}})
    for number, reason, status, score in (
        (1, [0, 1, 0, 2], [0, 255, 0, 255], [2.0, 1.0, 3.0, -np.inf]),
        (2, [1, 5, 0, 1], [255, 255, 2, 255], [2.0, -np.inf, 1.5, 4.0]),
    ):
        folder.record(
            {"round": number, "chosen": 1, "candidates": 3, "refused": {"not_drawn": 2, "battery": 1}},
            {
                "device": np.arange(4),
                "reason": np.array(reason, dtype=np.uint8),
                "status": np.array(status, dtype=np.uint8),
                "steps": np.full(4, 5),
                "seconds": np.full(4, 90.0),
                "joules": np.full(4, 12.0),
                "bytes_down": np.full(4, 1000),
                "bytes_up": np.full(4, 500),
                "loss": np.array([np.nan, np.nan, 0.75, np.nan]),
                "battery": np.array([0.9, 0.05, 0.5, np.nan]),
                "score": np.array(score),
            },
        )
    folder.close()
    return tmp_path / "tiny"


def test_why_a_device_was_chosen_and_what_came_of_it(tiny):
    """Scores 2.0, 1.5, 4.0 of the candidates 0, 2, 3: device 2 is third of three."""
    assert explain(tiny, 2, 2).splitlines() == [
        "Round 2, device 2 (eiffel, seed 7)",
        "  chosen",
        "  its task: answered after the deadline",
        "  it cost: 5 local steps, 90.0 s, 12.0 J, 1.50 kB",
        "  score: 1.50, rank 3 of 3 scored candidates listed",
        "  loss of the incoming model on its data: 0.750",
        "  battery when the round began: 50 %",
        "  the round: 1 chosen of 3 candidates; others: 2 not drawn, 1 battery",
        "  before: chosen once in 1 round, last in round 1",
    ]


def test_why_a_device_was_not_chosen(tiny):
    said = explain(tiny, 2, 1)
    assert f"not chosen: {Reason.BATTERY.text}" in said
    assert "score: none, for it was no candidate" in said
    assert "before: never chosen in 1 round" in said
    assert "its task" not in said
    assert "rank 1 of 3" in explain(tiny, 2, 3)


def test_big_fleets_say_that_only_the_cohort_was_kept(tmp_path):
    folder = RunFolder(tmp_path)
    folder.summary({"status": "finished", "fleet": {"size": 1_000_000}})
    rows = {
        "device": np.array([5, 900_000]),
        "reason": np.zeros(2, np.uint8),
        "status": np.zeros(2, np.uint8),
    }
    folder.record({"round": 1, "chosen": 2, "candidates": 800_000}, rows)
    folder.record({"round": 2, "chosen": 2, "candidates": 800_000}, rows | {"device": np.array([6, 7])})
    folder.close()
    said = explain(tmp_path, 2, 5)
    assert "of 1,000,000 devices only the 2 of the cohort were written" in said
    assert "before: chosen once in 1 round, last in round 1" in said


@pytest.mark.parametrize(
    ("round_", "device", "words"),
    [(3, 0, "no round 3; rounds 1 to 2"), (1, 4, "numbered 0 to 3"), (1, -1, "device is -1")],
)
def test_what_does_not_exist_is_refused_by_name(tiny, round_, device, words):
    with pytest.raises(ValueError, match=words):
        explain(tiny, round_, device)


def test_missing_and_damaged_files_are_named(tiny, tmp_path):
    with pytest.raises(ValueError, match="no such run folder"):
        explain(tmp_path / "gone", 1, 0)
    rows_file(tiny, 1).write_bytes(b"no parquet")
    with pytest.raises(ValueError, match=r"round-000001\.parquet: damaged"):
        explain(tiny, 1, 0)
    rows_file(tiny, 1).unlink()
    with pytest.raises(ValueError, match=r"round-000001\.parquet: missing"):
        explain(tiny, 1, 0)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(0, 49))
def test_every_device_of_every_round_can_ask(sweep, round_, device):
    said = explain(sweep[3], round_, device)
    assert "chosen" in said.splitlines()[1]
    assert "before: " in said


ROUND = {"total_bytes": 2e6, "total_joules": 1500.0, "total_s": 30.0}


def test_lines_every_few_seconds_and_one_at_the_end():
    """Rounds come every 2 s and lines every 5: after rounds 3 and 6 (6 s and 12 s). The end is always told."""
    out, now = io.StringIO(), [0.0]
    terminal = Terminal(7, "eiffel 0", every_s=5, out=out, clock=lambda: now[0])
    terminal.summary({"status": "running"})
    for number in range(1, 8):
        now[0] += 2
        scores = {"served": "ema", "ema": {"accuracy": 0.5}} if number == 2 else None
        terminal.record({"round": number, "scores": scores, **ROUND})
    terminal.summary({"status": "finished", "why": "all rounds done"})
    terminal.close()
    assert out.getvalue().splitlines() == [
        "eiffel 0: round 3/7  accuracy 50.0 %  2.00 MB  1.50 kJ  30.0 s",
        "eiffel 0: round 6/7  accuracy 50.0 %  2.00 MB  1.50 kJ  30.0 s",
        "eiffel 0: finished after 7 rounds in 14.0 s (all rounds done)  accuracy 50.0 %  2.00 MB  1.50 kJ  30.0 s",
    ]


def test_off_says_nothing_and_a_misspelt_mode_is_refused():
    out = io.StringIO()
    terminal = Terminal(1, mode="off", out=out)
    terminal.record({"round": 1})
    terminal.summary({"status": "finished"})
    assert out.getvalue() == ""
    with pytest.raises(ValueError, match="auto, plain, off"):
        Terminal(1, mode="loud")


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_on_a_terminal_is_taken_down_before_the_last_line():
    pytest.importorskip("rich")
    out = Screen()
    terminal = Terminal(3, "eiffel", out=out)
    for number in (1, 2, 3):
        terminal.record({"round": number, **ROUND})
    terminal.summary({"status": "stopped", "why": "no device left"})
    terminal.close()
    assert (
        out.getvalue().splitlines()[-1].lstrip("\x1b[12AK").startswith("eiffel: stopped after 3 rounds in ")
    )
    assert "\x1b[?25h" in out.getvalue(), "the cursor is shown again"


@pytest.fixture
def wandb_calls(monkeypatch):
    """A stand-in for wandb that writes down what it is told."""
    calls = {"init": [], "log": [], "finish": [], "summary": {}}

    def init(**options):
        calls["init"].append(options)
        return types.SimpleNamespace(
            log=lambda row, step: calls["log"].append((step, row)),
            summary=calls["summary"],
            finish=lambda exit_code: calls["finish"].append(exit_code),
        )

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init, Settings=dict))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("NETRC", "/nonexistent")
    return calls


def test_wandb_gets_the_same_names_once_and_is_always_finished(wandb_calls, tmp_path):
    sink = Wandb(tmp_path / "sweep" / "3", config={"lr": np.float32(0.5)})
    (options,) = wandb_calls["init"]
    assert options["mode"] == "offline", "there is no key"
    assert (options["group"], options["name"]) == ("sweep", "3")
    sink.record(
        {"round": 1, "bytes": 10, "loss_in": None, "scores": {"served": "last", "last": {"accuracy": 0.5}}}
    )
    sink.record({"round": 1, "bytes": 10})
    sink.summary({"status": "running"})
    assert wandb_calls["log"] == [
        (1, {"round": 1, "bytes": 10, "scores.served": "last", "scores.last.accuracy": 0.5})
    ]
    sink.summary({"status": "failed", "final": {"served": {"accuracy": 0.5}}})
    sink.close()
    assert wandb_calls["finish"] == [1], "once, as failed"
    assert wandb_calls["summary"]["final.served.accuracy"] == 0.5


def test_a_resumed_run_goes_on_in_the_same_wandb_run(wandb_calls, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    sink = Wandb(tmp_path / "3", after=5)
    for number in (4, 5, 6):
        sink.record({"round": number})
    assert [step for step, _ in wandb_calls["log"]] == [6]
    assert wandb_calls["init"][0]["id"] == run_id(tmp_path / "3") != run_id(tmp_path / "4")
    assert wandb_calls["init"][0]["mode"] == "online"
    sink.close()
    assert wandb_calls["finish"] == [0]


def test_without_wandb_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r"pip install 'eiffel-fl\[wandb\]'"):
        Wandb(tmp_path)


def test_nested_figures_have_dotted_names():
    assert flat({"a": {"b": 1, "c": np.nan}, "d": None, "e": "x"}) == {"a.b": 1, "e": "x"}


def test_the_real_wandb_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    sinks = open_sinks(
        Report(terminal="off", wandb=True, mode="offline"), tmp_path / "s" / "0", rounds=2, name="x"
    )
    sinks.summary({"status": "running"})
    sinks.record({"round": 1, "bytes": 3})
    sinks.summary({"status": "finished"})
    sinks.close()
    (file,) = (tmp_path / "s" / "0" / "wandb").glob(f"offline-run-*/run-{run_id(tmp_path / 's' / '0')}.wandb")
    assert file.stat().st_size > 0
    assert json.loads((tmp_path / "s" / "0" / "summary.json").read_text()) == {"status": "finished"}


def test_sinks_opened_again_go_on_after_the_last_round(tmp_path):
    for after, numbers in ((0, (1, 2, 3)), (2, (3, 4))):
        sinks = open_sinks(Report(terminal="off"), tmp_path, rounds=4, name="x", after=after)
        for number in numbers:
            sinks.record({"round": number})
        sinks.close()
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3, 4]


def test_every_card_of_the_group_opens(root, tmp_path):
    from hydra import compose, initialize_config_dir

    folder = tmp_path / "conf"
    shutil.copytree(root / "conf" / "report", folder / "report")
    (folder / "x.yaml").write_text("defaults: [report: files]\n")
    with initialize_config_dir(str(folder), version_base="1.3"):
        for name in sorted(p.stem for p in (folder / "report").glob("*.yaml")):
            card = Report(**compose("x", [f"report={name}"]).report)
            assert card.wandb == (name == "wandb")
            assert card.terminal == {"terminal": "plain", "quiet": "off"}.get(name, "auto")
