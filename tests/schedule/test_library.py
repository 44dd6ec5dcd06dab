"""The example of docs/cluster-library.md runs as it stands, without a simulator."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cluster-library.md"


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(code) == 1
    exec(compile(code[0], str(PAGE), "exec"), {})
    said = capsys.readouterr().out
    assert said.count("GPUs on node") >= 2
    assert "job 15 waits: " in said or "job 11 waits: " in said or "job 12 waits: " in said
