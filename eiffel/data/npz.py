"""A user's own arrays: a numpy .npz with samples, labels and, if there are any, clients and test marks."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.data.columns import clients_of, labels_of, metric_of
from eiffel.data.federated import Ask, DataError, Pool
from eiffel.data.sources import fingerprint
from eiffel.data.table import required

NAMES = ("x", "y", "client", "test")


def read(ask: Ask) -> Pool:
    """x: (M, ...) numbers. y: (M,) labels. If there: client: (M,) natural client, test: (M,) bool.

    options: x, y, client, test (the arrays' names), standardise, ordered (rows ascend in time), metric.
    Pickled objects are refused.

    Raises
    ------
    DataError
        File or array missing, unequal lengths, a value that is not finite (its place is named).
    """
    path = required(ask.path, "npz", "datasets.path=FILE.npz")
    source = fingerprint(path, ask.options)
    names = {name: str(ask.options.get(name) or name) for name in NAMES}
    found = _arrays(path, names)
    x = _features(found["x"], f"{path}: {names['x']}")
    for name in ("y", "client", "test"):
        if found.get(name) is not None and found[name].shape != (len(x),):
            raise DataError(
                f"{path}: {names[name]} has shape {found[name].shape} for {len(x)} samples; "
                f"expected ({len(x)},)"
            )
    y, classes = labels_of(found["y"], f"{path}: {names['y']}")
    owner, keys = clients_of(found["client"]) if "client" in found else (None, ())
    return Pool(
        x,
        y,
        classes,
        {path.name: source},
        owner=owner,
        keys=keys,
        ordered=bool(ask.options.get("ordered")),
        test=found["test"].astype(bool) if "test" in found else None,
        standardise=bool(ask.options.get("standardise")),
        metric=metric_of(ask.options, classes),
    )


def _arrays(path: Path, names: dict[str, str]) -> dict[str, NDArray[Any]]:
    """role -> array, for those that are there; x and y must be."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            if missing := [names[role] for role in ("x", "y") if names[role] not in file]:
                raise DataError(
                    f"{path}: no array {missing[0]!r}; it holds {', '.join(file.files) or 'none'}"
                )
            return {role: file[name] for role, name in names.items() if name in file}
    except (OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise DataError(f"{path}: not read as .npz: {error}") from error
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: {error}") from error


def _features(x: NDArray[Any], name: str) -> NDArray[np.float32]:
    if x.ndim < 2 or x.dtype.kind not in "biuf":
        raise DataError(
            f"{name} has shape {x.shape} and type {x.dtype}; expected numbers of shape (samples, ...)"
        )
    if not (finite := np.isfinite(x)).all():
        place = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise DataError(f"{name}[{', '.join(map(str, place))}] is {x[place]}: not a finite number")
    return np.ascontiguousarray(x, dtype=np.float32)
