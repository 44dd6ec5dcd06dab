"""Results on the terminal: figures with their bounds, then the tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eiffel.report.units import digits
from eiffel.reproduce.results import FAILS, HOLDS, MISSED, UNJUDGED, Judged, Result
from eiffel.reproduce.sims import Cluster, Sim
from eiffel.reproduce.tables import Table, table

MARKS = {HOLDS: "ok", FAILS: "FAILS", MISSED: "missed", UNJUDGED: "not judged"}


def result_text(result: Result, form: str) -> str:
    """Everything that a file of sims/ came to."""
    sim = result.sim
    lines = ["", f"== {sim.name}: {sim.title} ({form} form; {result.took(form)})", sim.shows, ""]
    lines += [f"! {name}: left out. {why}" for name, why in result.absent.items()]
    lines += [f"! failed: {why}" for why in result.broken]
    for each in tables_of(result):
        lines += [table_text(each), ""]
    lines += [line for figure in result.figures for line in figure_lines(figure)]
    lines += [f"remark: {remark}" for remark in result.remarks]
    return "\n".join(lines)


def tables_of(result: Result) -> list[Table]:
    """The views that a file asks for, data set by data set."""
    sim = result.sim
    if isinstance(sim, Cluster):
        return []
    return [
        table(view, name, measured, sim.seeds)
        for name, measured in result.measured.items()
        for view in sim.views
    ]


def figure_lines(figure: Judged) -> list[str]:
    """A figure in one line, and what there is to say about it below."""
    mark = MARKS.get(figure.state, "")
    bounds = " ".join(filter(None, [figure.bound, figure.bound_each and f"each {figure.bound_each}"]))
    parts = [
        f"{mark:>6}  {figure.name.replace('_', ' ')} [{figure.where}]: {value_text(figure)}",
        f"gate {bounds}" if bounds else "",
        f"expected {figure.expect}" if figure.expect else "",
        f"published {figure.published}" if figure.published else "",
    ]
    lines = ["; ".join(filter(None, parts))]
    lines += [f"       {words}" for words in (figure.why, figure.remark) if words]
    return lines


def value_text(figure: Judged) -> str:
    """The figure with its interval."""
    value = figure.value
    if not value.known:
        return "infinite" if value.mean == np.inf else "–"
    if np.isfinite(value.low) and value.low != value.high:
        return f"{digits(value.mean)} ({digits(value.low)} to {digits(value.high)})"
    return digits(value.mean)


def table_text(shown: Table) -> str:
    """A table in columns; * marks what cannot be told from the best of its column."""
    lines = [["", *shown.heads]]
    for name, cells in shown.rows:
        lines.append([name, *(c.text + ("*" if c.best else "") + _short(c.small) for c in cells)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    out = [f"{shown.title} ({shown.basis})"]
    for line in lines:
        out.append(
            "  ".join(
                c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
            )
        )
    return "\n".join([*out, *(f"- {s}" for s in shown.sentences)])


def _short(small: str) -> str:
    """The ratio or difference without its interval, which the page has."""
    return f" ({small.split(' (')[0]})" if small else ""


def listing(sims: Sequence[Sim | Cluster]) -> str:
    """What `--list` prints: name, times, number of judged figures, title."""
    rows = [["name", "short", "long", "gates", "what"]]
    for sim in sims:
        if isinstance(sim, Cluster):
            gates = sum(1 for f in sim.spec.get("figures", {}).values() if f.get("bound") or f.get("each"))
        else:
            gates = sum(1 for f in sim.figures if f.bound or f.each)
        rows.append(
            [sim.name, _time(sim.takes.get("short")), _time(sim.takes.get("long")), str(gates), sim.title]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _time(seconds: float | None) -> str:
    """Seconds or minutes, ? where nobody has measured them."""
    if seconds is None:
        return "?"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
