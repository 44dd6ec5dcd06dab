"""From the updates of a cohort to what the server learns of them: reports, weights, sums.

Weights may depend on everybody's report (the rank of a loss), so the updates wait until the round is closed.
They wait on disk once they would take more memory than `MEMORY`, so that memory does not grow with the cohort.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from eiffel.core import validate
from eiffel.core.model import Floats, Params, Plan, Reports, Slopes, Trained

MEMORY = 2**26
"""Numbers of all waiting updates together that are kept in memory (256 MiB)."""
STRIPE = 2**20
_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Report:
    """What a device says beside its update; NaN where it did not say. See `core.model.Reports` and `Slopes`."""

    examples: float
    steps: float
    loss: float = _NAN
    first_loss: float = _NAN
    rms: float = _NAN
    beta: float = _NAN
    rho: float = _NAN

    @staticmethod
    def of(figures: Mapping[str, float], examples: float, steps: int) -> Report:
        """From the figures that came; a device that does not say its steps is taken to have done those asked."""
        known = {f.name: float(figures[f.name]) for f in fields(Report) if f.name in figures}
        return Report(**{"steps": float(steps), **known, "examples": float(examples)})


@dataclass(slots=True)
class Shelf:
    """Rows of P float32 numbers, in memory or, where they are too many, in a file without a name."""

    rows: int
    size: int
    _held: NDArray[np.float32] | None = None
    _file: IO[bytes] | None = None

    def put(self, row: int, values: Params) -> None:
        """Keep a row."""
        if self._held is None:
            self._held = self._room()
        self._held[row] = values

    def _room(self) -> NDArray[np.float32]:
        if self.rows * self.size <= MEMORY:
            return np.zeros((self.rows, self.size), np.float32)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the round)
        return np.memmap(self._file, np.float32, "w+", shape=(self.rows, self.size))

    @property
    def held(self) -> NDArray[np.float32]:
        """All rows; zeros where none was put."""
        return np.zeros((self.rows, self.size), np.float32) if self._held is None else self._held

    def close(self) -> None:
        """Give the memory back."""
        self._held = None
        if self._file is not None:
            self._file.close()


@dataclass(slots=True)
class Basket:
    """Updates u = w_global - w_local as they arrive. rows: how many there may be. size: P."""

    rows: int
    size: int
    _reports: dict[int, Report] = field(default_factory=dict)
    _bad: set[int] = field(default_factory=set)
    _updates: Shelf = field(init=False)
    _slopes: Shelf = field(init=False)

    def __post_init__(self) -> None:
        """Lay out two empty shelves."""
        self._updates, self._slopes = Shelf(self.rows, self.size), Shelf(self.rows, self.size)

    def __len__(self) -> int:
        return len(self._reports)

    def add(self, device: int, update: Params | None, report: Report, slope: Params | None = None) -> bool:
        """Take an update in; False where it is not finite (or None, found so before): it will weigh nothing."""
        row = len(self._reports)
        self._reports[device] = report
        if update is None or not np.isfinite(validate.sumsq(update)):
            self._bad.add(device)
            return False
        self._updates.put(row, update)
        if slope is not None:
            self._slopes.put(row, slope)
        return True

    def close(self, plan: Plan) -> Trained:
        """Weigh and add, device after device in ascending order, whatever order they came in."""
        at = {device: row for row, device in enumerate(self._reports)}
        order = np.array([at[d] for d in sorted(at)], np.int64)
        reports = self._said()
        fine = np.array([d not in self._bad for d in sorted(at)], np.bool_)
        weights = np.atleast_2d(np.asarray(plan.weigh(reports), np.float64))
        weights = np.where(np.isfinite(weights) & fine, weights, 0.0)
        updates = self._updates.held
        squares = np.array([validate.sumsq(updates[row]) for row in order], np.float64)
        trained = Trained(
            reports,
            np.where(fine, squares, np.nan),
            weights,
            weighted_sums(weights, updates, order),
            updates[order] if plan.full else None,
            self._surface(order) if plan.gradients else None,
        )
        self._updates.close()
        self._slopes.close()
        return trained

    def _column(self, name: str, kind: Any = np.float64) -> NDArray[Any]:
        return np.array([getattr(self._reports[d], name) for d in sorted(self._reports)]).astype(kind)

    def _said(self) -> Reports:
        rms = self._column("rms")
        return Reports(
            device=np.array(sorted(self._reports), np.int64),
            examples=self._column("examples", np.int64),
            steps=self._column("steps", np.int64),
            loss=self._column("loss"),
            first_loss=self._column("first_loss"),
            rms=rms if np.isfinite(rms).any() else None,
        )

    def _surface(self, order: NDArray[np.int64]) -> Slopes:
        return Slopes(self._slopes.held[order], self._column("beta"), self._column("rho"))


def weighted_sums(
    weights: Floats, held: NDArray[np.float32], order: NDArray[np.int64]
) -> NDArray[np.float32]:
    """(m, P) weighted sums of the rows `order` of `held`, in float64 stripe by stripe."""
    sums = np.zeros((len(weights), held.shape[1]), np.float32)
    for low in range(0, held.shape[1], STRIPE):
        total = np.zeros((len(weights), min(STRIPE, held.shape[1] - low)))
        for column, row in enumerate(order):
            total += weights[:, column, None] * held[row, low : low + STRIPE]
        sums[:, low : low + STRIPE] = total
    return sums


def heard(losses: Mapping[int, Report], size: int) -> Trained:
    """What a probe yields: reports of losses alone, by device; of nobody, where nothing came."""
    basket = Basket(0, size, dict(losses))
    zero = np.zeros(len(losses))
    return Trained(basket._said(), zero, zero[None], np.zeros((1, size), np.float32))
