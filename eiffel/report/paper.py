"""The page's charts for a paper: SVG and PDF, one column wide, colour-blind safe. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from eiffel.report.compare import table_rows
from eiffel.report.gather import (
    COSTS,
    Curve,
    Group,
    Problem,
    curve,
    lorenz,
    problems,
    sorted_accuracy,
    trace,
)
from eiffel.report.page import SHARE
from eiffel.report.read import find, load
from eiffel.report.units import Unit, fitting, percent
from eiffel.report.verdict import COST_NAMES

COLOURS = ("#56606c", "#0b62c4", "#c2480a", "#00795a", "#a8377f", "#866500", "#6a4fc0", "#2b7f95")
DASHES = ("-", "--", ":")
WIDTH, HEIGHT = 3.35, 2.3
"""Inches: one column of a two-column paper."""

STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e6e9",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "legend.handlelength": 1.4,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "eiffel",
}

Plain = Unit(1, "")
Percent = Unit(0.01, "%")


def figures(
    runs: Sequence[Path], folder: Path, share: float = SHARE, target: float | None = None
) -> list[Path]:
    """Draw the charts of these runs into `folder` as NAME.svg and NAME.pdf; return the files written.

    Raises ImportError, saying what to install, where matplotlib is missing; ValueError where no run has results.
    """
    found = problems([load(path) for path in find(runs)])
    if not found:
        raise ValueError(f"none of {', '.join(map(str, runs)) or 'no runs'} has an evaluation to draw")
    Path(folder).mkdir(parents=True, exist_ok=True)
    written = []
    for number, problem in enumerate(found):
        prefix = f"{number + 1}-" if len(found) > 1 else ""
        aim = problem.target(share) if target is None else target
        for name, draw in _charts(problem, aim).items():
            written += _save(draw, Path(folder) / f"{prefix}{name}")
    return written


Draw = Callable[[Any], None]


def _charts(problem: Problem, aim: float) -> dict[str, Draw]:
    """What to draw, by file name; a chart that has no data is not drawn."""
    metric = f"{problem.metric} (%)"
    charts: dict[str, Draw] = {}

    def lines(
        name: str, of: Callable[[Group], Curve], x: tuple[str, Unit], y: tuple[str, Unit], **more: Any
    ) -> None:
        curves = [(group, c) for group in problem.groups if (c := of(group)).x.size]
        if curves:
            charts[name] = lambda ax: _lines(ax, curves, x, y, **more)

    for cost, key in COSTS.items():
        most = max(float(run.column(key)[-1]) for group in problem.groups for run in group.runs)
        unit = fitting(cost, most)
        x = f"{COST_NAMES[cost]} ({unit.name})", unit
        line = partial(curve, key="accuracy", against=key)
        lines(f"{problem.metric}-{cost}", line, x, (metric, Percent), at=aim)
        if cost == "seconds":
            lines("battery", lambda g: trace(g, "battery_mean", "total_s"), x, ("mean charge (%)", Percent))
    rounds, share = ("round", Plain), ("devices (%)", Plain)
    lines("devices", sorted_accuracy, ("devices, worst first (%)", Plain), (metric, Percent))
    lines(
        "variance", lambda g: curve(g, "variance", "round"), rounds, ("variance over devices (×10⁻⁴)", Plain)
    )
    lines("participation", lorenz, share, ("share of tasks (%)", Plain), zero=True)
    lines("steps", lambda g: trace(g, "steps_mean"), rounds, ("local steps τ", Plain), zero=True)
    charts["energy"] = lambda ax: _energy(ax, problem, aim)
    return charts


def _lines(
    ax: Any,
    curves: Sequence[tuple[Group, Curve]],
    x: tuple[str, Unit],
    y: tuple[str, Unit],
    at: float | None = None,
    zero: bool = False,
) -> None:
    """Means over seeds with the range of the seeds."""
    for group, c in curves:
        colour, dash = COLOURS[group.index % len(COLOURS)], DASHES[group.index // len(COLOURS) % len(DASHES)]
        xs = c.x / x[1].factor
        ax.plot(xs, c.mean / y[1].factor, color=colour, linestyle=dash, label=group.label)
        if len(group.runs) > 1:
            ax.fill_between(
                xs, c.low / y[1].factor, c.high / y[1].factor, color=colour, alpha=0.15, linewidth=0
            )
    if at is not None:
        ax.axhline(at / y[1].factor, color="#8b949e", linestyle=(0, (4, 3)), linewidth=0.8, zorder=1)
    if zero:
        ax.set_ylim(bottom=0)
    ax.set_xlabel(x[0])
    ax.set_ylabel(y[0])
    if len(curves) > 1:
        ax.legend()


def _energy(ax: Any, problem: Problem, aim: float) -> None:
    """Joules to the target, from zero; a strategy of which a seed never got there has no bar."""
    rows = [row for row in table_rows(problem, aim) if not row.note]
    costs = [row.cost["joules"] for row in rows]
    unit = fitting("joules", max((c.mean for c in costs if c.mean == c.mean), default=1.0))
    for place, (row, cost) in enumerate(zip(rows, costs, strict=True)):
        if cost.mean == cost.mean:
            ends = [[(cost.mean - cost.low) / unit.factor], [(cost.high - cost.mean) / unit.factor]]
            colour = COLOURS[row.group.index % len(COLOURS)]
            ax.barh(
                place,
                cost.mean / unit.factor,
                xerr=ends,
                color=colour,
                height=0.6,
                error_kw={"linewidth": 0.8},
            )
    ax.set_yticks(range(len(rows)), [row.group.label for row in rows])
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"energy to {percent(aim)} ({unit.name})")


def _save(draw: Draw, stem: Path) -> list[Path]:
    """Draw one chart and write it in both formats, without dates so that files can be compared."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib; install it with: pip install 'eiffel-fl[sim]'") from error
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        draw(figure.add_subplot())
        files = [stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "pdf")]
        figure.savefig(files[0], metadata={"Date": None})
        figure.savefig(files[1], metadata={"CreationDate": None})
    return files
