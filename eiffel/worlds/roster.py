"""A user's own fleet: a CSV file with one line per device.

    kind,step_s,step_j,down_mbps,up_mbps,down_j_mb,up_j_mb,capacity_j,battery_j
    pixel,0.21,0.9,40,10,0.3,0.9,41000,30000
    pi,0.80,2.4,90,90,0.1,0.1,inf,

step_s, step_j: seconds and joules of one local step (of a model of `fleet.reference_params` parameters).
down_mbps, up_mbps: megabits a second. down_j_mb, up_j_mb: joules per megabyte at that rate.
capacity_j: joules of a full battery, inf on mains power. battery_j: joules at the start (empty: drawn as the
card says). The columns may stand in any order; kind and battery_j may be left out. A fleet that needs more
devices than the file has lines goes through them again from the top.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Codes

_FIGURES = ("step_s", "step_j", "down_mbps", "up_mbps", "down_j_mb", "up_j_mb", "capacity_j")


@dataclass(frozen=True, slots=True)
class Roster:
    """What N devices can do, (N,) each, with the units of the columns above; kind indexes `kinds`.

    battery_j is NaN where the card is to decide, or of length 0 if it decides everywhere.
    """

    kinds: tuple[str, ...]
    kind: Codes
    step_s: NDArray[np.float32]
    step_j: NDArray[np.float32]
    down_mbps: NDArray[np.float32]
    up_mbps: NDArray[np.float32]
    down_j_mb: NDArray[np.float32]
    up_j_mb: NDArray[np.float32]
    capacity_j: NDArray[np.float32]
    battery_j: NDArray[np.float32]


def read_roster(path: str, size: int) -> Roster:
    """Read a fleet file and lay it out for `size` devices. ValueError names file, line and column."""
    lines = _lines(Path(path))
    table = {
        key: np.array([_figure(row, key, f"{path}, line {number}") for number, row in lines], np.float32)
        for key in _FIGURES
    }
    battery = np.array([_battery(row, f"{path}, line {number}") for number, row in lines], np.float32)
    names = [row.get("kind") or "device" for _, row in lines]
    kinds = tuple(dict.fromkeys(names))
    if len(kinds) > 256:
        raise ValueError(f"{path}: {len(kinds)} different kinds; name at most 256")
    index = np.arange(size) % len(lines)
    kind = np.array([kinds.index(name) for name in names], np.uint8)
    columns = {key: column[index] for key, column in table.items()}
    return Roster(kinds=kinds, kind=kind[index], battery_j=battery[index], **columns)


def _lines(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Line numbers and fields of a fleet file that has the columns it needs."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"fleet.file: cannot read {path}: {error}") from error
    reader = csv.DictReader(text.splitlines(), skipinitialspace=True)
    columns = [name.strip() for name in reader.fieldnames or ()]
    missing = [key for key in _FIGURES if key not in columns]
    unknown = [name for name in columns if name not in (*_FIGURES, "kind", "battery_j")]
    if missing or unknown:
        raise ValueError(
            f"{path}, line 1: "
            + "; ".join(f"{what} {', '.join(map(repr, which))}" for what, which in
                        (("missing columns", missing), ("unknown columns", unknown)) if which)
            + f". A fleet file has {', '.join(_FIGURES)} and, if you like, kind and battery_j"
        )  # fmt: skip
    reader.fieldnames = columns
    lines = [(reader.line_num, row) for row in reader]
    for number, row in lines:
        if None in row or None in row.values():
            raise ValueError(f"{path}, line {number}: has not as many fields as line 1 has columns")
    if not lines:
        raise ValueError(f"{path}: no devices; write one line for each below the columns' names")
    return lines


def _figure(row: dict[str, str], key: str, where: str) -> float:
    """A positive figure; only a capacity may be infinite."""
    value = _float(row[key])
    if not (value > 0 and (np.isfinite(value) or key == "capacity_j")):
        what = "a positive number" + (", or inf on mains power" if key == "capacity_j" else "")
        raise ValueError(f"{where}: {key} is {row[key]!r}; it must be {what}")
    return value


def _battery(row: dict[str, str], where: str) -> float:
    """The charge at the start, NaN where the file leaves it open."""
    text = (row.get("battery_j") or "").strip()
    if not text:
        return np.nan
    value = _float(text)
    if not 0 <= value <= _float(row["capacity_j"]):
        raise ValueError(f"{where}: battery_j is {text!r}; it must lie between 0 and capacity_j")
    return value


def _float(text: str) -> float:
    """The number a field holds, NaN if it holds none."""
    try:
        return float(text)
    except ValueError:
        return np.nan
