"""A user's own CSV: a header, one row a sample: numeric features, a label, a client if there are clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute as pc
from pyarrow import csv as pacsv

from eiffel.data.columns import clients_of, labels_of, metric_of
from eiffel.data.federated import Ask, DataError, Pool
from eiffel.data.sources import fingerprint


def read(ask: Ask) -> Pool:
    """x: (M, columns) float32. y: labels, numbered in sorted order (2 before 10).

    options: label (column's name), client (column's name, or null), features (names; null: all others),
    delimiter, standardise, ordered (rows ascend in time, so the last are the test part), metric.

    Raises
    ------
    DataError
        File or column missing, a row of the wrong length, a cell that is empty or no number (line named).
    """
    path = required(ask.path, "csv", "datasets.path=FILE.csv")
    source, table = fingerprint(path, ask.options), _table(path, ask.options)
    label, client = str(ask.options.get("label") or "label"), ask.options.get("client")
    features = ask.options.get("features") or [n for n in table.column_names if n not in (label, client)]
    if missing := [n for n in (label, client, *features) if n is not None and n not in table.column_names]:
        raise DataError(f"{path}: no column {missing[0]!r}; it has {', '.join(table.column_names)}")
    x = np.stack([_numbers(table[name], f"{path}: column {name!r}") for name in features], axis=1)
    y, classes = labels_of(_values(table[label], f"{path}: column {label!r}"), f"{path}: column {label!r}")
    owner, keys = (
        (None, ()) if client is None else clients_of(_values(table[client], f"{path}: column {client!r}"))
    )
    return Pool(
        x,
        y,
        classes,
        {path.name: source},
        owner=owner,
        keys=keys,
        ordered=bool(ask.options.get("ordered")),
        standardise=bool(ask.options.get("standardise")),
        metric=metric_of(ask.options, classes),
    )


def required(path: Path | None, reader: str, example: str) -> Path:
    """The file the user must name for this reader; DataError if it is not named or not there."""
    if path is None or not path.is_file():
        raise DataError(
            f"{reader}: {'no file named' if path is None else f'there is no file {path}'}; set {example}"
        )
    return path


def _table(path: Path, options: Mapping[str, Any]) -> Any:
    delimiter = str(options.get("delimiter") or ",")
    try:
        return pacsv.read_csv(path, parse_options=pacsv.ParseOptions(delimiter=delimiter))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: not read as a table delimited by {delimiter!r}: {error}") from error


def _values(column: Any, name: str) -> NDArray[Any]:
    """A column without gaps, as numpy has it."""
    if column.null_count:
        raise DataError(
            f"{name}, line {_line(pc.is_null(column))}: an empty cell; fill it or leave the row out"
        )
    return np.asarray(column.to_numpy())


def _numbers(column: Any, name: str) -> NDArray[np.float32]:
    """A column of finite numbers."""
    values = _values(column, name)
    if values.dtype.kind not in "biuf":
        line, cell = next((i, v) for i, v in enumerate(values, 2) if not _is_number(v))
        raise DataError(
            f"{name}, line {line}: {cell!r} is not a number; "
            "name the numeric columns in datasets.options.features"
        )
    if not np.isfinite(values).all():
        raise DataError(f"{name}, line {int(np.argmin(np.isfinite(values))) + 2}: not a finite number")
    return values.astype(np.float32)


def _is_number(cell: Any) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except (TypeError, ValueError):
        return False


def _line(marks: Any) -> int:
    """The file's line of the first mark; line 1 is the header."""
    return int(pc.index(marks, True).as_py()) + 2
