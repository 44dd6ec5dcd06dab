"""The tables of a result as data: rows of cells, who is level with the best, and that in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eiffel.report.units import digits, factor, signed
from eiffel.reproduce.measured import MORE_IS_BETTER, Interval, Measured, difference, ratio

Column = tuple[str, str]

COLUMNS: dict[str, tuple[Column, ...]] = {
    "fairness": (
        ("accuracy", "accuracy %"), ("variance", "variance x1e4"), ("worst10", "worst 10 %"),
        ("best10", "best 10 %"), ("jain", "Jain"), ("ema_accuracy", "+EMA accuracy"),
        ("ema_variance", "+EMA variance"), ("ema_worst10", "+EMA worst 10 %"),
    ),
    "communication": (
        ("bytes", "MB to target"), ("ema_bytes", "+EMA MB"), ("all_bytes", "MB of the run"),
        ("tau_mean", "mean local steps"), ("accuracy", "accuracy %"),
    ),
    "energy": (
        ("joules", "J to target"), ("ema_joules", "+EMA J"), ("seconds", "s to target"), ("ema_seconds", "+EMA s"),
        ("all_joules", "J of the run"), ("wasted", "of it wasted"), ("flat", "devices run flat"),
    ),
    "batteries": (
        ("flat", "devices run flat"), ("too_empty", "too empty for a task"), ("done", "rounds"),
        ("accuracy", "accuracy %"), ("variance", "variance x1e4"),
        ("worst10", "worst 10 %"), ("ema_accuracy", "+EMA accuracy"), ("ema_variance", "+EMA variance"),
        ("all_joules", "J of the run"), ("participation", "Jain of tasks"),
    ),
    "time": (
        ("wall", "s of the run"), ("wall_per_round", "s a round"), ("took_part", "devices that took part"),
        ("accuracy", "accuracy %"), ("variance", "variance x1e4"), ("all_bytes", "MB of the run"),
    ),
}  # fmt: skip
"""View to its columns: measure and heading."""

DECIDES = {
    "fairness": ("variance", "worst10", "accuracy"),
    "communication": ("bytes",),
    "energy": ("joules", "seconds"),
    "batteries": ("too_empty", "variance"),
    "time": (),
}
"""The measures of a view that are put in a sentence."""

WORDS = {
    "accuracy": "mean accuracy", "variance": "variance over devices", "worst10": "worst tenth",
    "bytes": "traffic to the target", "joules": "energy to the target", "seconds": "time to the target",
    "too_empty": "devices too empty for a task at the end",
}  # fmt: skip
IN_POINTS = (
    "accuracy",
    "worst10",
    "best10",
    "jain",
    "flat",
    "too_empty",
    "done",
    "participation",
    "took_part",
)


@dataclass(frozen=True)
class Cell:
    """A figure: its text, how it compares with ours, and whether it is level with the best of its column."""

    text: str
    small: str = ""
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A view of one data set."""

    title: str
    view: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    sentences: tuple[str, ...]
    basis: str


def table(view: str, name: str, measured: Measured, seeds: Sequence[int]) -> Table:
    """A view of what was measured on one data set."""
    columns = COLUMNS[view]
    level = {m: (leaders(measured, m)[1] if _decided(m) else set()) for m, _ in columns}
    rows = tuple(
        (run, tuple(_cell(measured, run, m, run in level[m]) for m, _ in columns)) for run in measured.runs
    )
    cost = view in ("communication", "energy")
    goal = (
        f"target {100 * measured.goal():.1f} %, {100 * measured.share:g} % of {_of(measured)}'s; "
        if cost
        else ""
    )
    basis = f"{goal}seeds {', '.join(map(str, seeds))}"
    sentences = tuple(filter(None, (sentence(measured, m) for m in DECIDES[view])))
    return Table(f"{name}: {view}", view, tuple(h for _, h in columns), rows, sentences, basis)


def _of(measured: Measured) -> str:
    return measured.best("accuracy") if measured.of == "best" else measured.of


