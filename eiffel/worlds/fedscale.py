"""Readers for the two device traces of FedScale (Lai et al., ICML 2022), which are Python pickles.

A pickle can run code, so these are read by an unpickler that knows no classes or functions at all: what
comes out is made of dicts, lists, tuples, strings and numbers, or the file is refused.

client_device_capacity: {id: {"computation": ms of inference per sample, "communication": kbit/s}}.
client_behave_trace: {id: {"active": [s, ...], "inactive": [s, ...], "finish_time": s, ...}}: available in
[active[k], inactive[k]), again and again with period finish_time. (FedScale's own reader steps at most one
interval per question; here any order of questions gets the same answers.)
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from eiffel.core.model import Floats, Ints
from eiffel.worlds.availability import Timetable, timetable


class _Plain(pickle.Unpickler):
    """Admits the containers and numbers that pickle builds by itself, and nothing that has a name."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(
            f"it wants to use {module}.{name}; only plain containers and numbers may"
        )


def read_plain_pickle(path: str) -> dict[Any, Any]:
    """A non-empty dict of plain containers and numbers. ValueError says why a file is refused."""
    try:
        with Path(path).open("rb") as file:
            found = _Plain(file).load()
    except Exception as error:
        # A damaged pickle raises almost anything: IndexError, KeyError, MemoryError, struct.error, ...
        raise ValueError(f"{path}: cannot be read as a plain pickle: {error}") from error
    if not isinstance(found, dict) or not found:
        raise ValueError(f"{path}: holds a {type(found).__name__}, not a dict of clients")
    return found


def read_capacity(path: str, size: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """(N,) how many times slower than the trace's median, and (N,) Mbit/s, of clients drawn from a trace.

    Only the spread of the speeds is taken: the trace does not say which model its times are of.
    """
    clients = read_plain_pickle(path)
    table = np.array([_speeds(path, key, entry) for key, entry in clients.items()])
    chosen = table[_draw(len(clients), size, rng)]
    return chosen[:, 0] / np.median(table[:, 0]), chosen[:, 1] / 1000.0


def read_availability(path: str | None, size: int, rng: np.random.Generator) -> Timetable:
    """A timetable for `size` devices, each of which follows a client drawn from a trace."""
    if path is None:
        raise ValueError("fleet.availability.path is null; kind fedscale needs a client_behave_trace")
    clients = read_plain_pickle(path)
    parts = [_intervals(path, key, entry) for key, entry in clients.items()]
    line = np.repeat(np.arange(len(parts)), [len(start) for start, _, _ in parts])
    start = np.concatenate([start for start, _, _ in parts])
    end = np.concatenate([end for _, end, _ in parts])
    try:
        whole = timetable(line, start, end, np.array([period for _, _, period in parts]))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return whole.take(_draw(len(parts), size, rng))


def _draw(have: int, want: int, rng: np.random.Generator) -> Ints:
    """Indices of `want` clients out of `have`: each once before any twice."""
    return np.resize(rng.permutation(have), want)


def _speeds(path: str, key: object, entry: Any) -> tuple[float, float]:
    """The two figures of one client."""
    try:
        pair = float(entry["computation"]), float(entry["communication"])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path}, client {key!r}: needs computation and communication: {error!r}") from error
    if not (np.isfinite(pair).all() and min(pair) > 0):
        raise ValueError(f"{path}, client {key!r}: computation and communication are {pair}; need positive")
    return pair


def _intervals(path: str, key: object, entry: Any) -> tuple[Floats, Floats, float]:
    """Starts, ends and the period of one client."""
    where = f"{path}, client {key!r}"
    try:
        start = np.array(entry["active"], np.float64)
        end = np.array(entry["inactive"], np.float64)
        period = float(entry["finish_time"])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{where}: needs active, inactive and finish_time: {error!r}") from error
    if start.ndim != 1 or start.shape != end.shape:
        raise ValueError(f"{where}: active has {start.size} times and inactive {end.size}; they pair up")
    good = np.isfinite(start).all() and np.isfinite(end).all() and np.isfinite(period) and period > 0
    if not good or (start.size and (start.min() < 0 or start.max() >= period or (end < start).any())):
        raise ValueError(f"{where}: needs 0 <= active[k] <= inactive[k] and active[k] < finish_time")
    lasting = end > start
    return start[lasting], end[lasting], period
