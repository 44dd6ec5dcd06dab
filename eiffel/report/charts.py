"""The line charts of the page: each takes a problem and gives a figure, with a caption that explains it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eiffel.report import svg
from eiffel.report.gather import COSTS, Curve, Group, Problem, curve, lorenz, sorted_accuracy, trace
from eiffel.report.svg import Frame
from eiffel.report.units import Unit, digits, fitting, percent

COST_WORDS = {"bytes": "traffic, up and down", "joules": "energy", "seconds": "virtual time"}
COST_TITLES = {"bytes": "bytes", "joules": "joules", "seconds": "virtual time"}
PERCENT = 0.01


@dataclass(frozen=True)
class Figure:
    """A chart with its heading and its caption; `svg` is empty where there is nothing to draw."""

    title: str
    caption: str
    svg: str


Drawn = list[tuple[Group, Curve]]


def drawn(problem: Problem, of: Callable[[Group], Curve]) -> Drawn:
    """The curve of every strategy that has one."""
    curves = [(group, of(group)) for group in problem.groups]
    return [(group, c) for group, c in curves if c.x.size]


def lines(frame: Frame, curves: Drawn, name: str, kind: str = "") -> str:
    """Bands, then lines, so that no band hides a line."""
    bands = "".join(svg.band(frame, c.x, c.low, c.high, g.index, name) for g, c in curves)
    return bands + "".join(svg.line(frame, c.x, c.mean, g.index, kind, name, g.label) for g, c in curves)


def hover(frame: Frame, x: Unit, x_word: str, y: Unit) -> dict[str, str]:
    """What the page needs to turn a place in the plot into figures."""
    return {
        "frame": f"{frame.left:g} {frame.end:g} {frame.top:g} {frame.floor:g}",
        "x": f"{frame.x[0] / x.factor:.6g} {frame.x[1] / x.factor:.6g}",
        "y": f"{frame.y[0] / y.factor:.6g} {frame.y[1] / y.factor:.6g}",
        "xunit": x.name,
        "yunit": y.name,
        "xword": x_word,
    }


def accuracy_against(problem: Problem, cost: str, target: float, name: str) -> Figure:
    """Accuracy over what it cost, with the target."""
    curves = drawn(problem, lambda g: curve(g, "accuracy", COSTS[cost]))
    title = f"{problem.metric.capitalize()} against {COST_TITLES[cost]}"
    if not curves:
        return Figure(title, f"Not drawn: these runs kept no running total of {cost}.", "")
    unit = fitting(cost, max(c.x[-1] for _, c in curves))
    every = np.concatenate([c.mean for _, c in curves] + [np.array([target])])
    top = max(float(c.high.max()) for _, c in curves)
    low = min(float(np.quantile(every, 0.12)), target - 0.4 * (target - float(every.min())))
    frame = Frame((0, max(c.x[-1] for _, c in curves)), (low, top + (top - low) * 0.04))
    ends = [(float(c.x[-1]), float(c.mean[-1]), g.index, g.label) for g, c in curves]
    inner = (
        svg.axes(frame, f"{COST_WORDS[cost]}, {unit.name}", f"{problem.metric}, %", unit.factor, PERCENT)
        + svg.rule(frame, target, f"target {percent(target)}")
        + lines(frame, curves, name)
        + svg.end_labels(frame, ends)
    )
    about = svg.describe([(g.label, float(c.mean[-1])) for g, c in curves], percent)
    data = hover(frame, unit, COST_WORDS[cost], Unit(PERCENT, "%"))
    return Figure(title, "", svg.picture(inner, frame, title, about, name, data))


def variance_against(problem: Problem, name: str) -> Figure:
    """Variance over devices, as training goes on."""
    title = "How unequal devices are, over rounds"
    curves = drawn(problem, lambda g: curve(g, "variance", "round"))
    if not curves:
        return Figure(title, "Not drawn: these runs kept no variance over devices.", "")
    most = float(np.quantile(np.concatenate([c.high for _, c in curves]), 0.9)) * 1.1
    frame = Frame((0, max(c.x[-1] for _, c in curves)), (0, most))
    ends = [(float(c.x[-1]), min(float(c.mean[-1]), most), g.index, g.label) for g, c in curves]
    inner = (
        svg.axes(frame, "round", "variance over devices, ×10⁻⁴")
        + lines(frame, curves, name)
        + svg.end_labels(frame, ends)
    )
    about = svg.describe([(g.label, float(c.mean[-1])) for g, c in curves], digits)
    data = hover(frame, Unit(1, ""), "round", Unit(1, ""))
    return Figure(title, "Lower is fairer.", svg.picture(inner, frame, title, about, name, data))


def sorted_devices(problem: Problem, name: str) -> Figure:
    """Each device's accuracy, from the worst device to the best."""
    title = "Accuracy of every device, worst to best"
    curves = drawn(problem, sorted_accuracy)
    if not curves:
        return Figure(title, "Not drawn: these runs kept no accuracy of single devices.", "")
    low = min(float(c.mean.min()) for _, c in curves)
    high = max(float(c.high.max()) for _, c in curves)
    frame = Frame((0, 100), (max(0.0, low - 0.02), high), right=14)
    shade = svg.rect(
        frame.left, frame.top, float(frame.px(10)) - frame.left, frame.floor - frame.top, "shade"
    )
    entries = [(g.index, g.label) for g, _ in curves]
    inner = (
        shade
        + svg.text(frame.left + 3, frame.top + 10, "worst 10 %", "note")
        + svg.axes(frame, "devices below, %", f"{problem.metric}, %", 1, PERCENT)
        + lines(frame, curves, name)
        + svg.key(frame, entries, frame.end - 4, frame.floor - 13.5 * len(entries) + 4, "end")
    )
    about = "; ".join(
        f"{g.label} from {percent(float(c.mean[0]))} to {percent(float(c.mean[-1]))}" for g, c in curves
    )
    data = hover(frame, Unit(1, "%"), "devices below", Unit(PERCENT, "%"))
    caption = "At the last evaluation. A flat, high line is a fair model."
    return Figure(title, caption, svg.picture(inner, frame, title, about, name, data))


