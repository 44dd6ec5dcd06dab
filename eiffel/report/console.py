"""The comparison as text for a terminal: the same figures as the page's table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eiffel.report.compare import Row, seeds_text, table_rows
from eiffel.report.gather import COSTS, Problem, problems
from eiffel.report.page import SHARE
from eiffel.report.read import find, load
from eiffel.report.units import digits, factor, percent, plural
from eiffel.report.verdict import COST_NAMES, unit_of


def table(runs: Sequence[Path], share: float = SHARE, target: float | None = None) -> str:
    """Compare runs (folders of runs, or of sweeps) in a few lines of text; see `eiffel.report.page.report`."""
    found = [load(path) for path in find(runs)]
    parts = [_problem(problem, share, target) for problem in problems(found)]
    trouble = [f"! {run.problem}" for run in found if run.problem]
    return "\n\n".join([*(parts or ["no run has results yet"]), *(["\n".join(trouble)] if trouble else [])])


def _problem(problem: Problem, share: float, target: float | None) -> str:
    """One data set and fleet."""
    aim = problem.target(share) if target is None else target
    rows = table_rows(problem, aim)
    own = f"{100 * share:g} % of {problem.groups[0].label}'s own" if target is None else "as given"
    head = (
        f"{problem.title}: {plural(problem.devices, 'device')}, {seeds_text(problem.groups)}, "
        f"target {percent(aim)} {problem.metric} ({own})"
    )
    notes = (
        "variance x1e4 over devices; in brackets: first strategy's cost over this one's, above 1 is cheaper"
    )
    return "\n".join([head, "", *aligned(_cells(rows, problem)), notes])


def _cells(rows: Sequence[Row], problem: Problem) -> list[list[str]]:
    """The head and a list of cells for each row."""
    units = {cost: unit_of(rows, cost) for cost in COSTS}
    costs = [f"{units[cost].name} to target" for cost in COST_NAMES]
    out = [["strategy", problem.metric, "variance", "worst 10 %", "best 10 %", *costs, "reached"]]
    for row in rows:
        out.append(
            [
                f"  {row.note}" if row.note else row.group.label,
                percent(row.figures["accuracy"].mean),
                digits(row.figures["variance"].mean),
                percent(row.figures["worst10"].mean),
                percent(row.figures["best10"].mean),
                *(units[cost].number(row.cost[cost].mean) + _ratio(row, cost) for cost in COSTS),
                f"{row.reached}/{len(row.group.runs)}",
            ]
        )
    return out


def _ratio(row: Row, cost: str) -> str:
    """The ratio to the first strategy, in brackets."""
    ratio = row.ratio.get(cost, (np.nan,))[0]
    return f" ({factor(ratio)}x)" if np.isfinite(ratio) else ""


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns padded to the widest cell: the first to the left, the others to the right; a rule below the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:], ""]
