"""Data sets of the Hugging Face hub, or local parquet, through flwr-datasets (optional: eiffel-fl[hub]).

Only loading is theirs; dealing to clients is Eiffel's own, the same for every data set.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.data.columns import clients_of, labels_of, metric_of
from eiffel.data.federated import Ask, DataError, MissingData, Pool
from eiffel.data.sources import fingerprint


def read(ask: Ask) -> Pool:
    """x: features, images scaled to [0, 1] as (M, channels, H, W). y: labels, numbered in sorted order.

    options: dataset (a hub id such as ylecun/mnist, or parquet), data_files ({train: FILE} with parquet),
    subset, split, x, label, client (column names; client null: no natural clients), standardise, metric.

    Raises
    ------
    MissingData
        flwr-datasets is not installed.
    DataError
        The data cannot be loaded, or a column is missing or ragged.
    """
    options, split = ask.options, str(ask.options.get("split") or "train")
    table, name = _loaded(ask, split), f"hub: {options.get('dataset')}"
    for key in ("x", "label", "client"):
        if options.get(key) is not None and options[key] not in table.column_names:
            raise DataError(
                f"{name}: no column {options[key]!r} (options.{key}); it has {', '.join(table.column_names)}"
            )
    x = _features(table, str(options["x"]), name)
    y, classes = labels_of(np.asarray(table[options["label"]]), f"{name}: column {options['label']!r}")
    owner, keys = (
        (None, ()) if options.get("client") is None else clients_of(np.asarray(table[options["client"]]))
    )
    return Pool(
        x,
        y,
        classes,
        _sources(ask, x, y),
        owner=owner,
        keys=keys,
        standardise=bool(options.get("standardise")),
        metric=metric_of(options, classes),
    )


def _loaded(ask: Ask, split: str) -> Any:
    """A split of the data set, whole."""
    # Their library reports its use over the network unless told not to; the user may set 1 to allow it.
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    try:
        from flwr_datasets import FederatedDataset
    except ImportError as error:
        raise MissingData("hub: flwr-datasets is not installed: pip install 'eiffel-fl[hub]'") from error
    dataset, files = ask.options.get("dataset"), _files(ask)
    if not dataset or not ask.options.get("x") or not ask.options.get("label"):
        raise DataError(
            "hub: set datasets.options.dataset (a hub id), options.x and options.label (its columns)"
        )
    more = {"data_files": files} if files else {}
    try:
        whole = FederatedDataset(
            dataset=str(dataset),
            subset=ask.options.get("subset"),
            partitioners={split: 1},
            shuffle=False,
            **more,
        )
        return whole.load_split(split)
    except Exception as error:  # theirs raise many kinds: no network, no such data set, no such split
        raise DataError(f"hub: {dataset} could not be loaded: {type(error).__name__}: {error}") from error


def _files(ask: Ask) -> dict[str, str]:
    return {str(split): str(file) for split, file in (ask.options.get("data_files") or {}).items()}


def _features(table: Any, column: str, name: str) -> NDArray[np.float32]:
    """A column of images, lists or numbers as one array."""
    try:
        x = np.stack([np.asarray(one) for one in table[column]])
        bytes_ = x.dtype == np.uint8
        x = np.ascontiguousarray(x, dtype=np.float32)
    except (ValueError, TypeError) as error:
        raise DataError(f"{name}: column {column!r} is not one array: {error}") from error
    if x.ndim < 2 or not np.isfinite(x).all():
        raise DataError(
            f"{name}: column {column!r} has shape {x.shape}; expected finite numbers (samples, ...)"
        )
    if not bytes_:
        return x
    x /= 255
    return np.ascontiguousarray(x[:, None] if x.ndim == 3 else np.moveaxis(x, -1, 1))


def _sources(ask: Ask, x: NDArray[np.float32], y: NDArray[np.int64]) -> dict[str, str]:
    """sha256 of the local files, or of the loaded arrays where the hub gave them."""
    if files := _files(ask):
        return {Path(file).name: fingerprint(Path(file), ask.options) for file in files.values()}
    digest = hashlib.sha256(x.tobytes())
    digest.update(y.tobytes())
    return {f"arrays of {ask.options['dataset']}": digest.hexdigest()}
