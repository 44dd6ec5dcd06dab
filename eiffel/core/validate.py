"""Which answers count: every update is checked before it moves a model, in every world by these rules.

    identity   is it an answer to what was asked in this round, the first one, from the one who was asked?
    substance  is it an update: right shapes and types, finite, a positive finite number of examples?

Only an answer that passes both is DELIVERED; every other verdict is a typed status that ends up in the record.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Bools, Params, Status


@dataclass(frozen=True, slots=True)
class Form:
    """What an update must look like: shape and type of each of its arrays, in order."""

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @staticmethod
    def of(arrays: Iterable[NDArray[Any]]) -> Form:
        """The form of these arrays."""
        held = list(arrays)
        return Form(tuple(a.shape for a in held), tuple(str(a.dtype) for a in held))


def identity(
    answers: str, sender: object, asked: Mapping[str, object], earlier: Collection[str], seen: Collection[str]
) -> Status:
    """Whose answer this is. DELIVERED: the first one to a question of this round, by whom it was put to.

    answers: id of the question. asked: id -> addressee, this round's. earlier: ids of questions of earlier
    rounds. seen: ids of questions already answered.
    """
    if answers in seen:
        return Status.DUPLICATE
    if answers in earlier:
        return Status.STALE
    if answers not in asked or asked[answers] != sender:
        return Status.FOREIGN
    return Status.DELIVERED


def substance(arrays: Sequence[NDArray[Any]], form: Form, examples: float) -> Status:
    """What is in an answer: DELIVERED, BAD_SHAPE, NON_FINITE or BAD_WEIGHT, in this order of precedence."""
    if Form.of(arrays) != form:
        return Status.BAD_SHAPE
    if not all(bool(np.isfinite(a).all()) for a in arrays if a.dtype.kind == "f"):
        return Status.NON_FINITE
    return Status.DELIVERED if sound_weight(examples) else Status.BAD_WEIGHT


def sound_weight(examples: float) -> bool:
    """Whether a number of examples may weigh an update: positive and finite."""
    return math.isfinite(examples) and examples > 0


def sumsq(update: Params) -> float:
    """|u|^2 in float32, as the training engines sum it: not finite where an entry is not, or where it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.dot(update, update))


def usable(squares: NDArray[np.floating]) -> Bools:
    """(R,) whose update may be added, by its |u|^2: the same rule for updates made here and for those received."""
    return np.asarray(np.isfinite(squares))


def weighted(metrics: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, tuple[float, float]]:
    """Means of what devices measured, weighted by examples; devices may report different things.

    metrics: (examples, {name: value}) of each device. Returns name -> (mean, coverage): coverage is the share
    of all examples whose device reported a finite value under that name.

    >>> weighted([(10, {"loss": 1.0}), (30, {"loss": 2.0, "f1": 0.2})])
    {'loss': (1.75, 1.0), 'f1': (0.2, 0.75)}
    """
    sound = [(float(n), row) for n, row in metrics if sound_weight(float(n))]
    total = sum(n for n, _ in sound)
    means: dict[str, tuple[float, float]] = {}
    for name in dict.fromkeys(key for _, row in sound for key in row):
        known = [(n, row[name]) for n, row in sound if name in row and math.isfinite(row[name])]
        covered = sum(n for n, _ in known)
        if covered:
            # Shares first: the products can then neither overflow nor vanish.
            means[name] = (sum(n / covered * value for n, value in known), covered / total)
    return means
