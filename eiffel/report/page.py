"""One HTML page over any set of runs: no network, no library, inline SVG and a few lines of script."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from eiffel import __version__
from eiffel.report import bars, charts, svg, verdict
from eiffel.report.charts import Figure
from eiffel.report.compare import Row, seeds_text, table_rows
from eiffel.report.gather import COSTS, Problem, problems
from eiffel.report.read import Json, Run, section
from eiffel.report.units import fitting, percent, plural

SHARE = 0.98
"""The target is this share of the first strategy's own final accuracy, unless one is given."""


@dataclass(frozen=True, slots=True)
class Part:
    """What runs of one kind contribute to the page.

    what: the heading, plain text. runs: how many. series: (index, name) of what has a colour. body, foot: HTML.
    """

    what: str
    runs: int
    series: tuple[tuple[int, str], ...]
    body: str
    foot: str


def part(runs: Sequence[Run], home: Path, share: float = SHARE, target: float | None = None) -> Part:
    """The runs of federations; links to them are relative to the folder `home` that the page will lie in."""
    found = problems(runs)
    groups = {group.index: group.label for problem in found for group in problem.groups}
    sections = "".join(_problem(problem, i, share, target) for i, problem in enumerate(found))
    body = f"{_trouble(runs, found)}{sections}"
    return Part(_title(found), len(runs), tuple(groups.items()), body, _footer(runs, home))


def document(parts: Sequence[Part]) -> str:
    """The page as text, from its parts."""
    title = escape("; ".join(part.what for part in parts))
    runs = sum(part.runs for part in parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{title} · Eiffel</title><style>{_resource('page.css')}</style></head><body>"
        f'<header class="top"><p class="over">Eiffel report · {plural(runs, "run")}</p>'
        f"<h1>{title}</h1></header><main>{_chips([entry for part in parts for entry in part.series])}"
        f"{''.join(part.body for part in parts)}</main>{''.join(part.foot for part in parts)}"
        f'<div id="tip" hidden></div><script>{_resource("page.js")}</script></body></html>\n'
    )


def _resource(name: str) -> str:
    """A file that lies beside this one."""
    return files("eiffel.report").joinpath(name).read_text(encoding="utf-8")


def _title(found: Sequence[Problem]) -> str:
    """What is compared on what."""
    names = list(dict.fromkeys(group.label for problem in found for group in problem.groups))
    where = ", ".join(problem.title for problem in found)
    if not names:
        return "No run has results yet"
    if len(names) > 4:
        return f"{len(names)} strategies on {where}"
    rivals = " and ".join(filter(None, [", ".join(names[1:-1]), names[-1]]))
    return f"{rivals} against {names[0]} on {where}" if len(names) > 1 else f"{names[0]} on {where}"


def _chips(series: Sequence[tuple[int, str]]) -> str:
    """A button for each strategy: its colour, and whether it shows."""
    if len(series) < 2:
        return ""
    buttons = "".join(
        f'<button type="button" class="chip {svg.mark(index)}" data-series="{index}" aria-pressed="true">'
        f"{escape(label)}</button>"
        for index, label in sorted(series)
    )
    return (
        f'<div class="chips" role="group" aria-label="Show or hide strategies in the charts">{buttons}</div>'
    )


def _trouble(runs: Sequence[Run], found: Sequence[Problem]) -> str:
    """Runs that are missing, unfinished or damaged, and those that do not count, each with its reason."""
    partial = [group.label for problem in found for group in problem.groups if group.partial]
    note = f" Of {', '.join(partial)} no run has ended; what there is so far is shown." if partial else ""
    return trouble(_complaints(runs, found), note)


def trouble(words: Sequence[str], note: str = "") -> str:
    """A box of complaints, a line for each run; nothing where there is none."""
    if not words:
        return ""
    return (
        f'<div class="trouble"><p><b>{plural(len(words), "run")} not whole or not counted.</b> Averages are over '
        f"runs that ended.{escape(note)}</p><ul>{''.join(f'<li>{escape(w)}</li>' for w in words)}</ul></div>"
    )


def _complaints(runs: Sequence[Run], found: Sequence[Problem]) -> list[str]:
    """A line for each run that is not whole, or does not count."""
    left_out = {run.path: why for p in found for g in p.groups for run, why in g.left_out}
    reasons = {
        run.path: run.problem
        or left_out.get(run.path)
        or ("" if run.evaluations else "no evaluation was recorded, so there is nothing to compare")
        for run in runs
    }
    return [f"{path}: {why.removeprefix(f'{path}: ')}" for path, why in reasons.items() if why]


def _problem(problem: Problem, number: int, share: float, target: float | None) -> str:
    """One data set and fleet: the statement, the table and the figures."""
    aim = problem.target(share) if target is None else target
    rows = table_rows(problem, aim)
    own = f"{100 * share:g} % of the final {problem.metric} of {problem.groups[0].label}"
    who = f"{plural(problem.devices, 'device')}, {seeds_text(problem.groups)}"
    facts = f"{who} · target {percent(aim)} {problem.metric}, {own if target is None else 'as given'}"
    several = max(len(group.runs) for group in problem.groups) > 1
    basis = "Mean over seeds; bands: lowest to highest seed." if several else "One seed, so no bands."
    parts = "".join(
        f'<h3>{escape(heading)}</h3><div class="row">{"".join(map(figure, figures))}</div>'
        f'<p class="basis">{escape(f"{basis} n = {who}.")}</p>'
        for heading, figures in _figures(problem, rows, aim, f"p{number}")
    )
    return (
        f'<section aria-label="{escape(problem.title)}"><h2>{escape(problem.title)}</h2>'
        f'<p class="facts">{escape(facts)}</p>{verdict.sentence(rows, aim, problem)}'
        f"{verdict.table(rows, problem, aim)}{parts}</section>"
    )


