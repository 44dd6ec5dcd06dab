"""What the readers of users' own data share: labels and clients as numbers, and the metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.data.federated import DataError, Ints

METRICS = ("accuracy", "auroc")
MOST_CLASSES = 1000
"""More distinct labels than this are taken for measurements, not classes."""


def labels_of(values: NDArray[Any], name: str) -> tuple[Ints, int]:
    """(M,) classes from 0 in sorted order, and their number.

    Raises
    ------
    DataError
        Fewer than two distinct labels, more than MOST_CLASSES, or one that is no number (NaN).
    """
    if values.ndim != 1:
        raise DataError(f"{name}: labels of shape {values.shape}; expected one label a sample")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise DataError(
            f"{name}: label {int(np.argmin(np.isfinite(values)))} (counted from 0) is not a finite number"
        )
    found, codes = np.unique(values, return_inverse=True)
    if not 2 <= found.size <= MOST_CLASSES:
        raise DataError(f"{name}: {found.size} distinct labels; a classification needs 2 to {MOST_CLASSES}")
    return codes.astype(np.int64), int(found.size)


def clients_of(values: NDArray[Any]) -> tuple[Ints, tuple[str, ...]]:
    """(M,) natural clients from 0 in sorted order, and their names."""
    found, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.int64), tuple(str(one) for one in found.tolist())


def metric_of(options: Mapping[str, Any], classes: int) -> str:
    """options.metric, held against the number of classes."""
    metric = str(options.get("metric") or "accuracy")
    if metric not in METRICS or (metric == "auroc" and classes != 2):
        raise DataError(
            f"datasets.options.metric is {metric!r} for {classes} classes; "
            "it must be accuracy, or auroc for 2 classes"
        )
    return metric
