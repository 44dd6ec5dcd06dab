"""The page's part on clusters: figures beside their physical limits, who sat where, how long jobs took."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from eiffel.report import cluster_charts as charts
from eiffel.report import page, svg, verdict
from eiffel.report.cluster_folder import Saved
from eiffel.report.cluster_gantt import gantt
from eiffel.report.cluster_gather import Rival, Workload, seeds_text, workloads
from eiffel.report.cluster_table import COLUMNS, LIMITED, Column, complaints, facts
from eiffel.report.read import section
from eiffel.report.units import digits, factor, plural, times

FULL = 8
"""Most Gantt charts of a workload."""


def part(runs: Sequence[Saved], home: Path, first: int = 0) -> page.Part:
    """The part of the page over these runs. first: index of the first colour."""
    found = workloads(runs, first)
    series = {rival.index: rival.label for workload in found for rival in workload.rivals}
    sections = "".join(_workload(workload, f"w{i}") for i, workload in enumerate(found))
    body = page.trouble(complaints(runs, found)) + sections
    return page.Part(_title(found), len(runs), tuple(series.items()), body, _footer(runs, home))


def _title(found: Sequence[Workload]) -> str:
    """What is compared on what."""
    names = list(dict.fromkeys(rival.label for workload in found for rival in workload.rivals))
    where = ", ".join(workload.title for workload in found)
    if not names:
        return "No run of a cluster has results yet"
    if len(names) > 4:
        return f"{len(names)} policies: {where}"
    return f"{' against '.join(names) if len(names) == 2 else ', '.join(names)}: {where}"


def _workload(workload: Workload, name: str) -> str:
    """One trace and cluster: statement, table, charts."""
    rows = "".join(
        f'<h3>{escape(heading)}</h3><div class="row">{"".join(map(page.figure, figures))}</div>'
        for heading, figures in charts.every(workload, name)
    )
    basis = f'<p class="basis">{escape(_basis(workload))}</p>'
    return (
        f'<section aria-label="{escape(workload.title)}"><h2>{escape(workload.title)}</h2>'
        f'<p class="facts">{escape(facts(workload))}</p>{_sentence(workload)}{_table(workload)}'
        f"{rows}{_legend(workload)}{basis}{_gantts(workload, name)}</section>"
    )


def _basis(workload: Workload) -> str:
    """What the charts are made of."""
    if max(len(rival.runs) for rival in workload.rivals) == 1:
        return "One seed, so no bands."
    return (
        "Lines: mean over seeds, bands: lowest to highest seed; distributions: all seeds together. "
        f"{seeds_text(workload.rivals).capitalize()}."
    )


def _legend(workload: Workload) -> str:
    """Colours of the reasons to wait."""
    words = "".join(
        f'<span class="why c{colour}">{escape(said)}</span>' for colour, said in charts.legend(workload)
    )
    return f'<p class="whys">Waited for: {words}</p>' if words else ""


def _sentence(workload: Workload) -> str:
    """Who ended first, and whose jobs took least, against the limits and the first policy."""
    if len(workload.rivals) < 2:
        return ""
    ends = min(workload.rivals, key=lambda r: _known(r.mean("ttd")))
    quick = min(workload.rivals, key=lambda r: _known(r.mean("jct_mean")))
    words = (
        f"First to end: <b>{escape(ends.label)}</b>, {digits(ends.mean('ttd'))} h{_off(ends, 'ttd')}. "
        f"Shortest mean completion time: <b>{escape(quick.label)}</b>, {digits(quick.mean('jct_mean'))} h"
        f"{_off(quick, 'jct_mean')}."
    )
    return f'<p class="lead">{words}</p>'


def _known(value: float) -> float:
    """A figure to sort by: what is not known comes last."""
    return value if np.isfinite(value) else np.inf


def _off(rival: Rival, name: str) -> str:
    """How far from the limit."""
    ratio = rival.ratio(name)
    return f" ({factor(ratio)} times the limit)" if np.isfinite(ratio) else ""


def _table(workload: Workload) -> str:
    """The comparison: figures, times the limit, ratios to the first policy; the limits in a line of their own."""
    heads = [
        "policy",
        *(f'<span title="{escape(c.meaning)}">{escape(c.head)}</span>{_unit(c)}' for c in COLUMNS),
    ]
    head = "".join(f'<th scope="col">{h}</th>' for h in heads)
    body = "".join(_line(workload, rival) for rival in workload.rivals)
    limits = [workload.limit(c.name) if c.name in LIMITED else np.nan for c in COLUMNS]
    if np.isfinite(limits).any():
        cells = "".join(
            f"<td>{c.text(v) if np.isfinite(v) else ''}</td>" for c, v in zip(COLUMNS, limits, strict=True)
        )
        body += f'<tr class="limit"><th scope="row">limit</th>{cells}</tr>'
    table = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return verdict.scrolled(table, "Comparison table") + f'<p class="basis">{escape(_caption(workload))}</p>'


def _unit(column: Column) -> str:
    """The unit below the head."""
    return f"<br>{escape(column.unit.replace('/job', 'per job'))}" if column.unit else ""


def _caption(workload: Workload) -> str:
    """What the figures mean."""
    meanings = "; ".join(f"{c.head}: {c.meaning}" for c in COLUMNS)
    first = workload.first.label
    ratios = (
        f" Below a figure: times the limit, and against {first}. Bold: best."
        if len(workload.rivals) > 1
        else " Below a figure: times the limit."
    )
    return (
        f"{meanings}. Limit: what no schedule can beat, were jobs divisible at will and restarts free.{ratios} "
        "Means are over the jobs that ended"
        f"{_left_over(workload)}."
    )


def _left_over(workload: Workload) -> str:
    """How many jobs did not."""
    out = []
    for rival in workload.rivals:
        left = float((rival.measures("jobs") - rival.measures("ended")).sum())
        if left > 0:
            out.append(f"{rival.label} {plural(int(left), 'job')}")
    return f"; refused or not ended: {', '.join(out)}" if out else ", which is all"


def _line(workload: Workload, rival: Rival) -> str:
    """One policy."""
    cells = []
    for c in COLUMNS:
        means = [_known(r.mean(c.name)) for r in workload.rivals]
        best = len(means) > 1 and rival.mean(c.name) == (min(means) if c.less else max(means))
        shown = escape(c.text(rival.mean(c.name)))
        small = (
            [f"{factor(rival.ratio(c.name))}× limit"]
            if c.name in LIMITED and np.isfinite(rival.ratio(c.name))
            else []
        )
        gain = workload.gain(rival, c.name)
        if rival is not workload.first and c.unit in ("h", "") and np.isfinite(gain):
            small.append(times(gain))
        under = "".join(f"<small>{escape(s)}</small>" for s in small)
        cells.append(f"<td>{f'<span class=best>{shown}</span>' if best else shown}{under}</td>")
    name = f'<th scope="row" class="name {svg.mark(rival.index)}">{escape(rival.label)}</th>'
    return f"<tr>{name}{''.join(cells)}</tr>"


def _gantts(workload: Workload, name: str) -> str:
    """Who sat where, the first seed of every policy, on one scale of time."""
    end = charts.end_of(workload)
    drawn = []
    for k, rival in enumerate(workload.rivals[:FULL]):
        run = rival.runs[0]
        first = float(np.min(run.jobs["arrival"], initial=np.inf)) if len(run.jobs["job"]) else 0.0
        chart = page.figure(gantt(run, end, f"{name}-gantt{k}", first + 3600 * run.bound("ttd")))
        drawn.append(
            f'<div class="wide" tabindex="0" role="group" aria-label="{escape(rival.label)}">{chart}</div>'
        )
    left = len(workload.rivals) - FULL
    more = (
        f'<p class="basis">{plural(left, "more policy").replace("policys", "policies")} not drawn.</p>'
        if left > 0
        else ""
    )
    return f"<h3>Who sat where</h3>{''.join(drawn)}{more}"


def _footer(runs: Sequence[Saved], home: Path) -> str:
    """Where every figure comes from."""
    heads = ("run", "policy", "trace and cluster", "seed", "jobs", "wall time", "state")
    rows = [
        page.run_row(
            run.path,
            home,
            run.summary,
            run.problem,
            (run.strategy, run.where, run.seed, f"{run.jobs_count:,}"),
        )
        for run in runs
    ]
    hashes = {
        str(section(r.summary, "trace").get("name")): str(section(r.summary, "trace").get("sha256"))
        for r in runs
    }
    terms = "".join(
        f"<dt>{escape(k)}</dt><dd><code>sha256 {escape(v)}</code></dd>" for k, v in hashes.items()
    )
    return page.footer("Traces", heads, rows, [run.summary for run in runs], f"<dl>{terms}</dl>")
