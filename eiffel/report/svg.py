"""SVG by hand: scales, axes, lines, bands, bars, lanes. Strings in, strings out; style is the page's CSS.

Marks carry a class `sI` for the series I they belong to, from which the page takes colour, hover and
visibility. Coordinates are rounded to a tenth of a pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import ArrayLike

COLOURS = 8
"""Colours of the page's palette; series beyond them reuse colours with dashes."""

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Frame:
    """A plot's area and scales, in pixels and data units; y grows upwards in data, downwards in pixels."""

    x: Interval
    y: Interval
    width: float = 360
    height: float = 250
    left: float = 36
    right: float = 84
    top: float = 24
    bottom: float = 38

    @property
    def end(self) -> float:
        """Pixel of the right edge of the plot area."""
        return self.width - self.right

    @property
    def floor(self) -> float:
        """Pixel of the lower edge of the plot area."""
        return self.height - self.bottom

    def px(self, value: ArrayLike) -> np.ndarray:
        """Pixels of x values."""
        low, high = self.x
        return self.left + (np.asarray(value) - low) / ((high - low) or 1) * (self.end - self.left)

    def py(self, value: ArrayLike) -> np.ndarray:
        """Pixels of y values."""
        low, high = self.y
        return self.floor - (np.asarray(value) - low) / ((high - low) or 1) * (self.floor - self.top)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers (1, 2, 2.5 or 5 times a power of ten) within low..high, about so many."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [round((first + i) * step, 12) for i in range(count)]


def unit_ticks(ends: Interval, factor: float, about: int = 4) -> list[float]:
    """Ticks that are round once divided by `factor`."""
    return [t * factor for t in ticks(ends[0] / factor, ends[1] / factor, about)]


def tick_text(values: Sequence[float], factor: float = 1.0) -> list[str]:
    """Labels with just the decimals that tell the ticks apart."""
    scaled = [v / factor for v in values]
    places = next(
        (p for p in range(7) if all(abs(round(v, p) - v) < 1e-9 * max(1, abs(v)) for v in scaled)), 6
    )
    return [f"{v:,.{places}f}" for v in scaled]


def picture(
    inner: str, frame: Frame, title: str, description: str, name: str, data: dict[str, str] | None = None
) -> str:
    """A whole <svg> with a title and a description for those who do not see it."""
    extra = "".join(f' data-{key}="{escape(value)}"' for key, value in (data or {}).items())
    clip = (
        f'<clipPath id="{name}-clip"><rect x="{frame.left:.1f}" y="{frame.top - 4:.1f}" '
        f'width="{frame.end - frame.left + 2:.1f}" height="{frame.floor - frame.top + 5:.1f}"/></clipPath>'
    )
    return (
        f'<svg class="plot" role="img" viewBox="0 0 {frame.width:g} {frame.height:g}" '
        f'aria-labelledby="{name}-t {name}-d"{extra}><title id="{name}-t">{escape(title)}</title>'
        f'<desc id="{name}-d">{escape(description)}</desc>{clip}{inner}</svg>'
    )


def axes(
    frame: Frame,
    x_title: str,
    y_title: str,
    x_factor: float = 1.0,
    y_factor: float = 1.0,
    y_ticks: Sequence[float] | None = None,
) -> str:
    """Horizontal grid lines with y ticks, x ticks below, and both titles set horizontally."""
    xs, ys = unit_ticks(frame.x, x_factor), y_ticks or unit_ticks(frame.y, y_factor)
    out = [
        f'<line class="grid" x1="{frame.left}" x2="{frame.end}" y1="{y:.1f}" y2="{y:.1f}"/>'
        + text(frame.left - 6, y + 3.5, label, "tick", "end")
        for y, label in zip(frame.py(ys), tick_text(ys, y_factor), strict=True)
    ]
    out.append(x_axis(frame, xs, tick_text(xs, x_factor), x_title))
    out.append(text(2, frame.top - 13, y_title, "axis"))
    return "".join(out)


def x_axis(frame: Frame, at: Sequence[float], labels: Sequence[str], title: str) -> str:
    """The base line with ticks and a title at its right end."""
    y = frame.floor
    out = [f'<line class="base" x1="{frame.left}" x2="{frame.end}" y1="{y:.1f}" y2="{y:.1f}"/>']
    for x, label in zip(frame.px(at), labels, strict=True):
        out.append(
            f'<line class="base" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.floor}" y2="{frame.floor + 4}"/>'
        )
        out.append(text(x, frame.floor + 15, label, "tick", "middle"))
    return "".join(out) + text(frame.end, frame.floor + 30, title, "axis", "end")


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Words at a place; anchor start, middle or end."""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{where}>{escape(words)}</text>'


def line(
    frame: Frame, x: ArrayLike, y: ArrayLike, series: int, kind: str = "", clip: str = "", name: str = ""
) -> str:
    """A line through points. `kind` adds classes; with a `name` the page's hover reads it out."""
    if not np.size(x):
        return ""
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(frame.px(x), frame.py(y), strict=True))
    label = f' data-name="{escape(name)}"' if name else ""
    return f'<path class="line {mark(series)} {kind}"{_clip(clip)}{label} d="M{path}"/>'


