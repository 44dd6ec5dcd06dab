"""Where tests find data that the repository does not carry."""

import logging
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def find_shared_data() -> Path | None:
    """The folder of traces and reference results: `$EIFFEL_DATA`, else `../shared/data` beside the checkout."""
    places = [os.environ.get("EIFFEL_DATA"), ROOT.parent / "shared" / "data"]
    return next((Path(p) for p in places if p and (Path(p) / "cluster").is_dir()), None)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    found = find_shared_data()
    if found is None:
        pytest.skip("no reference data: set EIFFEL_DATA or lay ../shared/data beside the checkout")
    return found


@pytest.fixture(autouse=True)
def _our_loggers_speak() -> None:
    """Flower's database migrations configure logging from a file and silence every logger that exists by then."""
    for name in logging.root.manager.loggerDict:
        if name.split(".")[0] == "eiffel":
            logging.getLogger(name).disabled = False


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT
