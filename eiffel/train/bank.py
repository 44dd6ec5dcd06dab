"""The samples as tensors, placed once, and who owns which."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eiffel.core.model import Ints
from eiffel.train.models import Samples


def tensor(array: NDArray[Any], device: str = "cpu") -> Tensor:
    """A tensor over the same memory (on a CPU). Nothing here writes to samples, so read-only is fine."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)


class Ragged(Protocol):
    """`eiffel.data.federated.Parts`, or the same over shared memory."""

    @property
    def index(self) -> Ints:
        """(M,) rows."""
        ...

    @property
    def start(self) -> Ints:
        """(N + 1,) offsets."""
        ...


class Source(Samples, Protocol):
    """What training needs of `eiffel.data.federated.Federated`."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    @property
    def metric(self) -> str:
        """accuracy or auroc."""
        ...

    @property
    def train(self) -> Ragged:
        """Rows to train on."""
        ...

    @property
    def test(self) -> Ragged:
        """Rows to test on."""
        ...


@dataclass(frozen=True, slots=True)
class Bank:
    """Samples of N clients; device i of a fleet of any size owns the part i % N.

    x: (M, ...). y: (M,) or (M, L). train, train_start: client c owns the rows train[train_start[c]:
    train_start[c + 1]]; test, test_start likewise. auroc: score by rank instead of accuracy.
    """

    x: Tensor
    y: Tensor
    classes: int
    train: Ints
    train_start: Ints
    test: Ints
    test_start: Ints
    auroc: bool
    _rows: dict[int, Tensor]

    @classmethod
    def of(cls, data: Source, device: str = "cpu") -> Bank:
        """Take a federated data set as it is: no copy on a CPU, one upload to a GPU."""
        if data.metric not in ("accuracy", "auroc") or (data.metric == "auroc" and data.classes != 2):
            raise ValueError(
                f"{data.name}: metric {data.metric!r} of {data.classes} classes; auroc needs two"
            )
        parts = data.train.index, data.train.start, data.test.index, data.test.start
        x, y = tensor(data.x, device), tensor(data.y, device)
        return cls(x, y, data.classes, *parts, data.metric == "auroc", {})

    @property
    def clients(self) -> int:
        """N."""
        return int(self.train_start.size) - 1

    def sizes(self, device: Ints) -> Ints:
        """Training samples of each of these devices."""
        part = device % self.clients
        return np.asarray(self.train_start[part + 1] - self.train_start[part])

    def rows(self, device: int) -> Tensor:
        """Row numbers of a device's training samples, as a tensor beside the samples."""
        part = int(device) % self.clients
        if part not in self._rows:
            own = self.train[self.train_start[part] : self.train_start[part + 1]]
            self._rows[part] = tensor(own, str(self.x.device))
        return self._rows[part]
