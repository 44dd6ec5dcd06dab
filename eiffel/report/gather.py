"""Runs gathered for comparison: problems, strategies within them, seeds within those. numpy only.

Runs belong to one problem when data set, and every setting of data and fleet, are the same; to one strategy
when its name and every other setting are. What is left differs in the seed alone, and is averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from eiffel.core.measures import to_target
from eiffel.core.model import Floats
from eiffel.report.read import Run

COSTS = {"bytes": "total_bytes", "joules": "total_joules", "seconds": "total_s"}
"""What a target costs, and the running total in the records that says so."""

GRID = 120
"""Points of a curve averaged over seeds."""

_PROBLEM = ("datasets", "fleet")
_TUNING = ("datasets.local.", "datasets.steps", "datasets.rounds", "datasets.cohort")
_NEITHER = (
    "seed",
    "report",
    "hydra",
    "strategies",
    "datasets",
    "engine",
    "save_every",
    "score_every",
    "target",
)
"""Prefixes of settings that make the problem; that stand with the data but tune the strategy; and keys that
change no result, or (a choice of card) are known by name."""


@dataclass(frozen=True)
class Group:
    """One strategy on one problem: its runs that count, one a seed, and those that do not, with the reason.

    index: place among all strategies, which sets its colour. `partial`: no run ended; unfinished ones count.
    """

    label: str
    index: int
    runs: tuple[Run, ...]
    left_out: tuple[tuple[Run, str], ...] = ()
    partial: bool = False

    @property
    def seeds(self) -> tuple[str, ...]:
        """Seeds of the runs that count."""
        return tuple(run.seed for run in self.runs)

    def served(self) -> str:
        """Which model is served: last or ema."""
        return self.runs[0].served

    def finals(self, key: str, model: str = "served") -> Floats:
        """(S,) a figure of each seed: the mean of its last five evaluations."""
        return np.array([run.final(model).get(key, np.nan) for run in self.runs])


@dataclass(frozen=True)
class Problem:
    """Strategies that were tried on the same data and fleet, the first one first."""

    title: str
    metric: str
    groups: tuple[Group, ...]

    @property
    def devices(self) -> int:
        """N, the largest seen."""
        return max((run.devices for group in self.groups for run in group.runs), default=0)

    def target(self, share: float = 0.98) -> float:
        """`share` of the first strategy's own final accuracy (mean over seeds), as it serves its model."""
        return share * float(self.groups[0].finals("accuracy").mean())


