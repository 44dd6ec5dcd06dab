"""Who sat where when: a lane for every node, a bar for every sitting; for big clusters, how full the nodes were."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape

import numpy as np

from eiffel.core.model import Floats
from eiffel.report import svg
from eiffel.report.charts import Figure
from eiffel.report.cluster_folder import Saved
from eiffel.report.svg import Frame
from eiffel.report.units import digits, fitting, plural

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 1140.0, 78.0, 14.0, 16.0, 36.0
MOST_GPUS = 420
"""Devices up to which every one has a row of its own."""
LANES = 32
"""Most lanes of a cluster beyond that."""
GAP = 3.0
BIN = 4.0
"""Pixels of a bin, where shares are drawn."""
SHADES = 8


@dataclass(frozen=True, slots=True)
class Lane:
    """A node, or several alike: pixels of its top and of a device's row, and what it is."""

    top: float
    row: float
    devices: int
    label: str

    @property
    def height(self) -> float:
        """Pixels across."""
        return self.row * self.devices


def gantt(run: Saved, end: float, name: str, limit: float = np.nan) -> Figure:
    """The sittings of a run on a time axis from 0 to `end` (s). limit: s, where no schedule ends before."""
    gpus = sum(devices for _, devices in run.nodes)
    single = gpus <= MOST_GPUS
    lanes = _lanes(run, gpus) if single else _bundles(run)
    floor = lanes[-1].top + lanes[-1].height + GAP if lanes else TOP
    frame = Frame((0, end), (0, 1), WIDTH, floor + BOTTOM, LEFT, RIGHT, TOP, BOTTOM)
    unit = fitting("seconds", end)
    at = svg.unit_ticks(frame.x, unit.factor, 10)
    inner = _names(lanes, frame) + (_bars(run, lanes, frame) if single else _shares(run, lanes, frame))
    inner += svg.x_axis(frame, at, svg.tick_text(at, unit.factor), f"time, {unit.name}")
    inner += _limit(frame, limit)
    many = (len(run.sittings["job"]), "sitting"), (run.jobs_count, "job"), (len(run.nodes), "node")
    about = "{} of {} on {}".format(*(plural(*m) for m in many))
    how = (
        "A row per GPU, a colour per job; pale: idle. Point at a bar for its job."
        if single
        else f"{plural(len(lanes), 'lane')} of several nodes; the darker, the more of their GPUs are held."
    )
    return Figure(
        f"{run.strategy}: {about}",
        f"{how} Seed {run.seed}.",
        svg.picture(inner, frame, run.strategy, about, name),
    )


def _lanes(run: Saved, gpus: int) -> list[Lane]:
    """A lane for every node."""
    row = min(9.0, max(2.0, 330 / max(1, gpus)))
    lanes, top, count = [], TOP, dict.fromkeys(run.types, 0)
    for kind, devices in run.nodes:
        lanes.append(Lane(top, row, devices, f"{kind} {count[kind]}"))
        count[kind] += 1
        top += row * devices + GAP
    return lanes


