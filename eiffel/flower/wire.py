"""Between Flower's records and the core's arrays: what a message holds on its way out and back.

    out   "arrays" the model, "config" the app's own numbers, "eiffel" ours (steps, seed, deadline, ...)
    back  "arrays" the trained model, a MetricRecord with "num-examples", and, from our ClientApp, "eiffel"

A ClientApp that knows nothing of Eiffel reads the first two and answers with the first two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from eiffel.core.model import Params, Status
from eiffel.core.validate import Form, substance

ARRAYS, CONFIG, METRICS, OURS = "arrays", "config", "metrics", "eiffel"
SHIFT, SLOPE, FLAT = "eiffel-shift", "eiffel-slope", "flat"
"""Arrays beside the model, for strategies that ship gradients; FLAT names an array of all P numbers."""
EXAMPLES = "num-examples"


@dataclass(frozen=True, slots=True)
class Layout:
    """How a model's arrays lie in P flat float32 numbers. Arrays that are not floating stay as they were.

    names, form: of all arrays, in order. fixed: those that are not learnt.
    """

    names: tuple[str, ...]
    form: Form
    fixed: Mapping[str, NDArray[Any]]

    @staticmethod
    def of(record: ArrayRecord) -> Layout:
        """The layout of a model. Raises ValueError where it holds nothing to learn or what is not finite."""
        arrays = {name: array.numpy() for name, array in record.items()}
        fixed = {name: a for name, a in arrays.items() if a.dtype.kind != "f"}
        if len(fixed) == len(arrays):
            raise ValueError("initial_arrays holds no floating-point array: there is nothing to learn")
        bad = [name for name, a in arrays.items() if name not in fixed and not np.isfinite(a).all()]
        if bad:
            raise ValueError(f"initial_arrays: {bad[0]!r} holds NaN or infinite values")
        return Layout(tuple(arrays), Form.of(arrays.values()), fixed)

    @property
    def size(self) -> int:
        """P."""
        return sum(math.prod(shape) for _, shape, _ in self._learnt())

    def _learnt(self) -> list[tuple[str, tuple[int, ...], str]]:
        rows = zip(self.names, self.form.shapes, self.form.dtypes, strict=True)
        return [row for row in rows if row[0] not in self.fixed]

    def record(self, params: Params) -> ArrayRecord:
        """The flat model as Flower carries it."""
        record, low = ArrayRecord(), 0
        for name, shape, dtype in zip(self.names, self.form.shapes, self.form.dtypes, strict=True):
            if name in self.fixed:
                record[name] = Array(self.fixed[name])
                continue
            high = low + math.prod(shape)
            record[name] = Array(params[low:high].reshape(shape).astype(dtype, copy=False))
            low = high
        return record

    def read(self, record: ArrayRecord, examples: float) -> tuple[Status, Params | None]:
        """A model that came back: what is wrong with it (DELIVERED: nothing), and its flat parameters."""
        if tuple(record) != self.names:
            return Status.BAD_SHAPE, None
        try:
            arrays = [array.numpy() for array in record.values()]
        except (ValueError, TypeError, EOFError, OSError):  # not the bytes of an array
            return Status.BAD_SHAPE, None
        status = substance(arrays, self.form, examples)
        if status != Status.DELIVERED:
            return status, None
        return status, self.flat(arrays)

    def flat(self, arrays: list[NDArray[Any]]) -> Params:
        """(P,) of arrays that have this form."""
        learnt = [a for name, a in zip(self.names, arrays, strict=True) if name not in self.fixed]
        return np.concatenate([np.asarray(a, np.float32).ravel() for a in learnt])


def one_array(values: Params) -> ArrayRecord:
    """P numbers as a record of one array."""
    return ArrayRecord({FLAT: Array(values)})


def weight(content: RecordDict) -> int:
    """Bytes of a message's content, near enough: arrays as they are, 8 bytes a number, text as long as it is."""
    return sum(
        record.count_bytes()
        if isinstance(record, ArrayRecord)
        else sum(len(key) + _size(value) for key, value in record.items())
        for record in content.values()
    )


def _size(value: Any) -> int:
    if isinstance(value, list):
        return sum(_size(item) for item in value)
    return len(value) if isinstance(value, str | bytes) else 8


def numbers(record: MetricRecord | ConfigRecord) -> dict[str, float]:
    """The single numbers of a record, by name."""
    return {
        key: float(value)
        for key, value in record.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def measured(content: RecordDict) -> dict[str, float]:
    """What the app measured: the numbers of all its MetricRecords."""
    records = [record for record in content.values() if isinstance(record, MetricRecord)]
    return {name: value for record in records for name, value in numbers(record).items()}
