"""One HTML page over any set of runs: no network, no library, inline SVG and a few lines of script."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from eiffel import __version__
from eiffel.report import bars, charts, svg, verdict
from eiffel.report.charts import Figure
from eiffel.report.compare import Row, seeds_text, table_rows
from eiffel.report.folder import write_atomic
from eiffel.report.gather import COSTS, Group, Problem, problems
from eiffel.report.read import Run, find, load, section
from eiffel.report.units import fitting, percent, plural

SHARE = 0.98
"""The target is this share of the first strategy's own final accuracy, unless one is given."""


def report(runs: Sequence[Path], out: Path, share: float = SHARE, target: float | None = None) -> Path:
    """Write the page over these runs (folders of runs, or of sweeps) and return where it is.

    share: see `SHARE`. target: a fraction that goes before it. Raises ValueError where no path is given.
    """
    paths = find(runs)
    if not paths:
        raise ValueError(
            "no run was named; give at least one run folder, such as outputs/2025-01-31/12-00-00"
        )
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, html([load(path) for path in paths], out.parent, share, target).encode())
    return out


def html(runs: Sequence[Run], home: Path, share: float = SHARE, target: float | None = None) -> str:
    """The page as text; links to runs are relative to the folder `home` that it will lie in."""
    found = problems(runs)
    groups = {group.index: group for problem in found for group in problem.groups}
    title = escape(_title(found))
    sections = "".join(_problem(problem, i, share, target) for i, problem in enumerate(found))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{title} · Eiffel</title><style>{_resource('page.css')}</style></head><body>"
        f'<header class="top"><p class="over">Eiffel report · {plural(len(runs), "run")}</p>'
        f"<h1>{title}</h1></header><main>{_chips(list(groups.values()))}{_trouble(runs, found)}"
        f"{sections}</main>{_footer(runs, home)}"
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


def _chips(groups: Sequence[Group]) -> str:
    """A button for each strategy: its colour, and whether it shows."""
    if len(groups) < 2:
        return ""
    buttons = "".join(
        f'<button type="button" class="chip {svg.mark(g.index)}" data-series="{g.index}" aria-pressed="true">'
        f"{escape(g.label)}</button>"
        for g in sorted(groups, key=lambda g: g.index)
    )
    return (
        f'<div class="chips" role="group" aria-label="Show or hide strategies in the charts">{buttons}</div>'
    )


def _trouble(runs: Sequence[Run], found: Sequence[Problem]) -> str:
    """Runs that are missing, unfinished or damaged, and those that do not count, each with its reason."""
    words = _complaints(runs, found)
    if not words:
        return ""
    partial = [group.label for problem in found for group in problem.groups if group.partial]
    note = f" Of {', '.join(partial)} no run has ended; what there is so far is shown." if partial else ""
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
        f'<h3>{escape(heading)}</h3><div class="row">{"".join(map(_figure, figures))}</div>'
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


def _figure(figure: Figure) -> str:
    """A chart with heading and caption; plain words where there is nothing to draw."""
    body = figure.svg or f'<p class="missing">{escape(figure.caption)}</p>'
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>" if figure.svg and figure.caption else ""
    return f"<figure><h4>{escape(figure.title)}</h4>{body}{caption}</figure>"


def _footer(runs: Sequence[Run], home: Path) -> str:
    """Where every figure comes from: runs with links, commands, versions, hashes of the data."""
    heads = ("run", "strategy", "data", "seed", "rounds", "wall time", "state")
    head = "".join(f'<th scope="col">{h}</th>' for h in heads)
    body = "".join(_run(run, home) for run in runs)
    table = verdict.scrolled(f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>", "Runs")
    commands = dict.fromkeys(str(run.summary["command"]) for run in runs if run.summary.get("command"))
    lines = "\n".join(commands) or "not recorded"
    return (
        f"<footer><details{' open' if len(runs) <= 12 else ''}><summary>Runs</summary>{table}</details>"
        f"<details><summary>Commands</summary><pre>{escape(lines)}</pre></details>"
        f"<details><summary>Data and versions</summary><dl>{_terms(runs, 'data', 'sources')}</dl>"
        f"<dl>{_terms(runs, 'versions')}</dl></details>"
        f"<p>Made by Eiffel {__version__} from the records of the runs alone.</p></footer>"
    )


def _terms(runs: Sequence[Run], *names: str) -> str:
    """A part of the summaries as a list of terms; where runs differ every value is shown."""
    seen: dict[str, dict[str, None]] = {}
    for run in runs:
        part = run.summary
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
    link = quote(Path(os.path.relpath(run.path, home)).as_posix())
    wall = run.summary.get("wall_s")
    took = fitting("seconds", float(wall)).text(float(wall)) if isinstance(wall, (int, float)) else "–"
    state = run.problem or f"{run.summary.get('status')}: {run.summary.get('why') or 'no reason given'}"
    rounds = str(run.records[-1]["round"]) if run.records else "0"
    place = f'<th scope="row"><a href="{escape(link)}/">{escape(_tail(run.path))}</a></th>'
    cells = "".join(f"<td>{escape(v)}</td>" for v in (run.strategy, run.data, run.seed, rounds, took))
    return f'<tr>{place}{cells}<td class="{"bad" if run.problem else "text"}">{escape(state)}</td></tr>'


def _tail(path: Path) -> str:
    """The last three parts of a path."""
    return "/".join(path.absolute().parts[-3:])