def participation(problem: Problem, name: str) -> Figure:
    """Lorenz curves of the tasks over devices."""
    title = "Who was asked"
    curves = drawn(problem, lorenz)
    if not curves:
        return Figure(title, "Not drawn: these runs kept no rows of single devices.", "")
    frame = Frame((0, 100), (0, 100), right=14)
    equal = svg.line(frame, [0, 100], [0, 100], 0, "equal")
    entries = [(g.index, f"{g.label}  {digits(_jain(g), 2)}") for g, _ in curves]
    inner = (
        svg.axes(frame, "devices, least asked first, %", "share of all tasks, %")
        + equal.replace(svg.mark(0), "")
        + lines(frame, curves, name)
        + svg.text(frame.left + 8, frame.top + 10, "Jain's index", "note")
        + svg.key(frame, entries, frame.left + 8, frame.top + 25)
    )
    about = "; ".join(f"{g.label}: Jain's index {digits(_jain(g), 2)}" for g, _ in curves)
    data = hover(frame, Unit(1, "%"), "devices", Unit(1, "%"))
    caption = "Lorenz curve of tasks over the fleet; the straight line is everybody alike (Jain's index 1)."
    return Figure(title, caption, svg.picture(inner, frame, title, about, name, data))


def _jain(group: Group) -> float:
    """Jain's index of participation at the end, mean over seeds."""
    ends = [run.column("participation_jain") for run in group.runs]
    return float(np.mean([e[np.isfinite(e)][-1] if np.isfinite(e).any() else np.nan for e in ends]))


def battery(problem: Problem, name: str) -> Figure:
    """Mean and lowest charge over virtual time."""
    title = "Battery left"
    means = drawn(problem, lambda g: trace(g, "battery_mean", "total_s"))
    if not means:
        return Figure(title, "Not drawn: no device of this fleet runs on a battery.", "")
    least = drawn(problem, lambda g: trace(g, "battery_min", "total_s"))
    least = [(g, Curve(c.x, c.mean, c.mean, c.mean)) for g, c in least]
    unit = fitting("seconds", max(c.x[-1] for _, c in means))
    frame = Frame((0, max(c.x[-1] for _, c in means)), (0, 1.02))
    ends = [(float(c.x[-1]), float(c.mean[-1]), g.index, g.label) for g, c in means]
    inner = (
        svg.axes(
            frame, f"virtual time, {unit.name}", "charge, %", unit.factor, PERCENT, [0, 0.25, 0.5, 0.75, 1]
        )
        + "".join(svg.line(frame, c.x, c.mean, g.index, "least", name) for g, c in least)
        + lines(frame, means, name)
        + svg.end_labels(frame, ends)
    )
    about = svg.describe([(g.label, float(c.mean[-1])) for g, c in means], percent)
    data = hover(frame, unit, "virtual time", Unit(PERCENT, "%"))
    caption = "Mean over devices; dashed, the emptiest device."
    return Figure(title, caption, svg.picture(inner, frame, title, about, name, data))


def local_steps(problem: Problem, name: str) -> Figure:
    """How many local steps a device did in a round."""
    title = "Local steps between global updates"
    curves = drawn(problem, lambda g: trace(g, "steps_mean"))
    if not curves:
        return Figure(title, "Not drawn: no steps were recorded.", "")
    top = max(float(c.high.max()) for _, c in curves)
    frame = Frame((0, max(c.x[-1] for _, c in curves)), (0, top * 1.08))
    ends = [(float(c.x[-1]), float(c.mean[-1]), g.index, g.label) for g, c in curves]
    inner = svg.axes(frame, "round", "steps τ, mean of the cohort") + lines(frame, curves, name)
    inner += svg.end_labels(frame, ends)
    about = svg.describe([(g.label, float(c.mean[-1])) for g, c in curves], digits)
    data = hover(frame, Unit(1, ""), "round", Unit(1, ""))
    return Figure(
        title, "More steps a round, fewer exchanges.", svg.picture(inner, frame, title, about, name, data)
    )
