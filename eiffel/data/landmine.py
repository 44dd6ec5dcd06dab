"""Landmine detection: 29 mine fields, 9 radar features of each spot, is there a mine (6 % of spots)?

A MATLAB file with cells X{1, k} (n_k, 9) and Y{1, k} (n_k, 1) of -1 and +1: one cell a client.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.data.federated import Ask, DataError, MissingData, Pool
from eiffel.data.sources import find, fingerprint, places, searched

FILE = "landmine29.mat"


def read(ask: Ask) -> Pool:
    """x: (1464, 9), standardised later. y: 1 for a mine, 0 for none. Natural clients: the 29 fields.

    The test part is cut from mines and from empty spots separately, so a field with two mines tests one.
    Judged by AUROC: always saying "no mine" would be 94 % accurate.

    Raises
    ------
    MissingData
        File not found.
    DataError
        File not the pinned one, or not in the layout above.
    """
    where = [place / sub for place in places(ask.path, "landmine") for sub in ("", "fl")]
    path = find(where, [FILE])
    if path is None:
        raise MissingData(
            f"landmine: no {FILE} in {searched(where)}. It is data/small.mat of the public repository "
            f"gingsmith/fmtl (Apache-2.0): lay it as {FILE} into $EIFFEL_DATA/landmine "
            "or set datasets.path to it"
        )
    source = fingerprint(path, ask.options)
    xs, ys = _cells(path)
    y = (np.concatenate(ys) > 0).astype(np.int64)
    owner = np.repeat(np.arange(len(xs)), [len(x) for x in xs])
    keys = tuple(f"field{k + 1:02d}" for k in range(len(xs)))
    x = np.concatenate(xs).astype(np.float32)
    return Pool(
        x, y, 2, {path.name: source}, owner=owner, keys=keys, group=y, standardise=True, metric="auroc"
    )


def _cells(path: Path) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    from scipy.io import loadmat  # 0.1 s, only when asked for

    try:
        table = loadmat(path, variable_names=("X", "Y"))
        xs, ys = list(table["X"].ravel()), [np.asarray(y).ravel() for y in table["Y"].ravel()]
    except (KeyError, ValueError, TypeError, NotImplementedError, OSError) as error:
        raise DataError(f"{path}: not read: {error!r}; expected a MATLAB file with cells X and Y") from error
    for k, (x, y) in enumerate(zip(xs, ys, strict=False), 1):
        if (
            np.ndim(x) != 2
            or len(x) != len(y)
            or x.shape[1] != xs[0].shape[1]
            or not np.isin(y, (-1, 1)).all()
        ):
            raise DataError(
                f"{path}: cell {k}: X of shape {np.shape(x)} and Y of shape {y.shape}, Y must be -1 or +1"
            )
    if len(xs) != len(ys) or not xs:
        raise DataError(f"{path}: {len(xs)} cells X, {len(ys)} cells Y")
    return xs, ys
