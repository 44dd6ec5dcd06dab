"""Scikit-learn's digits: 1,797 images of 8 x 8 pixels, 10 classes; read from its file, without an import."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from eiffel.data.federated import Ask, DataError, MissingData, Pool
from eiffel.data.sources import find, fingerprint, places, searched

FILE = "digits.csv.gz"


def read(ask: Ask) -> Pool:
    """x: (1797, 64) pixels in [0, 1], or (1797, 1, 8, 8) with options.image. y: the digit.

    Raises
    ------
    MissingData
        File not found.
    DataError
        It does not hold 65 columns of numbers.
    """
    path = _locate(ask.path)
    sources = {FILE: fingerprint(path, ask.options)}
    table = _table(path)
    x = np.ascontiguousarray(table[:, :64], dtype=np.float32) / np.float32(16)
    if ask.options.get("image"):
        x = x.reshape(-1, 1, 8, 8)
    return Pool(x, table[:, 64].astype(np.int64), 10, sources)


def _locate(path: Path | None) -> Path:
    spec = find_spec("sklearn")
    installed = (
        [Path(place) / "datasets" / "data" for place in (spec.submodule_search_locations or [])]
        if spec
        else []
    )
    where = places(path, "digits", *installed)
    found = find(where, [FILE])
    if found is None:
        raise MissingData(
            f"digits: no {FILE} in {searched(where)}; install scikit-learn (pip install 'eiffel-fl[sim]')"
        )
    return found


def _table(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """(M, 65) numbers of 0..16: 64 pixels and the digit."""
    text = gzip.decompress(path.read_bytes()).decode("ascii")
    try:
        table = np.array([line.split(",") for line in text.split()]).astype(np.float32)
    except ValueError as error:
        raise DataError(f"{path}: not a table of numbers ({error})") from error
    if table.ndim != 2 or table.shape[1] != 65:
        raise DataError(f"{path}: shape {table.shape}; expected 65 columns, 64 pixels and the digit")
    return table.astype(np.uint8)
