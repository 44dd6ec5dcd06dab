"""One HTML page over all results: what holds, the tables, charts, and the commands behind every figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from eiffel import __version__
from eiffel.core.checkpoint import write_atomically
from eiffel.report import bars, charts, svg, verdict
from eiffel.report.charts import Figure
from eiffel.report.compare import table_rows
from eiffel.report.gather import Group, Problem
from eiffel.reproduce.measured import Measured
from eiffel.reproduce.results import FAILS, HOLDS, MISSED, SHOWN, UNJUDGED, Judged, Result
from eiffel.reproduce.sims import Sim
from eiffel.reproduce.tables import Table
from eiffel.reproduce.text import tables_of, value_text

CONTEST = ("accuracy", "variance", "bytes", "joules")

METHOD = (
    "Small figures: against ours, with a 95 % interval from a bootstrap over paired seeds; with three seeds that is "
    "all but their range. Bold: cannot be told from the best of its column over these seeds. “+EMA” gives every "
    "baseline the running average that Eiffel serves, at no cost. Costs are counted until three evaluations in a row "
    "averaged the target; a dash where a seed never got there. Clock and energy are simulated from public figures of "
    "phones. The rule of Eiffel is our reconstruction: only the abstract of its paper is public to us."
)


def write(results: Sequence[Result], form: str, out: Path) -> Path:
    """Write the page; returns where it is."""
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, html(results, form).encode())
    return out


def html(results: Sequence[Result], form: str) -> str:
    """The page as text."""
    judged = [f for r in results for f in r.figures if f.state != SHOWN]
    held = sum(f.state == HOLDS for f in judged)
    title = f"{held} of {len(judged)} gates hold" if judged else "Results reproduced"
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)} · Eiffel</title><style>{_resource('page.css')}</style></head><body>"
        f'<header class="top"><p class="over">Eiffel reproduce · {escape(form)} form</p>'
        f"<h1>{escape(title)}</h1></header>"
    )
    body = "".join(_section(result, form, i, _index(results)) for i, result in enumerate(results))
    return (
        f"{head}<main>{_chips(results)}{_missed(judged)}<p class='basis'>{METHOD}</p>{body}</main>"
        f"<footer><p>Made by Eiffel {__version__} from the records of the runs alone.</p></footer>"
        f'<div id="tip" hidden></div><script>{_resource("page.js")}</script></body></html>\n'
    )


def _resource(name: str) -> str:
    return files("eiffel.report").joinpath(name).read_text(encoding="utf-8")


def _missed(judged: Sequence[Judged]) -> str:
    """The gates that are missed or could not be judged, first thing on the page."""
    words = [
        f"{f.name.replace('_', ' ')} [{f.where}]: {f.state}. {f.why}"
        for f in judged
        if f.state in (FAILS, MISSED, UNJUDGED)
    ]
    if not words:
        return ""
    items = "".join(f"<li>{escape(w)}</li>" for w in words)
    return f'<div class="trouble"><p><b>{len(words)} not met or not judged.</b></p><ul>{items}</ul></div>'


def _drawn(results: Sequence[Result]) -> list[Result]:
    """Those that have charts."""
    return [r for r in results if isinstance(r.sim, Sim) and r.sim.chart]


def _index(results: Sequence[Result]) -> dict[str, int]:
    """A colour for every run's name in the charts, the same throughout the page."""
    names = [run for r in _drawn(results) for m in r.measured.values() for run in m.runs]
    return {name: i for i, name in enumerate(dict.fromkeys(names))}


def _chips(results: Sequence[Result]) -> str:
    """A button for each run's name: its colour, and whether it shows in the charts."""
    shown = _first(results)
    buttons = "".join(
        f'<button type="button" class="chip {svg.mark(i)}" data-series="{i}" '
        f'aria-pressed="{str(name in shown).lower()}">{escape(name)}</button>'
        for name, i in _index(results).items()
    )
    return (
        f'<div class="chips" role="group" aria-label="Show or hide runs in the charts">{buttons}</div>'
        if buttons
        else ""
    )


def _first(results: Sequence[Result]) -> set[str]:
    """The runs that the charts show at first: ours, and on every data set the best of the others in something."""
    measured = [m for r in _drawn(results) for m in r.measured.values()]
    ours = {name for r in _drawn(results) if isinstance(r.sim, Sim) for name in r.sim.ours}
    return ours | {m.best(what) for m in measured for what in CONTEST}


def _section(result: Result, form: str, number: int, index: Mapping[str, int]) -> str:
    """One file of sims/."""
    sim = result.sim
    parts = [
        f'<section id="{escape(sim.name)}" aria-label="{escape(sim.title)}"><h2>{escape(sim.title)}</h2>',
        f'<p class="facts">{escape(sim.name)} · {escape(sim.shows)} · {escape(result.took(form))}</p>',
        "".join(f'<p class="missing">{escape(f"{n}: left out. {w}")}</p>' for n, w in result.absent.items()),
        "".join(f'<p class="missing">{escape(f"failed: {w}")}</p>' for w in result.broken),
        _figures(result.figures),
        "".join(map(_table, tables_of(result))),
        _charts(result, number, index),
        "".join(f'<p class="basis">{escape(remark)}</p>' for remark in result.remarks),
        _commands(result),
        "</section>",
    ]
    return "".join(parts)


