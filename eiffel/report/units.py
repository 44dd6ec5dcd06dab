"""Numbers for people: a unit that fits, few digits, and the same unit along an axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

_LADDERS: dict[str, tuple[tuple[float, str], ...]] = {
    "bytes": ((1, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")),
    "joules": ((1, "J"), (1e3, "kJ"), (1e6, "MJ"), (1e9, "GJ")),
    "seconds": ((1, "s"), (60, "min"), (3600, "h")),
    "percent": ((0.01, "%"),),
    "count": ((1, ""), (1e3, "k"), (1e6, "M")),
    "plain": ((1, ""),),
}


@dataclass(frozen=True, slots=True)
class Unit:
    """A factor and its name: `value / factor` is the number in front of `name`."""

    factor: float
    name: str

    def number(self, value: float) -> str:
        """The value in this unit with three significant digits, or a dash where it is not known."""
        return digits(value / self.factor)

    def text(self, value: float) -> str:
        """The value with its unit, such as 4.89 MB."""
        number = self.number(value)
        return number if number == "–" or not self.name else f"{number} {self.name}"


def fitting(kind: str, largest: float) -> Unit:
    """The unit of `kind` in which `largest` is at least 1 (of time at least 2, so 90 min stay minutes)."""
    ladder = _LADDERS[kind]
    least = 2 if kind == "seconds" else 1
    fits = [step for step in ladder if math.isfinite(largest) and abs(largest) >= least * step[0]]
    return Unit(*(fits[-1] if fits else ladder[0]))


def digits(value: float, significant: int = 3) -> str:
    """A number with so many significant digits and no exponent: 0.0123, 1.23, 123, 12,300."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    places = significant - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, places):,.{max(0, places)}f}"


def percent(value: float, places: int = 1) -> str:
    """A fraction in per cent, such as 96.9 %."""
    return f"{100 * value:.{places}f} %" if math.isfinite(value) else "–"


def factor(ratio: float) -> str:
    """A ratio with the digits it deserves: 1.07, 2.3, 14."""
    return f"{ratio:.{2 if ratio < 2 else 1 if ratio < 10 else 0}f}"


def times(ratio: float) -> str:
    """A ratio as people say it: 2.1× less, 1.30× more, the same."""
    if not math.isfinite(ratio) or ratio <= 0:
        return "–"
    if abs(math.log(ratio)) < 0.005:
        return "the same"
    return f"{factor(ratio)}× less" if ratio > 1 else f"{factor(1 / ratio)}× more"


def signed(value: float, places: int, unit: str = "") -> str:
    """A difference with its sign, such as +0.9 or −42 %."""
    if not math.isfinite(value):
        return "–"
    rounded = f"{abs(value):.{places}f}"
    sign = "±" if float(rounded) == 0 else "−" if value < 0 else "+"
    return f"{sign}{rounded}{unit}"


def plural(count: int, noun: str) -> str:
    """A count with its noun: 1 seed, 3 seeds."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
