"""The README's promises: its commands run, its links lead somewhere, its two commands are there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", TEXT, re.S)


def commands(block: str) -> list[str]:
    return [re.split(r"\s#\s", line)[0].strip() for line in block.splitlines() if line.startswith("eiffel ")]


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert targets
    assert not [t for t in targets if not t.startswith("http") and not (ROOT / t).exists()]


def test_the_two_commands_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in TEXT
        assert re.search(rf"^{target}:", makefile, re.M)


def test_every_command_named_exists() -> None:
    from eiffel.cli import COMMANDS

    named = set(
        re.findall(r"^eiffel ([a-z]+)\b", "\n".join(BLOCKS + re.findall(r"`(eiffel [^`]+)`", TEXT)), re.M)
    )
    assert named <= set(COMMANDS)


@pytest.mark.slow
def test_the_commands_run_as_they_stand(tmp_path: Path) -> None:
    """In order, in one folder; runs are shortened, nothing else is changed."""
    for command in commands(BLOCKS[0]) + commands(BLOCKS[1]):
        words = command.split()[1:]
        if words[0] == "sim" and "--help" not in words:
            words = [w for w in words if not w.startswith("rounds=")] + ["rounds=18", "report=quiet"]
        run = next(iter(sorted(tmp_path.glob("outputs/*/*-seed0"))), None)
        words = [str(run) if w == "RUN" else w for w in words]
        done = subprocess.run(
            [sys.executable, "-m", "eiffel.cli", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