@dataclass(frozen=True)
class Curve:
    """A figure averaged over seeds: x, mean, and the lowest and highest seed, (G,) each."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats


def problems(runs: Sequence[Run]) -> list[Problem]:
    """Sort runs into problems and strategies, in the order in which they come."""
    scored = [run for run in runs if run.evaluations]
    keys = {run.path: (_problem_key(run), _strategy_key(run)) for run in scored}
    names = labels([keys[run.path][1] for run in scored])
    titles = labels([keys[run.path][0] for run in scored])
    order = {label: index for index, label in enumerate(dict.fromkeys(names.values()))}
    found = []
    for where in dict.fromkeys(key for key, _ in keys.values()):
        here = [run for run in scored if keys[run.path][0] == where]
        groups = [
            _group(names[key], order[names[key]], [r for r in here if keys[r.path][1] == key])
            for key in dict.fromkeys(keys[run.path][1] for run in here)
        ]
        found.append(Problem(titles[where], here[0].metric, tuple(groups)))
    return found


Key = tuple[str, tuple[str, ...]]


def _problem_key(run: Run) -> Key:
    """Data set and whatever else was set about data and fleet."""
    return run.data, _settings(run, True)


def _strategy_key(run: Run) -> Key:
    """Strategy and whatever else was set."""
    return run.strategy, _settings(run, False)


def _settings(run: Run, problem: bool) -> tuple[str, ...]:
    """Settings that make a difference to results, of the problem or of the strategy."""
    out = []
    for key, value in sorted(run.settings.items()):
        of_problem = key.startswith(_PROBLEM) and not key.startswith(_TUNING)
        whole_group = key.split(".")[0].split("/")[0] in ("report", "hydra", "engine")
        if key not in _NEITHER and not whole_group and of_problem == problem:
            out.append(f"{key}={value}")
    return tuple(out)


def labels(keys: Sequence[Key]) -> dict[Key, str]:
    """A short name for each key: the name alone where it is the only one, else with what sets it apart."""
    out = {}
    for name, settings in dict.fromkeys(keys):
        rivals = [set(other) for rival, other in dict.fromkeys(keys) if rival == name]
        common = set.intersection(*rivals)
        apart = [setting for setting in settings if setting not in common]
        out[name, settings] = " ".join([name, *(_last_part(setting) for setting in apart)])
    return out


def _last_part(setting: str) -> str:
    """pace.steps=50 as steps=50."""
    key, _, value = setting.partition("=")
    return f"{key.split('.')[-1]}={value}"


def _group(label: str, index: int, runs: Sequence[Run]) -> Group:
    """Of runs that differ in the seed alone: those that count and those that do not."""
    whole = [run for run in runs if run.ended]
    latest = {run.seed: run for run in (whole or runs)}
    counted = tuple(latest.values())
    reasons = tuple(
        (run, run.problem or f"same seed as {latest[run.seed].path.name}, which came later")
        for run in runs
        if run not in counted
    )
    return Group(label, index, counted, reasons, partial=not whole)


def curve(group: Group, key: str = "accuracy", against: str = "total_bytes", model: str = "served") -> Curve:
    """A score of the evaluations against a running total, over the range that every seed covers."""
    return average([(run.at_evaluations(against), run.score(key, model)) for run in group.runs])


def trace(group: Group, key: str, against: str = "round") -> Curve:
    """A figure of every record, such as battery_mean or steps_mean, against another."""
    return average([(run.column(against), run.column(key)) for run in group.runs])


def average(series: Sequence[tuple[Floats, Floats]], points: int = GRID) -> Curve:
    """Mean, lowest and highest of several lines, linear between their points, on one common grid."""
    lines = [_clean(x, y) for x, y in series]
    lines = [(x, y) for x, y in lines if x.size]
    if not lines:
        return Curve(*(np.zeros(0),) * 4)
    start, end = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    first = lines[0][0]
    same = all(np.array_equal(x, first) for x, _ in lines) and first.size <= points
    grid = first if same else np.linspace(start, end, points)
    values = np.array([np.interp(grid, x, y) for x, y in lines])
    return Curve(grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def _clean(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The points where both are known, x ascending as a running total is."""
    if x.size != y.size:
        return np.zeros(0), np.zeros(0)
    known = np.isfinite(x) & np.isfinite(y)
    return np.maximum.accumulate(x[known]), y[known]


def sorted_accuracy(group: Group, points: int = 100) -> Curve:
    """Accuracy of the devices from worst to best, against the share of devices below, in per cent."""
    return _quantiles(group, lambda run: run.per_device, points)


def lorenz(group: Group, points: int = 100) -> Curve:
    """Share of all tasks that went to the least asked devices, against the share of devices, in per cent."""
    lines = []
    for run in group.runs:
        counts = np.sort(run.counts)
        if counts.sum() > 0:
            share = np.concatenate([[0.0], np.cumsum(counts) / counts.sum()]) * 100
            lines.append((np.linspace(0, 100, share.size), share))
    return average(lines, points)


def _quantiles(group: Group, of: Callable[[Run], Floats], points: int) -> Curve:
    """Sorted values of each seed on a common grid of ranks; runs that did not keep them are left out."""
    lines = []
    for run in group.runs:
        values = np.sort(of(run))
        if values.size:
            lines.append(((np.arange(values.size) + 0.5) / values.size * 100, values))
    return average(lines, points)


def costs(group: Group, target: float, model: str = "served") -> dict[str, Floats]:
    """Cost of reaching `target`, (S,) each of bytes, joules and seconds; NaN for a seed that never did."""
    rows = []
    for run in group.runs:
        accuracy = run.score("accuracy", model)
        totals = {name: run.at_evaluations(key) for name, key in COSTS.items()}
        hit = to_target(accuracy, target, totals) if accuracy.size else None
        rows.append(hit or dict.fromkeys(COSTS, float("nan")))
    return {name: np.array([row[name] for row in rows]) for name in COSTS}