def _figures(problem: Problem, rows: Sequence[Row], aim: float, name: str) -> list[tuple[str, list[Figure]]]:
    """All figures of a problem, in rows with a heading each."""
    costs = [charts.accuracy_against(problem, cost, aim, f"{name}-{cost}") for cost in COSTS]
    fair = [
        charts.sorted_devices(problem, f"{name}-sorted"),
        bars.fairness_strip(problem, rows, f"{name}-strip"),
        charts.variance_against(problem, f"{name}-variance"),
    ]
    who = [
        charts.participation(problem, f"{name}-lorenz"),
        charts.battery(problem, f"{name}-battery"),
        charts.local_steps(problem, f"{name}-tau"),
    ]
    spent = [
        bars.energy_to_target(problem, rows, aim, f"{name}-target"),
        bars.energy(problem, f"{name}-energy"),
        bars.tasks(problem, f"{name}-tasks"),
    ]
    headings = (
        "What accuracy costs",
        "How fair it is",
        "Who took part, and how",
        "What was spent, and on what",
    )
    return list(zip(headings, (costs, fair, who, spent), strict=True))


def figure(drawn: Figure) -> str:
    """A chart with heading and caption; plain words where there is nothing to draw."""
    body = drawn.svg or f'<p class="missing">{escape(drawn.caption)}</p>'
    caption = f"<figcaption>{escape(drawn.caption)}</figcaption>" if drawn.svg and drawn.caption else ""
    return f"<figure><h4>{escape(drawn.title)}</h4>{body}{caption}</figure>"


def _footer(runs: Sequence[Run], home: Path) -> str:
    """Where every figure comes from."""
    heads = ("run", "strategy", "data", "seed", "rounds", "wall time", "state")
    terms = f"<dl>{terms_of([r.summary for r in runs], 'data', 'sources')}</dl>"
    return footer("Data", heads, [_run(run, home) for run in runs], [run.summary for run in runs], terms)


def footer(
    what: str, heads: Sequence[str], rows: Sequence[str], summaries: Sequence[Json], terms: str
) -> str:
    """Runs with links, commands, versions, and what the runs were fed (`what` and `terms`, HTML)."""
    head = "".join(f'<th scope="col">{h}</th>' for h in heads)
    table = verdict.scrolled(f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>", "Runs")
    commands = dict.fromkeys(str(s["command"]) for s in summaries if s.get("command"))
    lines = "\n".join(commands) or "not recorded"
    return (
        f"<footer><details{' open' if len(rows) <= 12 else ''}><summary>Runs</summary>{table}</details>"
        f"<details><summary>Commands</summary><pre>{escape(lines)}</pre></details>"
        f"<details><summary>{what} and versions</summary>{terms}<dl>{terms_of(summaries, 'versions')}</dl></details>"
        f"<p>Made by Eiffel {__version__} from the records of the runs alone.</p></footer>"
    )


def terms_of(summaries: Sequence[Json], *names: str) -> str:
    """A part of the summaries as a list of terms; where runs differ every value is shown."""
    seen: dict[str, dict[str, None]] = {}
    for part in summaries:
        for name in names:
            part = section(part, name)
        for key, value in part.items():
            seen.setdefault(key, {})[str(value)] = None
    return "".join(
        f"<dt>{escape(key)}</dt><dd><code>{escape(', '.join(values))}</code></dd>"
        for key, values in seen.items()
    )


def _run(run: Run, home: Path) -> str:
    """A run: where it lies, what it was, and how it ended."""
    rounds = str(run.records[-1]["round"]) if run.records else "0"
    return run_row(run.path, home, run.summary, run.problem, (run.strategy, run.data, run.seed, rounds))


def run_row(path: Path, home: Path, summary: Json, problem: str | None, cells: Sequence[str]) -> str:
    """A line of the footer's table: a link, the cells, wall time, state."""
    link = quote(Path(os.path.relpath(path, home)).as_posix())
    wall = summary.get("wall_s")
    took = fitting("seconds", float(wall)).text(float(wall)) if isinstance(wall, (int, float)) else "–"
    state = problem or f"{summary.get('status')}: {summary.get('why') or 'no reason given'}"
    place = f'<th scope="row"><a href="{escape(link)}/">{escape(_tail(path))}</a></th>'
    shown = "".join(f"<td>{escape(v)}</td>" for v in (*cells, took))
    return f'<tr>{place}{shown}<td class="{"bad" if problem else "text"}">{escape(state)}</td></tr>'


def _tail(path: Path) -> str:
    """The last three parts of a path."""
    return "/".join(path.absolute().parts[-3:])
