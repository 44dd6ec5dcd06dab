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
    """Each test begins with our loggers as they come: a strategy takes Flower's log level, and Flower's database
    migrations silence every logger that exists by then.
    """
    for name in [n for n in logging.root.manager.loggerDict if n.split(".")[0] == "eiffel"]:
        logging.getLogger(name).disabled = False
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT
