"""A pickle reader that builds arrays and nothing else: no import, no call beyond the table below.

A pickle is a program. Here its only words are numpy's array reconstructors and, for data frames, inert
stand-ins for pandas' classes, from which `columns` takes the arrays. pandas itself is never imported.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from eiffel.data.federated import DataError


class Readable(Protocol):
    """What a pickle is read from: an open binary file, plain or gzip."""

    def read(self, size: int = ..., /) -> bytes:
        """Bytes."""
        ...

    def readline(self, size: int = ..., /) -> bytes:
        """A line of bytes."""
        ...


class Inert:
    """Stands for an object of a class that is not imported: keeps its state, does nothing."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Frame(Inert):
    """Stands for pandas.core.frame.DataFrame."""


def _reconstructor(kind: Any, _base: Any, _state: Any) -> Inert:
    if not (isinstance(kind, type) and issubclass(kind, Inert)):
        raise pickle.UnpicklingError(f"reconstructs a {kind!r}")
    return kind()


def _encode(text: str, coding: str) -> bytes:
    """How protocol 2 writes bytes."""
    return text.encode(coding)


def _reconstruct(kind: Any, shape: tuple[int, ...], code: Any) -> NDArray[Any]:
    """An empty array that the pickle then fills."""
    if kind != "ndarray" or shape != (0,):
        raise pickle.UnpicklingError(f"reconstructs a {kind!r} of shape {shape!r}")
    return np.empty(0, dtype=np.int8)


def _scalar(dtype: np.dtype[Any], data: bytes) -> Any:
    if dtype.hasobject:
        raise pickle.UnpicklingError("a scalar that holds an object")
    return np.frombuffer(data, dtype)[0]


# Names, not classes, where only other words of the table need them: a name cannot be called.
KNOWN: dict[tuple[str, str], Any] = {
    ("_codecs", "encode"): _encode,
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): np.dtype,
    ("pandas.core.frame", "DataFrame"): Frame,
    ("pandas.core.internals.managers", "BlockManager"): Inert,
    ("pandas.core.indexes.base", "_new_Index"): lambda _kind, state: state,
    ("pandas.core.indexes.base", "Index"): "Index",
    ("pandas.core.indexes.range", "RangeIndex"): "RangeIndex",
}
for _module in ("copyreg", "copy_reg"):
    KNOWN[_module, "_reconstructor"] = _reconstructor
for _module in ("builtins", "__builtin__"):
    KNOWN[_module, "object"] = "object"
    KNOWN[_module, "slice"] = slice
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):
    KNOWN[_module, "_reconstruct"] = _reconstruct
    KNOWN[_module, "scalar"] = _scalar
"""(module, name) -> what stands for it, in the spelling of both Pythons. Whatever is not here is refused."""


class Unpickler(pickle.Unpickler):
    """Knows the words of `KNOWN`; any other name ends the reading."""

    def find_class(self, module: str, name: str) -> Any:
        """What stands for module.name.

        Raises
        ------
        pickle.UnpicklingError
            For every name that is not in `KNOWN`.
        """
        try:
            return KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it names {module}.{name}, which is not part of an array or a table"
            ) from None


def load(file: Readable, name: str) -> Any:
    """Read one pickle of arrays, lists, dicts and data frames; `name` is for the error.

    Raises
    ------
    DataError
        The pickle is damaged, or names anything but arrays and tables (it is not carried out).
    """
    try:
        return Unpickler(file, encoding="latin1").load()
    except (
        pickle.UnpicklingError,
        MemoryError,
        OverflowError,
        zlib.error,
        EOFError,
        OSError,
        TypeError,
        ValueError,
        KeyError,
        IndexError,
        AttributeError,
    ) as error:
        raise DataError(
            f"{name}: not read: {error}. Only arrays and tables are accepted; fetch the file again"
        ) from error


def columns(frame: Any, name: str) -> dict[str, NDArray[Any]]:
    """Column name -> (rows,) array of a data frame read by `load`.

    Raises
    ------
    DataError
        It is not a data frame in the layout of pandas 0.25 to 1.2.
    """
    try:
        _axes, blocks, items, *_ = frame.state["_data"].state
        found = dict(_rows(blocks, items))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{name}: holds no data frame in the known layout ({error!r})") from error
    return found


def _rows(blocks: Any, items: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    for values, item in zip(blocks, items, strict=True):
        for row, column in zip(values, item["data"], strict=True):
            yield str(column), row
