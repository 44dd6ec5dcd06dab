"""Why a job waited, from what the run kept: `eiffel explain RUN --job J`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eiffel.core.jobs import Refusal
from eiffel.core.refusals import words
from eiffel.report.cluster_folder import JOBS, REASONS, Saved, load
from eiffel.report.units import factor, fitting, plural

MOST = 8
"""Stretches of waiting, and of running, that are listed; the longest, in order of time."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a job's time: from, to (s), and what it did, in words."""

    start: float
    end: float
    said: str


def explain_job(path: Path, job: str) -> str:
    """Say in words what became of a job: what it waited for, which price, what would have placed it.

    Raises ValueError, naming the file, where the run or the job is not to be found.
    """
    run = load(Path(path))
    if run.problem:
        raise ValueError(f"{path}: {run.problem.removeprefix(f'{path}: ')}")
    row = _row(run, job)
    facts = {name: column[row] for name, column in run.jobs.items()}
    model = f"{facts['model']}, " if facts["model"] else ""
    size = plural(int(facts["gang"]), "GPU")
    head = f"Job {facts['id']} ({model}{size}), {run.strategy}, {run.where}, seed {run.seed}"
    if facts["refused"] != Refusal.NONE:
        return f"{head}\n  refused when it arrived: {run.summary['rejected'].get(str(facts['id'])) or _refusal(facts)}"
    waits, sat = _waits(run, row, facts), _sat(run, row)
    lines = [_course(facts), _fair(facts), *_waited(facts)]
    lines += _listed("why it waited", [s for s in waits if s.said], facts["arrival"])
    lines += _listed("where it ran", sat, facts["arrival"])
    return "\n".join([head, *(f"  {line}" for line in lines if line)])


def _row(run: Saved, job: str) -> int:
    """The row of a job by its id."""
    ids = [str(i) for i in run.jobs["id"]]
    if job in ids:
        return ids.index(job)
    near = difflib.get_close_matches(job, ids, 3, 0.5)
    hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
    raise ValueError(
        f"{run.path / JOBS}: no job {job!r}. {hint}There are {plural(len(ids), 'job')}, from {ids[0]!r} to {ids[-1]!r}"
        if ids
        else f"{run.path / JOBS}: no job {job!r}; the trace has no jobs"
    )


def _refusal(facts: dict[str, Any]) -> str:
    """A refusal at admission, by its name."""
    return REASONS[int(facts["refused"])].replace("_", " ")


def _time(seconds: float) -> str:
    """A span of time with a unit that fits."""
    return fitting("seconds", seconds).text(seconds)


def _course(facts: dict[str, Any]) -> str:
    """Arrival, start, end."""
    arrival, start, finish = (float(facts[k]) for k in ("arrival", "start", "finish"))
    if not np.isfinite(start):
        return f"arrived {_time(arrival)} into the trace and never ran"
    often = (
        f"{plural(int(facts['moves']), 'restart')} paid, {plural(int(facts['preemptions']), 'preemption')}"
    )
    end = f"ended after {_time(finish - arrival)}" if np.isfinite(finish) else "did not end"
    return (
        f"arrived {_time(arrival)} into the trace, first ran after {_time(start - arrival)}, {end}, "
        f"of which it did steps for {_time(float(facts['ran']))}; {often}"
    )


def _fair(facts: dict[str, Any]) -> str:
    """Against an equal part of the cluster."""
    taken, alone = float(facts["finish"] - facts["arrival"]), float(facts["isolated_s"])
    if not np.isfinite(taken) or not alone > 0:
        return ""
    fairness = f"finish-time fairness {factor(taken / alone)}"
    return f"in an equal part of the cluster of its own it would have taken {_time(alone)}: {fairness}"


def _waited(facts: dict[str, Any]) -> list[str]:
    """How long it waited for each reason."""
    by = {r: float(facts[f"waited.{r}"]) for r in REASONS if facts[f"waited.{r}"] > 0 and r != "none"}
    if not by:
        return ["it never waited for a device"]
    parts = ", ".join(f"{_time(s)} {r.replace('_', ' ')}" for r, s in sorted(by.items(), key=lambda p: -p[1]))
    return [f"it waited {_time(sum(by.values()))} in all: {parts}"]


def _waits(run: Saved, row: int, facts: dict[str, Any]) -> list[Stretch]:
    """Stretches in which one reason held, each with what stood in the way when it began."""
    table = run.waits
    mine = np.flatnonzero(table["job"] == row)
    over = float(facts["finish"])
    over = (
        over
        if np.isfinite(over)
        else float((run.timeline["time"] + run.timeline["seconds"]).max(initial=0.0))
    )
    ends = np.append(table["time"][mine][1:], over)
    return [
        Stretch(float(table["time"][i]), float(end), _words(run, facts, table, int(i)))
        for i, end in zip(mine, ends, strict=True)
    ]


def _words(run: Saved, facts: dict[str, Any], table: Any, i: int) -> str:
    """What stood in the way, which price, what would place it; nothing while the job ran."""
    why, limit = int(table["why"][i]), int(table["limit"][i])
    if why == Refusal.NONE:
        return ""
    return words(
        why, type_=run.types[limit] if limit >= 0 else "?", gang=int(facts["gang"]), free=int(table["free"][i]),
        price=float(table["price"][i]), value=float(table["value"][i]),
    )  # fmt: skip


def _sat(run: Saved, row: int) -> list[Stretch]:
    """Stretches in which it sat in one place; parts of a gang that came and went together are one."""
    s = run.sittings
    mine = np.flatnonzero(s["job"] == row)
    places: dict[tuple[float, float, int], list[str]] = {}
    for i in mine[np.lexsort((s["node"][mine], s["start"][mine]))]:
        kind = run.nodes[int(s["node"][i])][0]
        key = float(s["start"][i]), float(s["end"][i]), int(s["copy"][i])
        places.setdefault(key, []).append(f"{int(s['count'][i])} {kind} of node {int(s['node'][i])}")
    return [
        Stretch(start, end, " and ".join(at) + (f" (copy {copy})" if copy else ""))
        for (start, end, copy), at in places.items()
    ]


def _listed(head: str, stretches: list[Stretch], arrival: float) -> list[str]:
    """The longest stretches in order of time, counted from the job's arrival."""
    if not stretches:
        return []
    longest = sorted(stretches, key=lambda s: s.start - s.end)[:MOST]
    unit = fitting("seconds", max(s.end for s in stretches) - arrival)
    lines = [
        f"  {unit.number(s.start - arrival)} to {unit.number(s.end - arrival)} {unit.name}: {s.said}"
        for s in sorted(longest, key=lambda s: s.start)
    ]
    left = len(stretches) - len(longest)
    return [f"{head} (time since it arrived):", *lines, *([f"  and {left:,} more, shorter"] if left else [])]