def _decided(measure: str) -> bool:
    """Whether a column has a best at all."""
    return measure not in ("done", "tau_mean", "took_part", "wasted", "all_bytes", "wall", "wall_per_round")


def bare(measure: str) -> str:
    """The measure without the model it is taken from."""
    return measure.removeprefix("ema_").removeprefix("last_")


def compared(measured: Measured, run: str, measure: str, with_: str) -> Interval:
    """A run against another: in points where that says more, else as a ratio."""
    a, b = measured.figures(run, measure), measured.figures(with_, measure)
    return difference(a, b) if bare(measure) in IN_POINTS else ratio(a, b)


def leaders(measured: Measured, measure: str) -> tuple[str, set[str]]:
    """The run with the best mean, and the runs that cannot be told from it over these seeds (it included)."""
    sign = -1.0 if bare(measure) in MORE_IS_BETTER else 1.0
    means = {run: sign * float(measured.figures(run, measure).mean()) for run in measured.runs}
    known = {run: mean for run, mean in means.items() if np.isfinite(mean)}
    if not known:
        return "", set()
    first = min(known, key=lambda run: known[run])
    none = 0.0 if bare(measure) in IN_POINTS else 1.0
    level = {first}
    for run in known:
        gap = compared(measured, run, measure, first)
        if not np.isfinite(gap.low) or gap.low <= none <= gap.high or gap.mean == none:
            level.add(run)
    return first, level


def sentence(measured: Measured, measure: str) -> str:
    """Who leads by a measure, if anybody does outside the noise."""
    first, level = leaders(measured, measure)
    if not first or len(measured.runs) < 2:
        return "" if first else f"{WORDS[measure]}: no run reached the target on every seed"
    own = {run: digits(float(measured.figures(run, measure).mean())) for run in measured.runs}
    said = f"{WORDS[measure]}: "
    ours = measured.ours
    if len(next(iter(measured.runs.values()))) < 2:
        return (
            said + f"{first} {own[first]}, ours ({ours}) {own[ours]}; one seed, so nothing can be told apart"
        )
    if level == {first}:
        second = "" if first == ours else f"; ours ({ours}) {own[ours]}"
        return said + f"{first} ({own[first]}) is ahead of all others, outside the noise{second}"
    names = ", ".join(f"{run} {own[run]}" for run in sorted(level, key=lambda r: r != first))
    behind = "" if ours in level else f"; ours ({ours}, {own[ours]}) is behind, outside the noise"
    return said + f"no winner: {names} lie within each other's noise{behind}"


def _cell(measured: Measured, run: str, measure: str, best: bool) -> Cell:
    figures = measured.figures(run, measure)
    reached = int(np.isfinite(figures).sum())
    if not reached:
        return Cell(
            "–", f"0 of {figures.size} seeds" if bare(measure) in ("bytes", "joules", "seconds") else ""
        )
    if reached < figures.size:
        return Cell("–", f"{reached} of {figures.size} seeds")
    mean = float(figures.mean())
    shown = f"{mean:.1f}" if bare(measure) in ("accuracy", "worst10", "best10") else digits(mean)
    if run == measured.ours or not _decided(measure) or len(measured.runs) < 2:
        return Cell(shown, "", best)
    return Cell(shown, against(compared(measured, run, measure, measured.ours), bare(measure)), best)


def against(gap: Interval, measure: str) -> str:
    """A comparison with ours in a few signs: +0.9 (+0.4 to +1.3), or 2.1x (1.7 to 2.6)."""
    if not gap.known:
        return ""
    if measure in IN_POINTS:
        places = 3 if measure in ("jain", "participation") else 1
        return signed(gap.mean, places) + (
            f" ({signed(gap.low, places)} to {signed(gap.high, places)})" if np.isfinite(gap.low) else ""
        )
    ends = f" ({factor(gap.low)} to {factor(gap.high)})" if np.isfinite(gap.low) and gap.low > 0 else ""
    return f"{factor(gap.mean)}x{ends}" if gap.mean > 0 else ""