def _figures(figures: Sequence[Judged]) -> str:
    """Measured against expected and published, and whether the gate holds."""
    if not figures:
        return ""
    heads = ("figure", "data", "measured", "", "gate", "expected", "published")
    head = "".join(f'<th scope="col">{h}</th>' for h in heads)
    body = "".join(_figure_row(f) for f in figures)
    return verdict.scrolled(f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>", "Figures")


def _figure_row(f: Judged) -> str:
    gate = " ".join(filter(None, [f.bound, f.bound_each and f"each {f.bound_each}"]))
    published = f.published + (f" ({f.source})" if f.source else "")
    state = "" if f.state == SHOWN else f.state
    remark = " ".join(filter(None, [f.why, f.remark]))
    below = f'<tr class="also"><td class="text" colspan="7">{escape(remark)}</td></tr>' if remark else ""
    return (
        f'<tr><th scope="row">{escape(f.name.replace("_", " "))}</th><td>{escape(f.where)}</td>'
        f"<td><b>{escape(value_text(f))}</b></td><td{' class=bad' if f.state in (FAILS, MISSED) else ''}>{state}</td>"
        f"<td>{escape(gate)}</td><td>{escape(f.expect)}</td>"
        f'<td class="text">{escape(published)}</td></tr>{below}'
    )


def _table(shown: Table) -> str:
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in ("", *shown.heads))
    body = ""
    for name, cells in shown.rows:
        inner = "".join(
            f"<td>{f'<span class=best>{escape(c.text)}</span>' if c.best else escape(c.text)}"
            f"{f'<small>{escape(c.small)}</small>' if c.small else ''}</td>"
            for c in cells
        )
        body += f'<tr><th scope="row">{escape(name)}</th>{inner}</tr>'
    said = "".join(f"<li>{escape(s)}</li>" for s in shown.sentences)
    return (
        f"<h3>{escape(shown.title)}</h3><p class='facts'>{escape(shown.basis)}</p>"
        + verdict.scrolled(f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>", shown.title)
        + (f"<ul>{said}</ul>" if said else "")
    )


def _charts(result: Result, number: int, index: Mapping[str, int]) -> str:
    """Curves with bands over seeds, for the views that have them."""
    sim = result.sim
    if not isinstance(sim, Sim) or not sim.chart:
        return ""
    out = []
    for i, (name, measured) in enumerate(result.measured.items()):
        drawn = "".join(_figure(f) for f in charts_of(measured, name, sim.views, f"s{number}d{i}", index))
        if drawn:
            out.append(f'<h3>{escape(name)}: curves</h3><div class="row">{drawn}</div>')
    return f"<details><summary>Charts</summary>{''.join(out)}</details>" if out else ""


def charts_of(
    measured: Measured, name: str, views: Sequence[str], at: str, index: Mapping[str, int]
) -> list[Figure]:
    """The charts that go with the views of a data set; bands are the range of the seeds."""
    order = [measured.ours, *(run for run in measured.runs if run != measured.ours)]
    groups = tuple(Group(run, index[run], tuple(measured.runs[run])) for run in order)
    problem = Problem(name, measured.runs[measured.ours][0].metric, groups)
    aim = measured.goal()
    made = []
    if "communication" in views:
        made.append(charts.accuracy_against(problem, "bytes", aim, f"{at}-bytes"))
        made.append(charts.local_steps(problem, f"{at}-tau"))
    if "energy" in views or "batteries" in views:
        made.append(charts.accuracy_against(problem, "joules", aim, f"{at}-joules"))
        made.append(bars.energy(problem, f"{at}-energy"))
    if "fairness" in views:
        made.append(charts.variance_against(problem, f"{at}-variance"))
        made.append(bars.fairness_strip(problem, table_rows(problem, aim), f"{at}-strip"))
    return made


def _figure(figure: Figure) -> str:
    body = figure.svg or f'<p class="missing">{escape(figure.caption)}</p>'
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>" if figure.svg and figure.caption else ""
    return f"<figure><h4>{escape(figure.title)}</h4>{body}{caption}</figure>"


def _commands(result: Result) -> str:
    """The commands behind the figures, and behind every run."""
    lines = []
    for f in result.figures:
        if f.commands:
            lines += [f"# {f.name.replace('_', ' ')} [{f.where}]", *f.commands]
    every = dict.fromkeys(job.command for job in result.jobs)
    if not every:
        return ""
    shown = escape("\n".join([*lines, "", "# every run", *every]))
    return f"<details><summary>Commands</summary><pre>{shown}</pre></details>"
