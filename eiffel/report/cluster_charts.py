"""The charts of the page on clusters: how full it was, how many waited and for what, how long jobs took."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from eiffel.core.model import Floats
from eiffel.report import svg
from eiffel.report.charts import PERCENT, Figure, hover
from eiffel.report.cluster_folder import REASONS, Columns, Saved
from eiffel.report.cluster_gather import Rival, Workload
from eiffel.report.svg import LANE, Frame
from eiffel.report.units import Unit, digits, fitting, percent

BINS = 120
CUT = 0.98
"""Distributions are drawn up to this quantile of the slowest policy: tails can be a hundred times longer."""
WHY = {
    "no_room": (1, "jobs that go first hold the GPUs"),
    "price": (2, "the price is above what it is worth"),
    "behind": (3, "an earlier job blocks the queue"),
    "fragmented": (4, "free GPUs, but not on one node"),
    "share": (6, "it has had its share"),
    "unsolved": (7, "not in the last allocation"),
    "too_large": (5, "larger than the cluster"),
    "unrunnable": (0, "runs on no device type"),
}
"""Colour and words of every reason to wait."""

Line = tuple[Rival, Floats, Floats, Floats]
"""A policy with mean, lowest and highest seed over the bins."""


def end_of(workload: Workload) -> float:
    """When the last run of all ended (s)."""
    return max(
        (
            float(np.max(r.timeline["time"] + r.timeline["seconds"], initial=1.0))
            for v in workload.rivals
            for r in v.runs
        ),
        default=1.0,
    )


def utilisation(workload: Workload, name: str) -> Figure:
    """Share of all GPUs that do steps, over time."""

    def share(run: Saved) -> Floats:
        line = run.timeline
        useful = sum(
            (line[f"useful.{kind}"].astype(float) for kind in run.types), np.zeros(len(line["time"]))
        )
        return useful / sum(devices for _, devices in run.nodes)

    title, caption = (
        "GPUs at work",
        "Share of all GPUs in which steps are done; restarts and idle GPUs do not count.",
    )
    return _over_time(workload, share, title, caption, Unit(PERCENT, "%"), name, top=1.0)


def waiting(workload: Workload, name: str) -> Figure:
    """Jobs that wait, over time."""

    def jobs(run: Saved) -> Floats:
        return np.asarray(run.timeline["waiting"] * run.timeline["seconds"], float)

    return _over_time(workload, jobs, "Jobs waiting", "", Unit(1, "jobs"), name)


def _over_time(
    workload: Workload, of: Callable[[Saved], Floats], title: str, caption: str, unit: Unit, name: str,
    top: float | None = None,
) -> Figure:  # fmt: skip
    """A figure of the timeline that adds up within a decision's stretch, averaged over bins of time."""
    end = end_of(workload)
    edges = np.linspace(0, end, BINS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    lines: list[Line] = []
    for rival in workload.rivals:
        seeds = np.array([binned(run.timeline, of(run), edges) for run in rival.runs])
        lines.append((rival, seeds.mean(axis=0), seeds.min(axis=0), seeds.max(axis=0)))
    most = top or max(float(high.max()) for _, _, _, high in lines) * 1.05 or 1.0
    frame, clock = Frame((0, end), (0, most), right=14), fitting("seconds", end)
    inner = svg.axes(
        frame,
        f"time, {clock.name}",
        f"{title}, {unit.name}".removesuffix(", jobs"),
        clock.factor,
        unit.factor,
    )
    inner += "".join(svg.band(frame, middle, low, high, r.index, name) for r, _, low, high in lines)
    inner += "".join(svg.line(frame, middle, mean, r.index, "", name, r.label) for r, mean, _, _ in lines)
    about = "; ".join(f"{r.label}: {unit.text(float(mean.mean()))} on average" for r, mean, _, _ in lines)
    data = hover(frame, clock, "time", unit)
    return Figure(title, caption, svg.picture(inner, frame, title, about, name, data))


def binned(line: Columns, amount: Floats, edges: Floats) -> Floats:
    """(B,) mean over each bin of a rate, given how much of it each decision's stretch had (amount, (T,))."""
    if not len(amount):
        return np.zeros(len(edges) - 1)
    knots = np.column_stack([line["time"], line["time"] + line["seconds"]]).ravel()
    so_far = np.cumsum(amount)
    sums = np.column_stack([so_far - amount, so_far]).ravel()
    return np.asarray(np.diff(np.interp(edges, knots, sums)) / np.diff(edges))


def completion(workload: Workload, name: str) -> Figure:
    """Distribution of job completion times."""
    return _distribution(
        workload, lambda j: j["finish"] - j["arrival"], "Job completion time", "seconds", "jct_mean", name
    )


def queueing(workload: Workload, name: str) -> Figure:
    """Distribution of queueing."""
    return _distribution(
        workload,
        lambda j: np.maximum(j["finish"] - j["arrival"] - j["ran"], 0),
        "Queueing",
        "seconds",
        "queue_mean",
        name,
    )


def fairness(workload: Workload, name: str) -> Figure:
    """Distribution of finish-time fairness."""
    return _distribution(
        workload, lambda j: (j["finish"] - j["arrival"]) / np.where(j["isolated_s"] > 0, j["isolated_s"], np.nan),
        "Finish-time fairness", "plain", "rho_mean", name,
    )  # fmt: skip


def _distribution(
    workload: Workload, of: Callable[[Columns], Floats], title: str, kind: str, mean: str, name: str
) -> Figure:
    """Shares of the jobs that ended, of all seeds, against a figure of each job."""
    values = [(rival, rival.pooled([of(run.jobs) for run in rival.runs])) for rival in workload.rivals]
    values = [(rival, v) for rival, v in values if len(v)]
    if not values:
        return Figure(title, "Not drawn: no job ended.", "")
    most = max(float(np.quantile(v, CUT)) for _, v in values) or 1.0
    unit = fitting(kind, most)
    frame = Frame((0, most), (0, 1), right=14)
    x_word = title.lower() + (f", {unit.name}" if unit.name else " (1: as in a part of its own)")
    inner = svg.axes(frame, x_word, "jobs, %", unit.factor, PERCENT, [0, 0.25, 0.5, 0.75, 1])
    share = np.linspace(0, 1, 201)
    for rival, v in values:
        inner += svg.line(frame, np.quantile(v, share), share, rival.index, "", name, rival.label)
    named = [(r.index, f"{r.label}  {digits(r.mean(mean))}") for r, _ in values]
    # In the lower right corner, below the curves, that rise early and end at the top.
    inner += svg.key(frame, named, frame.end - 4, frame.floor - 13.5 * len(named) + 4, "end")
    longest = max(float(v[-1]) for _, v in values)
    cut = (
        f" Cut at the {CUT:.0%} quantile of the slowest; the longest is {unit.text(longest)}."
        if longest > most
        else ""
    )
    about = "; ".join(f"{r.label}: median {unit.text(float(np.median(v)))}" for r, v in values)
    data = hover(frame, unit, title.lower(), Unit(PERCENT, "%"))
    caption = f"Share of the jobs at or below; beside the names, the mean{' (h)' if kind == 'seconds' else ''}.{cut}"
    return Figure(title, caption, svg.picture(inner, frame, title, about, name, data))


def reasons(workload: Workload, name: str) -> Figure:
    """Hours that a job waited on average, by reason."""
    title = "What jobs waited for"
    bars = [(rival, _waited(rival)) for rival in workload.rivals]
    most = max(sum(by.values()) for _, by in bars)
    if not most > 0:
        return Figure(title, "Not drawn: no job waited.", "")
    unit = fitting("seconds", most)
    frame = Frame((0, most), (0, 1), height=LANE * len(bars) + 48, left=6, right=14, top=4)
    at = svg.unit_ticks(frame.x, unit.factor)
    inner, about = svg.x_axis(frame, at, svg.tick_text(at, unit.factor), f"mean of the jobs, {unit.name}"), []
    for (rival, by), y in zip(bars, svg.lanes(len(bars)), strict=True):
        whole, x = sum(by.values()), 0.0
        main = max(by, key=lambda reason: by[reason]) if by else ""
        words = f"{unit.text(whole)}, {percent(by[main] / whole, 0)} {main.replace('_', ' ')}" if by else "0"
        inner += svg.named(frame.left, y - 6, svg.short(rival.label, 24), words, rival.index)
        for reason, seconds in by.items():
            a, b = map(float, frame.px([x, x + seconds]))
            tip = f"{WHY[reason][1]}: {unit.text(seconds)}, {percent(seconds / whole)}"
            inner += svg.rect(a, y - 1, b - a, svg.THICK, f"bar c{WHY[reason][0]}", tip)
            x += seconds
        about.append(f"{rival.label}: " + ", ".join(f"{WHY[r][1]} {unit.text(s)}" for r, s in by.items()))
    return Figure(title, "", svg.picture(inner, frame, title, "; ".join(about), name))


def legend(workload: Workload) -> list[tuple[int, str]]:
    """Colour and words of the reasons that occur."""
    seen = {reason for rival in workload.rivals for reason, s in _waited(rival).items() if s > 0}
    return [WHY[reason] for reason in WHY if reason in seen]


def _waited(rival: Rival) -> dict[str, float]:
    """Seconds a job waited on average, by reason, mean over seeds; most first by the order of WHY."""

    def mean(run: Saved, reason: str) -> float:
        return float(np.mean(run.jobs[f"waited.{reason}"])) if len(run.jobs["job"]) else 0.0

    found = {r: float(np.mean([mean(run, r) for run in rival.runs])) for r in WHY if r in REASONS}
    return {reason: seconds for reason, seconds in found.items() if seconds > 0}


def every(workload: Workload, name: str) -> list[tuple[str, Sequence[Figure]]]:
    """All charts but the Gantt charts, in rows with a heading each."""
    used = [
        utilisation(workload, f"{name}-used"),
        waiting(workload, f"{name}-waiting"),
        reasons(workload, f"{name}-why"),
    ]
    took = [
        completion(workload, f"{name}-jct"),
        queueing(workload, f"{name}-queue"),
        fairness(workload, f"{name}-ftf"),
    ]
    return [("How long jobs took", took), ("How full the cluster was, and who waited", used)]
