"""From runs to results: what was measured on every data set, and whether the figures keep their bounds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from eiffel.core.model import Floats
from eiffel.report.read import load
from eiffel.reproduce.field import Job
from eiffel.reproduce.measured import Interval, Measured
from eiffel.reproduce.sims import Cluster, Figure, Sim, terms
from eiffel.worlds.cluster_sims import Figure as ClusterFigure

SIDES: Mapping[str, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le}
HOLDS, FAILS, MISSED, SHOWN, UNJUDGED = "holds", "fails", "missed", "shown", "not judged"
"""MISSED: it fails, and its file says so beforehand, with the reason. The bound stays; it is only no surprise."""


@dataclass(frozen=True)
class Judged:
    """A figure with its bounds, what was expected and published, and whether it holds (see the states)."""

    name: str
    where: str
    value: Interval
    each: Floats
    bound: str = ""
    bound_each: str = ""
    expect: str = ""
    published: str = ""
    source: str = ""
    remark: str = ""
    state: str = SHOWN
    why: str = ""
    commands: tuple[str, ...] = ()


@dataclass
class Result:
    """A file of sims/ after its runs.

    absent: data sets that are not on this machine. broken: runs that failed. tuning: how settings were found.
    seconds: of wall time; processor: of processors, for the runs made now.
    """

    sim: Sim | Cluster
    measured: dict[str, Measured] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    figures: list[Judged] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    tuning: list[str] = field(default_factory=list)
    seconds: float = 0.0
    processor: float = 0.0

    def took(self, form: str) -> str:
        """How long it took and was to take, in words; runs that lay there already took nothing."""
        expected = self.sim.takes.get(form)
        spent = f", {self.processor:.0f} s of processor for new runs" if self.processor else ""
        return f"took {self.seconds:.0f} s{spent}" + (f", expected {expected:.0f} s" if expected else "")

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to know before quoting: the file's remarks, and how settings were found."""
        return (*self.sim.remarks, *self.tuning)

    @property
    def failed(self) -> bool:
        """Whether a figure misses its bound unannounced or a run failed for another reason than absent data."""
        return bool(self.broken) or any(f.state == FAILS for f in self.figures)

    @property
    def missed(self) -> bool:
        """Whether a figure misses its bound as its file says."""
        return any(f.state == MISSED for f in self.figures)


def federated(
    sim: Sim, jobs: Mapping[tuple[str, str, int], Job], out: Path, failed: Mapping[str, tuple[str, str]]
) -> Result:
    """Read the runs of a file back and judge its figures. failed: a run's key to the error's kind and words."""
    result = Result(sim, jobs=list(jobs.values()))
    for data in sim.data:
        mine = {(run, seed): one for (d, run, seed), one in jobs.items() if d == data.name}
        missing = [failed[j.key][1] for j in mine.values() if failed.get(j.key, ("",))[0] == "MissingData"]
        if missing:
            result.absent[data.name] = missing[0]
            continue
        bad = {run for (run, _), j in mine.items() if j.key in failed}
        result.broken += [
            f"{run} on {data.name}: {failed[j.key][1]} ({j.command})"
            for (run, _), j in mine.items()
            if j.key in failed
        ]
        runs = {
            run.name: [load(mine[run.name, seed].folder(out)) for seed in sim.seeds]
            for run in sim.runs
            if run.name not in bad and run.runs_on(data.name)
        }
        if sim.ours[0] in runs:
            result.measured[data.name] = Measured(runs, sim.ours[0], sim.share, sim.of, sim.ours[1:])
    result.figures = [_judge(f, result, mine_of(jobs, f)) for f in sim.figures]
    return result


def mine_of(jobs: Mapping[tuple[str, str, int], Job], figure: Figure) -> tuple[str, ...]:
    """The commands behind a figure, one for all seeds of a run."""
    seeds: dict[tuple[str, ...], list[int]] = {}
    for (data, run, seed), one in jobs.items():
        if data == figure.data and run in {r for r, _ in terms(figure.value)}:
            seeds.setdefault(one.overrides, []).append(seed)
    return tuple(
        Job(words, 0).command.replace("eiffel sim ", "eiffel sim -m ", 1).rsplit(" ", 1)[0]
        + f" seed={','.join(map(str, numbers))}"
        for words, numbers in seeds.items()
    )


def _judge(figure: Figure, result: Result, commands: tuple[str, ...]) -> Judged:
    """A figure on its data set."""
    nothing = Interval(np.nan, np.nan, np.nan)
    measured = result.measured.get(figure.data)
    needed = {run for run, _ in terms(figure.value)} - {"best"}
    if measured is None or not needed <= set(measured.runs):
        why = result.absent.get(figure.data) or "a run failed"
        value, each, state = nothing, np.zeros(0), UNJUDGED if figure.data in result.absent else FAILS
    else:
        value, each = measured.expression(figure.value, terms(figure.value), figure.target, figure.rounds)
        state, why = verdict(value.mean, each, figure.bound, figure.each, figure.missed)
    return Judged(
        figure.name, figure.data, value, each, figure.bound, figure.each, figure.expect, figure.published,
        figure.source, figure.remark, state, why, commands,
    )  # fmt: skip


def verdict(
    mean: float, each: Sequence[float] | Floats, bound: str, bound_each: str, missed: str = ""
) -> tuple[str, str]:
    """Whether a figure keeps its bounds, and what there is to say about it.

    One that is not a number (neither reached the target) does not. missed: the reason, where that is known.
    """
    why = "" if np.isfinite(mean) else "a seed never reached the target, so its cost counts as infinite"
    if not bound and not bound_each:
        return SHOWN, why
    wrong = [v for v in each if not keeps(bound_each, float(v))]
    if keeps(bound, mean) and not wrong:
        return HOLDS, f"holds here, but was missed when last measured: {missed}" if missed else why
    return (MISSED, missed) if missed else (FAILS, why)


def keeps(bound: str, value: float) -> bool:
    """Whether a value keeps a bound such as ">= 1.3"; an empty one always."""
    if not bound:
        return True
    side, number = bound.split()
    return SIDES[side](value, float(number))


def cluster(sim: Cluster, figures: Sequence[ClusterFigure]) -> Result:
    """The figures of a file of kind cluster, with the range of its cases in place of an interval."""
    judged = []
    for f in figures:
        each = np.array(f.measured)
        spread = (
            Interval(f.mean, float(each.min()), float(each.max()))
            if each.size > 1
            else Interval(f.mean, np.nan, np.nan)
        )
        entry = sim.spec["figures"][f.name]
        state, why = verdict(f.mean, each, f.bound, f.each, str(entry.get("missed", "")))
        judged.append(
            Judged(
                f.name,
                f.setting,
                spread,
                each,
                f.bound,
                f.each,
                str(entry.get("expect", "")),
                f.published,
                str(entry.get("source", "")),
                f.remark,
                state,
                why,
            )
        )
    return Result(sim, figures=judged)


def without_traces(sim: Cluster, why: str) -> Result:
    """A file of kind cluster whose traces are not on this machine: nothing of it is judged."""
    nothing = Interval(np.nan, np.nan, np.nan)
    figures = [
        Judged(name, str(entry["case"]), nothing, np.zeros(0), str(entry.get("bound", "")), state=UNJUDGED)
        for name, entry in sim.spec["figures"].items()
        if entry.get("bound") or entry.get("each")
    ]
    return Result(sim, absent={"traces": why}, figures=figures)