def _bundles(run: Saved) -> list[Lane]:
    """Lanes of several nodes of one type each; `devices` is 1, for they have but one row."""
    size = -(-len(run.nodes) // LANES)
    lanes, top = [], TOP
    for first, last, kind in _bundle_ends(run, size):
        lanes.append(Lane(top, 10.0, 1, f"{kind} {first}–{last - 1}"))
        top += 10.0 + 1
    return lanes


def _bundle_ends(run: Saved, size: int) -> Iterator[tuple[int, int, str]]:
    """First and last (exclusive) node of every bundle, and its type."""
    first = 0
    for node in range(1, len(run.nodes) + 1):
        over = node == len(run.nodes) or run.nodes[node][0] != run.nodes[first][0]
        if over or node - first == size:
            yield first, node, run.nodes[first][0]
            first = node


def _names(lanes: Iterable[Lane], frame: Frame) -> str:
    """The lanes' grounds and names; names only where they have room."""
    out, free = [], -np.inf
    for lane in lanes:
        out.append(svg.rect(frame.left, lane.top, frame.end - frame.left, lane.height, "shade"))
        middle = lane.top + lane.height / 2
        if middle - free >= 10:
            out.append(svg.text(frame.left - 6, middle + 3.5, svg.short(lane.label, 13), "tick", "end"))
            free = middle
    return "".join(out)


def _limit(frame: Frame, limit: float) -> str:
    """A dashed line where no schedule ends before."""
    if not np.isfinite(limit) or limit > frame.x[1]:
        return ""
    x = float(frame.px(limit))
    line = f'<line class="target" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top - 4:g}" y2="{frame.floor:g}"/>'
    return line + svg.text(x - 4, frame.top - 5, "no schedule ends before", "note", "end")


Bar = tuple[float, float, float, float]
"""x, y, width, height in pixels."""


def _bars(run: Saved, lanes: list[Lane], frame: Frame) -> str:
    """One path for every job, in its colour."""
    s, bars = run.sittings, dict[int, list[Bar]]()
    left = np.round(2 * frame.px(s["start"])) / 2
    right = np.round(2 * frame.px(s["end"])) / 2
    seats = [_Seats(lane.devices) for lane in lanes]
    for i in np.lexsort((s["end"], s["start"])):
        node, job = int(s["node"][i]), int(s["job"][i])
        rows = seats[node].take(job, int(s["count"][i]), float(s["start"][i]), float(s["end"][i]))
        if right[i] > left[i]:
            lane, width = lanes[node], float(right[i] - left[i])
            bars.setdefault(job, []).extend(
                (float(left[i]), lane.top + lane.row * a, width, lane.row * (b - a))
                for a, b in _stretches(rows)
            )
    return "".join(
        f'<path class="job" fill="{_colour(job)}" d="{_path(_joined(found))}"><title>{_tip(run, job)}</title></path>'
        for job, found in sorted(bars.items())
    )


class _Seats:
    """The devices of a node: which row of the chart a sitting takes."""

    def __init__(self, devices: int) -> None:
        self.free_at = np.full(devices, -np.inf)
        self.last: dict[int, list[int]] = {}

    def take(self, job: int, count: int, start: float, end: float) -> list[int]:
        """Rows for a sitting: those the job had before if they are free, else the lowest that are."""
        had = self.last.get(job, [])
        free = np.flatnonzero(self.free_at <= start + 1e-6).tolist()
        rows = had if len(had) == count and set(had) <= set(free) else free[:count]
        if len(rows) < count:  # clocks differ in the last bit: then those that are free soonest
            rows = np.argsort(self.free_at, kind="stable")[:count].tolist()
        rows = sorted(rows)
        self.free_at[rows] = end
        self.last[job] = rows
        return rows


def _stretches(rows: list[int]) -> Iterator[tuple[int, int]]:
    """Runs of neighbouring rows, as (first, last + 1)."""
    start = rows[0]
    for row, after in zip(rows, [*rows[1:], -1], strict=True):
        if after != row + 1:
            yield start, row + 1
            start = after


def _joined(bars: list[Bar]) -> Iterator[Bar]:
    """Bars that touch end to end become one."""
    bars = sorted(bars, key=lambda b: (b[1], b[3], b[0]))
    held = bars[0]
    for bar in bars[1:]:
        if (bar[1], bar[3]) == (held[1], held[3]) and abs(held[0] + held[2] - bar[0]) < 0.01:
            held = (held[0], held[1], held[2] + bar[2], held[3])
        else:
            yield held
            held = bar
    yield held


def _path(bars: Iterable[Bar]) -> str:
    """Rectangles as one path."""
    return "".join(f"M{x:g} {y:.4g}h{w:g}v{h:.4g}h-{w:g}z" for x, y, w, h in bars)


def _colour(job: int) -> str:
    """A hue for every job, neighbours far apart, that is seen on light and dark ground."""
    return f"hsl({job * 137.508 % 360:.0f} {48 + 14 * (job % 2)}% {50 + 7 * (job % 3)}%)"


def _tip(run: Saved, job: int) -> str:
    """What shows when a bar is pointed at."""
    name, model = run.jobs["id"][job], run.jobs["model"][job]
    gang, finish, arrival = (float(run.jobs[k][job]) for k in ("gang", "finish", "arrival"))
    took = f", done in {digits((finish - arrival) / 3600)} h" if np.isfinite(finish) else ", not done"
    return escape(f"job {name}{f' ({model})' if model else ''}: {plural(int(gang), 'GPU')}{took}")


def _shares(run: Saved, lanes: list[Lane], frame: Frame) -> str:
    """Shares of the devices of each bundle that are held, in shades."""
    bins = int((frame.end - frame.left) / BIN)
    edges = np.linspace(0, frame.x[1], bins + 1)
    s, marks = run.sittings, dict[int, list[Bar]]()
    size = -(-len(run.nodes) // LANES)
    for lane, (first, last, _) in zip(lanes, _bundle_ends(run, size), strict=True):
        here = (s["node"] >= first) & (s["node"] < last)
        held = held_between(edges, s["start"][here], s["end"][here], s["count"][here])
        share = held / sum(devices for _, devices in run.nodes[first:last])
        shade = np.ceil(np.clip(share, 0, 1) * SHADES - 1e-9).astype(int)
        for k in np.flatnonzero(shade):
            bar = (frame.left + BIN * int(k), lane.top, BIN, lane.height)
            marks.setdefault(int(shade[k]), []).append(bar)
    return "".join(
        f'<path class="held" fill-opacity="{level / SHADES:g}" d="{_path(_joined(found))}"/>'
        for level, found in sorted(marks.items())
    )


def held_between(edges: Floats, start: Floats, end: Floats, count: Floats) -> Floats:
    """(B,) mean devices held in each of B bins by sittings (start, end in s, count devices)."""

    def area(moments: Floats) -> Floats:
        """Sum over sittings of count x (edge - moment), where positive, at every edge."""
        order = np.argsort(moments)
        n = np.concatenate([[0.0], np.cumsum(count[order])])
        first = np.concatenate([[0.0], np.cumsum(count[order] * moments[order])])
        upto = np.searchsorted(moments[order], edges)
        return np.asarray(edges * n[upto] - first[upto])

    return np.asarray(np.diff(area(start) - area(end)) / np.diff(edges))
