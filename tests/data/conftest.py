"""Cards as mappings, and a home without other people's data."""

import os
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def card():
    """card("digits", alpha=1.0, options={...}): the card with changes; options are merged."""

    def read(name, options=None, **changes):
        found = yaml.safe_load((ROOT / "datasets" / f"{name}.yaml").read_text())
        return found | changes | {"options": found["options"] | (options or {})}

    return read


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No EIFFEL_DATA, an own cache, an empty working folder."""
    monkeypatch.delenv("EIFFEL_DATA", raising=False)
    monkeypatch.setenv("EIFFEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert "EIFFEL_DATA" not in os.environ
    return tmp_path
