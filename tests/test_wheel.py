"""What an installed package brings: one top-level name, and the cards beside the code."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the backend that pyproject.toml names, from this checkout."""
    build = pytest.importorskip("hatchling.build", reason="hatchling is not installed: pip install hatchling")
    out = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-c", f"import {build.__name__} as b; print(b.build_wheel({str(out)!r}))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return out / done.stdout.split()[-1]


def test_its_only_top_level_name_is_eiffel(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"eiffel"}


def test_it_runs_away_from_any_checkout(wheel: Path, tmp_path: Path) -> None:
    """Unpacked into a folder, found before the checkout: a run of another card than the default."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    script = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import eiffel; assert {str(site)!r} in eiffel.__file__; "
        "from eiffel.cli import main; "
        "sys.exit(main(['sim', 'strategies=oort', 'rounds=2', 'report=quiet', 'engine=single', 'hydra.run.dir=run']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "summary.json").exists()
