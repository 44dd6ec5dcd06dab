"""When devices can be reached: half-open intervals, asked about in any order, by bisection.

A timetable has M lines, each with intervals [start, end) that are sorted, disjoint and not touching, and a
period after which they repeat (inf: they happen once). Device i follows line `row[i]`. An interval that
reaches the end of the period and one that begins it are one stretch: `until` looks across the seam.
Times are seconds since the start of the run, which is midnight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Bools, Floats, Ints

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


@dataclass(frozen=True, slots=True)
class Timetable:
    """Intervals in which devices are available.

    start, end: (L,) seconds into the period, of all lines one after the other. first: (M+1,) where each
    line begins. period: (M,) seconds, inf for a line that does not repeat. row: (N,) line of each device.
    """

    start: NDArray[np.floating]
    end: NDArray[np.floating]
    first: NDArray[np.int32]
    period: Floats
    row: NDArray[np.int32]

    @property
    def always(self) -> bool:
        """Whether every device is always available."""
        return bool(self.start.size == 1 and self.start[0] == 0 and np.isinf(self.end[0]))

    def available(self, device: Ints, time: Floats | float) -> Bools:
        """(K,) whether each device is available at `time` (one for all, or (K,))."""
        return self._locate(device, time)[3]

    def until(self, device: Ints, time: Floats | float) -> Floats:
        """(K,) when the stretch that holds `time` ends (inf: never); `time` itself where not available."""
        base, line, at, on = self._locate(device, time)
        first, period = self.first[line], self.period[line]
        end = np.where(on, self.end[np.where(on, at, 0)], 0.0)
        opens = np.where(on, first, 0)
        seam = on & np.isfinite(period) & (end >= period) & (self.start[opens] == 0)
        unbroken = seam & (at == first)
        stretch = np.where(seam, period + self.end[opens], end)
        return np.where(unbroken, np.inf, np.where(on, base + stretch, time))

    def next_available(self, device: Ints, time: Floats | float) -> Floats:
        """(K,) the earliest moment from `time` on at which each device is available (inf: never again)."""
        base, line, at, on = self._locate(device, time)
        first, stop, period = self.first[line], self.first[line + 1], self.period[line]
        later = at + 1 < stop
        index = np.where(later, at + 1, first)
        some = index < stop
        opens = self.start[np.where(some, index, 0)] if self.start.size else np.zeros(index.shape)
        coming = np.where(later, base + opens, np.where(some, base + period + opens, np.inf))
        return np.where(on, time, coming)

    def take(self, order: Ints) -> Timetable:
        """The timetable of the devices `order` (their indices), in that order."""
        return replace(self, row=self.row[order])

    def _locate(self, device: Ints, time: Floats | float) -> tuple[Floats, Ints, Ints, Bools]:
        """Start of the current period, line, index of the last interval begun, and whether inside it."""
        line = self.row[device].astype(np.int64)
        phase = np.fmod(time, self.period[line])
        low, high = self.first[line].astype(np.int64), self.first[line + 1].astype(np.int64)
        first = low.copy()
        while (open_ := low < high).any():
            middle = np.where(open_, (low + high) // 2, 0)
            begun = open_ & (self.start[middle] <= phase)
            low = np.where(begun, middle + 1, low)
            high = np.where(open_ & ~begun, middle, high)
        at = low - 1
        on = at >= first
        if self.start.size:
            on &= phase < self.end[np.where(on, at, 0)]
        return np.asarray(time - phase), line, at, on


def always(size: int) -> Timetable:
    """A timetable by which `size` devices are available at all times."""
    return Timetable(
        start=np.zeros(1),
        end=np.full(1, np.inf),
        first=np.array([0, 1], np.int32),
        period=np.full(1, np.inf),
        row=np.broadcast_to(np.int32(0), (size,)),
    )


def timetable(
    line: NDArray[np.integer], start: NDArray[np.floating], end: NDArray[np.floating], period: Floats
) -> Timetable:
    """A timetable from loose intervals, in any order, overlapping or not; device i follows line i.

    line, start, end: (L,). period: (M,) seconds, inf for lines that do not repeat. An interval may reach
    beyond its period by less than one period; it then also covers the beginning. Raises ValueError naming
    the line.
    """
    of = np.asarray(line, np.int64)
    _check(of, start, end, period)
    over = end > period[of]
    rows = np.concatenate([of, of[over]])
    low = np.concatenate([start, np.zeros(int(over.sum()), start.dtype)])
    high = np.concatenate([np.minimum(end, period[of]), (end - period[of])[over]])
    rows, low, high = _merge(rows, low.astype(start.dtype), high.astype(start.dtype))
    first = np.searchsorted(rows, np.arange(period.size + 1)).astype(np.int32)
    return Timetable(low, high, first, np.asarray(period, np.float64), np.arange(period.size, dtype=np.int32))


def _check(
    line: Ints, start: NDArray[np.floating], end: NDArray[np.floating], period: NDArray[np.floating]
) -> None:
    """Refuse periods that are not positive and intervals that are empty, negative or too long."""
    if not (period > 0).all():
        where = int(np.flatnonzero(~(period > 0))[0])
        raise ValueError(f"availability line {where}: period is {period[where]}; it must be positive seconds")
    span = period[line]
    good = (start >= 0) & (start < span) & (end > start) & (np.isinf(span) | (end - start <= span))
    if not good.all():
        at = int(np.flatnonzero(~good)[0])
        raise ValueError(
            f"availability line {line[at]}: [{start[at]}, {end[at]}) is no interval within a period of "
            f"{span[at]} s; it needs 0 <= start < end and start < period"
        )


def _merge(
    line: Ints, start: NDArray[np.floating], end: NDArray[np.floating]
) -> tuple[Ints, NDArray[np.floating], NDArray[np.floating]]:
    """Sort by line and start, and join what overlaps or touches."""
    order = np.lexsort((start, line))
    line, start, end = line[order], start[order], end[order]
    if not line.size:
        return line, start, end
    ranked = np.argsort(end, kind="stable")
    rank = np.empty(end.size, np.int64)
    rank[ranked] = np.arange(end.size)
    # The running maximum of (line, rank of end), as one integer: exact, and lines never mix.
    furthest = np.maximum.accumulate(line * end.size + rank) - line * end.size
    fresh = np.ones(line.size, bool)
    fresh[1:] = (line[1:] != line[:-1]) | (start[1:] > end[ranked[furthest[:-1].clip(0)]])
    heads = np.flatnonzero(fresh)
    return line[heads], start[heads], np.maximum.reduceat(end, heads)


def nightly(card: Mapping[str, Any], size: int, rng: np.random.Generator) -> Timetable:
    """Devices that are available while they charge at night. SYNTHETIC: plausible, measured nowhere.

    Every owner has a habit (hour of plugging in, hours on the charger), every night strays from it, some
    nights are skipped, and after `days` days it repeats. Whole seconds; 8 bytes per device and night.
    card: plug_h, plug_sd_h, hours, hours_sd, night_sd_h, skip, days.
    """
    days = int(card["days"])
    stray = rng.normal(0.0, card["night_sd_h"], (2, size, days))
    plug = rng.normal(card["plug_h"], card["plug_sd_h"], (size, 1)) + stray[0]
    hours = rng.normal(card["hours"], card["hours_sd"], (size, 1)) + stray[1]
    kept = rng.random((size, days)) >= card["skip"]
    start = np.floor((np.arange(days) * DAY_S + plug * HOUR_S) % (days * DAY_S))
    end = start + np.floor(np.clip(hours, 0.5, 20.0) * HOUR_S)
    line = np.repeat(np.arange(size), days)[kept.ravel()]
    low, high = start[kept].astype(np.float32), end[kept].astype(np.float32)
    return timetable(line, low, high, np.broadcast_to(days * DAY_S, (size,)))
