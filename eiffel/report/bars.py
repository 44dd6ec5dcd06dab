"""The bar charts of the page: fairness at a glance, energy, what became of the tasks. Bars start at zero."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eiffel.core.model import Status
from eiffel.report import svg
from eiffel.report.charts import PERCENT, Figure
from eiffel.report.compare import Row
from eiffel.report.gather import Group, Problem
from eiffel.report.svg import Frame, Interval
from eiffel.report.units import Unit, digits, fitting, percent

DOWN = 6.0
"""Pixels by which a bar lies below the middle of its lane, and its words above."""


def fairness_strip(problem: Problem, rows: Sequence[Row], name: str) -> Figure:
    """Worst tenth, mean and best tenth of each strategy on one scale."""
    rows = [row for row in rows if not row.note]
    tenths = [row.figures[key] for row in rows for key in ("worst10", "best10")]
    frame = _frame(len(rows), svg.around([f.mean for f in tenths]))
    at = svg.unit_ticks(frame.x, PERCENT)
    inner = svg.x_axis(frame, at, svg.tick_text(at, PERCENT), f"{problem.metric}, %")
    about = []
    for row, y in zip(rows, svg.lanes(len(rows)), strict=True):
        ends = [row.figures[key].mean for key in ("worst10", "accuracy", "best10")]
        words = f"variance {digits(row.figures['variance'].mean)}"
        about.append(f"{row.group.label} {', '.join(map(percent, ends))}, {words}")
        inner += _words(frame, row.group, words, y) + _dumbbell(frame, ends, y + DOWN, row.group, about[-1])
    caption = "Means of the last five evaluations. Variance ×10⁻⁴, unweighted over devices."
    return _figure("Worst tenth, mean, best tenth", caption, inner, frame, about, name)


def _dumbbell(frame: Frame, ends: Sequence[float], y: float, group: Group, tip: str) -> str:
    """A pale bar from the first to the last value, both ends marked, with a dot at the one between."""
    if not np.isfinite(ends).all():
        return ""
    a, m, b = map(float, frame.px(list(ends)))
    mark = svg.mark(group.index)
    bar = svg.rect(a, y - 2.5, b - a, 5, f"bar soft {mark}", tip)
    tips = "".join(svg.rect(x - 1.5, y - 5, 3, 10, f"bar {mark}", tip) for x in (a, b))
    return bar + tips + svg.dot(m, y, f"dot {mark}", tip)


def energy(problem: Problem, name: str) -> Figure:
    """Joules of the whole run: useful and wasted, mean over seeds."""
    bars = [
        (group, _end(group, "total_joules"), _end(group, "total_joules_wasted")) for group in problem.groups
    ]
    bars = [(group, total, wasted) for group, total, wasted in bars if np.isfinite(total + wasted)]
    if not bars:
        return Figure("Energy of the whole run", "Not drawn: these runs kept no energy.", "")
    unit = fitting("joules", max(total for _, total, _ in bars))
    frame = _frame(len(bars), (0, max(total for _, total, _ in bars) or 1))
    inner, about = _energy_axis(frame, unit), []
    for (group, total, wasted), y in zip(bars, svg.lanes(len(bars)), strict=True):
        words = f"{unit.text(total)}, {percent(wasted / total if total else 0)} wasted"
        about.append(f"{group.label} {words}")
        inner += _words(frame, group, words, y)
        inner += _split(frame, total - wasted, total, y + DOWN, group, about[-1])
    caption = "Full: useful. Pale: wasted, spent on updates that did not count."
    return _figure("Energy of the whole run", caption, inner, frame, about, name)


def energy_to_target(problem: Problem, rows: Sequence[Row], target: float, name: str) -> Figure:
    """Joules until the target: mean, and range over seeds."""
    rows = [row for row in rows if not row.note]
    known = [row.cost["joules"].high for row in rows if np.isfinite(row.cost["joules"].mean)]
    unit = fitting("joules", max(known, default=1))
    frame = _frame(len(rows), (0, 1.01 * max(known, default=1)))
    inner, about = _energy_axis(frame, unit), []
    for row, y in zip(rows, svg.lanes(len(rows)), strict=True):
        cost, group = row.cost["joules"], row.group
        never = f"reached on {row.reached} of {len(group.runs)} seeds"
        words = unit.text(cost.mean) if np.isfinite(cost.mean) else never
        about.append(f"{group.label} {words}")
        inner += _words(frame, group, words, y)
        if np.isfinite(cost.mean):
            inner += svg.span(frame, 0, cost.mean, y + DOWN, group.index, "bar", about[-1])
            inner += _whisker(frame, (cost.low, cost.high), y + DOWN, unit)
    caption = f"Until {percent(target)} {problem.metric} was reached. Thin line: lowest to highest seed."
    return _figure("Energy to the target", caption, inner, frame, about, name)


def tasks(problem: Problem, name: str) -> Figure:
    """What became of the tasks that were given out, all seeds together."""
    frame = _frame(len(problem.groups), (0, 1))
    inner = svg.x_axis(frame, [0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100"], "tasks, %")
    about = []
    for group, y in zip(problem.groups, svg.lanes(len(problem.groups)), strict=True):
        given, counted, lost = _fates(group)
        share = counted / given if given else 0.0
        why = [
            f"{percent(count / given)} {status.name.lower().replace('_', ' ')}" for status, count in lost[:2]
        ]
        tip = "; ".join(
            f"{count:,.0f} {status.text}" for status, count in [(Status.DELIVERED, counted), *lost]
        )
        about.append(f"{group.label}: {tip}")
        inner += _words(frame, group, ", ".join([f"{percent(share)} counted", *why]), y)
        inner += _split(frame, share, 1.0 if given else 0.0, y + DOWN, group, tip)
    caption = "Full: counted. Pale: lost. All seeds together; the two largest losses in words."
    return _figure("What became of the tasks", caption, inner, frame, about, name)


def _fates(group: Group) -> tuple[float, float, list[tuple[Status, float]]]:
    """Tasks given out, tasks counted, and tasks lost by status, most first; over all rounds and seeds."""
    lost: dict[Status, float] = {}
    for run in group.runs:
        for record in run.records:
            for reason, count in (record.get("lost") or {}).items():
                status = Status.__members__.get(str(reason).upper(), Status.FAILED)
                lost[status] = lost.get(status, 0.0) + float(count or 0)
    given, counted = (sum(float(np.nansum(r.column(k))) for r in group.runs) for k in ("chosen", "delivered"))
    given = max(given, counted + sum(lost.values()))  # a record may lack what was given out
    return given, counted, sorted(lost.items(), key=lambda item: -item[1])


def _end(group: Group, key: str) -> float:
    """A running total at the end of the run, mean over seeds."""
    return float(np.mean([run.column(key)[-1] for run in group.runs]))


def _split(frame: Frame, part: float, whole: float, y: float, group: Group, tip: str) -> str:
    """A bar from zero, full up to `part` and pale from there to `whole`."""
    full = svg.span(frame, 0, part, y, group.index, "bar", tip)
    return full + svg.span(frame, part, whole, y, group.index, "bar waste", tip)


def _whisker(frame: Frame, ends: Interval, y: float, unit: Unit) -> str:
    """A thin line over the range of the seeds."""
    a, b = map(float, frame.px(list(ends)))
    return svg.rect(a, y - 0.8, b - a, 1.6, "whisker", f"{unit.text(ends[0])} to {unit.text(ends[1])}")


def _words(frame: Frame, group: Group, words: str, y: float) -> str:
    """A strategy's name and figure above its bar."""
    return svg.named(frame.left, y - DOWN, svg.short(group.label, 24), words, group.index)


def _energy_axis(frame: Frame, unit: Unit) -> str:
    """The axis of joules, from zero."""
    at = svg.unit_ticks(frame.x, unit.factor)
    return svg.x_axis(frame, at, svg.tick_text(at, unit.factor), f"energy, {unit.name}")


def _frame(count: int, x: Interval) -> Frame:
    """A frame for so many lanes, with words above the bars rather than beside them."""
    return Frame(x, (0, 1), height=svg.LANE * count + 48, left=6, right=14, top=4)


def _figure(title: str, caption: str, inner: str, frame: Frame, about: Sequence[str], name: str) -> Figure:
    """The finished chart."""
    return Figure(title, caption, svg.picture(inner, frame, title, "; ".join(about), name))
