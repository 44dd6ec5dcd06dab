"""The bundle that Flower ships: small, whole, and only what server and devices need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk

# pathspec's, in Flower's way of reading patterns.
pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")


@pytest.fixture(scope="module")
def bundle(root: Path) -> zipfile.ZipFile:
    content = build_fab_from_disk(root)
    assert len(content) < 10 * 2**20
    return zipfile.ZipFile(BytesIO(content))


def test_it_carries_what_is_needed_and_nothing_else(bundle: zipfile.ZipFile) -> None:
    names = bundle.namelist()
    folders = {name.split("/")[0] for name in names}
    assert folders <= {"eiffel", "conf", "strategies", "datasets", "pyproject.toml", "LICENSE", ".info"}
    assert {
        "eiffel/flower/server_app.py",
        "conf/deploy.yaml",
        "strategies/eiffel.yaml",
        "datasets/har.yaml",
    } <= set(names)
    assert not [name for name in names if name.startswith(("eiffel/schedule/", "conf/trace/"))]


def test_the_app_is_declared_as_flower_wants_it(root: Path) -> None:
    from flwr.common.config import validate_config

    with open(root / "pyproject.toml", "rb") as file:
        config = tomllib.load(file)
    valid, errors, _ = validate_config(config, project_dir=root)
    assert valid, errors


def test_it_works_where_nothing_else_is(bundle: zipfile.ZipFile, tmp_path: Path) -> None:
    """Unpacked far from the checkout: both apps load, and the configuration is composed from its own conf/."""
    bundle.extractall(tmp_path)
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1])\n"
        "import eiffel\n"
        "from eiffel.flower.server_app import app\n"
        "from eiffel.flower.client_app import app as client\n"
        "from eiffel.flower.composing import composed\n"
        "from eiffel.flower.digest import code_digest\n"
        "c = composed('deploy', ['strategies=eiffel', 'datasets=har', 'rounds=20'])\n"
        "names = [c['strategies']['name'], c['datasets']['name'], c['rounds']]\n"
        "print(json.dumps([eiffel.__file__, *names, code_digest()]))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(tmp_path)],
        capture_output=True, text=True, cwd=tmp_path.parent, timeout=120,
        env={**os.environ, "FLWR_TELEMETRY_ENABLED": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    where, strategy, data, rounds, digest = json.loads(done.stdout.splitlines()[-1])
    assert Path(where).is_relative_to(tmp_path)
    assert (strategy, data, rounds) == ("eiffel", "har", 20)
    from eiffel.flower.digest import code_digest

    assert digest == code_digest()
