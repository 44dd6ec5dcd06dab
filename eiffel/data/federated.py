"""A data set dealt to clients: one array of samples, and for each client the rows it trains and tests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class DataError(ValueError):
    """A data set that cannot be loaded or dealt as asked; the message says what to do about it."""


class MissingData(DataError):
    """The source of a data set is not on this machine; the message says where it was sought and how to get it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Rows of every client, ragged: client i owns index[start[i]:start[i + 1]], ascending.

    index: (M,) rows. start: (N + 1,) offsets into `index`, from 0 to M.
    """

    index: Ints
    start: Ints

    def __len__(self) -> int:
        return int(self.start.size) - 1

    def of(self, client: int) -> Ints:
        """Rows of one client: a view, no copy."""
        return self.index[self.start[client] : self.start[client + 1]]

    @property
    def sizes(self) -> Ints:
        """(N,) rows of each client."""
        return np.diff(self.start)

    @classmethod
    def of_owner(cls, owner: Ints, clients: int) -> Parts:
        """Group rows by owner. owner: (M,) the client of each row, -1 for a row that nobody holds."""
        order = np.argsort(owner, kind="stable")
        held = order[np.searchsorted(owner[order], 0) :]
        sizes = np.bincount(owner[held], minlength=clients)
        return cls(held.astype(np.int64), np.concatenate(([0], np.cumsum(sizes))).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Federated:
    """N clients' data, each with its own train and test part.

    x: (M, ...) float32 features, or int64 tokens (M, L). y: (M,) classes, or (M, L) next tokens.
    classes: number of classes (or of tokens). clients: N stable keys. sources: file -> sha256.
    metric: how a model is judged on a client, "accuracy" or "auroc".
    """

    name: str
    x: NDArray[Any]
    y: Ints
    classes: int
    train: Parts
    test: Parts
    clients: tuple[str, ...]
    sources: Mapping[str, str]
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        """Refuse what could not be trained: unequal lengths, labels out of range, a client without data."""
        if len(self.x) != len(self.y):
            raise DataError(f"{self.name}: {len(self.x)} samples but {len(self.y)} labels")
        if self.x.dtype not in (np.float32, np.int64) or not self.x.flags.c_contiguous:
            raise DataError(
                f"{self.name}: features of type {self.x.dtype}; they must be contiguous float32 or int64"
            )
        if self.y.size and not 0 <= int(self.y.min()) <= int(self.y.max()) < self.classes:
            raise DataError(
                f"{self.name}: labels {self.y.min()}..{self.y.max()}; they must be in 0..{self.classes - 1}"
            )
        for part, parts in (("train", self.train), ("test", self.test)):
            if len(parts) != len(self.clients):
                raise DataError(f"{self.name}: {len(parts)} {part} parts for {len(self.clients)} clients")
            if empty := np.flatnonzero(parts.sizes == 0).tolist():
                raise DataError(f"{self.name}: client {self.clients[empty[0]]!r} has no {part} sample")

    def __len__(self) -> int:
        return len(self.clients)


@dataclass(frozen=True, slots=True)
class Pool:
    """What a reader finds: all samples, before they are dealt to clients and split.

    owner: (M,) natural client of each row, or None; keys: the natural clients' names.
    group: (M,) the test fraction is taken within each (client, group), or None: within each client.
    ordered: rows ascend in time and the test part is the last ones; otherwise it is drawn at random.
    test: (M,) bool where the source itself says which rows are for testing, or None.
    standardise: subtract mean and divide by standard deviation of the train rows, feature by feature.
    """

    x: NDArray[Any]
    y: Ints
    classes: int
    sources: Mapping[str, str]
    owner: Ints | None = None
    keys: tuple[str, ...] = ()
    group: Ints | None = None
    ordered: bool = False
    test: NDArray[np.bool_] | None = None
    standardise: bool = False
    metric: str = "accuracy"


@dataclass(frozen=True, slots=True)
class Ask:
    """What a reader is asked: where to look, the card's `options`, how many clients, the run's seed."""

    path: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    clients: int | None = None
    seed: int = 0