def band(frame: Frame, x: ArrayLike, low: ArrayLike, high: ArrayLike, series: int, clip: str = "") -> str:
    """The area between two lines; nothing where they are the same line."""
    if not np.size(x) or np.array_equal(low, high):
        return ""
    xs = np.concatenate([np.asarray(x), np.asarray(x)[::-1]])
    ys = np.concatenate([np.asarray(high), np.asarray(low)[::-1]])
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(frame.px(xs), frame.py(ys), strict=True))
    return f'<path class="band {mark(series)}"{_clip(clip)} d="M{path}Z"/>'


def rect(x: float, y: float, width: float, height: float, kind: str, tip: str = "") -> str:
    """A rectangle in pixels, with words that show when pointed at."""
    inner = f"<title>{escape(tip)}</title>" if tip else ""
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" '
        f'height="{height:.1f}">{inner}</rect>'
    )


def dot(x: float, y: float, kind: str, tip: str = "") -> str:
    """A round mark at a pixel, with words that show when pointed at."""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"><title>{escape(tip)}</title></circle>'


def named(x: float, y: float, name: str, words: str, series: int) -> str:
    """A name in its colour, followed by plain words."""
    return (
        f'<text class="label {mark(series)}" x="{x:.1f}" y="{y:.1f}">{escape(name)}'
        f'<tspan class="plain" dx="7">{escape(words)}</tspan></text>'
    )


def span(
    frame: Frame, start: float, end: float, lane: float, series: int, kind: str = "bar", tip: str = ""
) -> str:
    """A horizontal bar from `start` to `end` in data units on the lane whose middle is pixel `lane`."""
    a, b = frame.px([start, end])
    return rect(float(a), lane - THICK / 2, float(b - a), THICK, f"{kind} {mark(series)}", tip)


LANE = 44
"""Pixels from one lane (a row of a bar or Gantt chart) to the next."""
THICK = 14
"""Pixels across a bar."""


def lanes(count: int, top: float = 4) -> list[float]:
    """Pixels of the middle of each lane."""
    return [top + LANE * (i + 0.5) for i in range(count)]


def rule(frame: Frame, y: float, words: str, kind: str = "target") -> str:
    """A dashed horizontal line across the plot with words at its right end, just below it."""
    at = float(frame.py(y))
    dashes = f'<line class="{kind}" x1="{frame.left}" x2="{frame.end}" y1="{at:.1f}" y2="{at:.1f}"/>'
    return dashes + text(frame.end - 2, at + 13, words, f"{kind} halo", "end")


End = tuple[float, float, int, str]
"""Where a line ends, in data units, its series and its name."""


def end_labels(frame: Frame, ends: Sequence[End], gap: float = 12.5) -> str:
    """Names at the ends of lines; those that would run into each other are moved apart."""
    out = []
    for near in _near(frame, ends):
        wanted = [float(frame.py(y)) + 3.5 for _, y, _, _ in near]
        for (x, _, series, words), y in zip(
            near, apart(wanted, gap, frame.top + 4, frame.floor - 2), strict=True
        ):
            out.append(text(float(frame.px(x)) + 5, y, short(words), f"label halo {mark(series)}"))
    return "".join(out)


def _near(frame: Frame, ends: Sequence[End], reach: float = 85) -> list[list[End]]:
    """Ends in groups, left to right: those whose names, `reach` pixels long, would share columns of pixels."""
    groups: list[list[End]] = []
    right = -math.inf
    for end in sorted(ends):
        at = float(frame.px(end[0]))
        if at > right:
            groups.append([])
        groups[-1].append(end)
        right = at + reach
    return groups


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places near to `wanted`, in its order, at least `gap` apart (less where that would not fit)."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    placed = [min(max(wanted[i], low), high) for i in order]
    for _ in range(60):
        for a in range(len(placed) - 1):
            push = (gap - (placed[a + 1] - placed[a])) / 2
            if push > 0:
                placed[a], placed[a + 1] = placed[a] - push, placed[a + 1] + push
        placed = [
            min(max(p, low + gap * i), high - gap * (len(placed) - 1 - i)) for i, p in enumerate(placed)
        ]
    out = [0.0] * len(wanted)
    for rank, i in enumerate(order):
        out[i] = placed[rank]
    return out


def key(frame: Frame, entries: Sequence[tuple[int, str]], x: float, y: float, anchor: str = "start") -> str:
    """Names in their colours, one below the other from pixel (x, y), for lines that end in one place."""
    return "".join(
        text(x, y + 13.5 * i, words, f"label halo {mark(series)}", anchor)
        for i, (series, words) in enumerate(entries)
    )


def mark(series: int) -> str:
    """The classes of a series: s and its number, its colour, and dashes once the colours are used up."""
    dash = f" d{series // COLOURS}" if series >= COLOURS else ""
    return f"s{series} c{series % COLOURS}{dash}"


def short(words: str, most: int = 13) -> str:
    """Words that fit beside a plot."""
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


def around(values: Sequence[float], margin: float = 0.05, zero: bool = False) -> Interval:
    """An interval that holds the finite values with some margin; from zero where bars need it."""
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    pad = (high - low) * margin or abs(high) * 0.1 or 1.0
    return (0.0 if zero else low - pad), high + pad


def describe(entries: Sequence[tuple[str, float]], form: Callable[[float], str]) -> str:
    """The end of each line in words, for those who do not see it."""
    return "; ".join(f"{name} ends at {form(value)}" for name, value in entries)


def _clip(name: str) -> str:
    """The attribute that keeps a mark inside the plot area."""
    return f' clip-path="url(#{name}-clip)"' if name else ""
