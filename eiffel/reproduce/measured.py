"""What was measured on the runs of one data set: figures per seed, expressions over them, paired intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from eiffel.core.measures import to_target
from eiffel.core.model import Floats, Ints
from eiffel.report.read import Run
from eiffel.worlds.cluster_sims import value_of

DRAWS = 2000
"""Bootstrap samples of the seeds."""

MODELS = {"": "served", "ema_": "ema", "last_": "last"}
"""Prefix of a measure, and the model that it is taken from."""

FINALS = {"accuracy": 100.0, "variance": 1.0, "worst10": 100.0, "best10": 100.0, "jain": 1.0, "loss": 1.0}
"""Means of the last five evaluations, and the factor to their unit: per cent, x1e4, 1."""

COSTS = {"bytes": ("total_bytes", 1e6), "joules": ("total_joules", 1.0), "seconds": ("total_s", 1.0)}
"""What it cost until the target accuracy: record's key, and divisor to MB, J, s."""

TOTALS = {
    "all_bytes": ("total_bytes", 1e6),
    "all_joules": ("total_joules", 1.0),
    "wasted": ("total_joules_wasted", 1.0),
    "all_seconds": ("total_s", 1.0),
    "flat": ("flat", 1.0),
    "too_empty": ("refused.battery", 1.0),
    "took_part": ("participants", 1.0),
    "participation": ("participation_jain", 1.0),
    "done": ("round", 1.0),
}
"""At the end of the run, in MB, J, s, devices."""

TEMPO: dict[str, Callable[[Floats], float]] = {
    "tau_most": lambda x: float(x.max()),
    "tau_least": lambda x: float(x.min()),
    "tau_end": lambda x: float(x[-1]),
    "tau_mean": lambda x: float(x.mean()),
}
"""Local steps of the cohort, over the figure's rounds."""

ONCE = ("wall", "wall_per_round", "parameters")
"""Seconds of computing and the model's size."""

MEASURES: tuple[str, ...] = (
    *(prefix + name for prefix in MODELS for name in (*FINALS, *COSTS)),
    *TOTALS,
    *TEMPO,
    *ONCE,
)
MORE_IS_BETTER = ("accuracy", "worst10", "best10", "jain", "participation", "took_part", "done")


@dataclass(frozen=True)
class Interval:
    """A figure over seeds with a 95 % interval from a bootstrap over paired seeds; NaN where not known."""

    mean: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether there is a figure at all."""
        return bool(np.isfinite(self.mean))


@dataclass
class Measured:
    """The runs on one data set: name of the run to its seeds, the same seeds in the same order for all.

    ours, variants: not baselines; share, of: the target accuracy is a share of this run's own.
    """

    runs: Mapping[str, Sequence[Run]]
    ours: str
    share: float = 0.98
    of: str = "best"
    variants: tuple[str, ...] = ()
    _kept: dict[tuple[str, str, str, tuple[int, int]], Floats] = field(default_factory=dict, init=False)

    def figures(self, run: str, measure: str, target: str = "", rounds: tuple[int, int] = (1, 0)) -> Floats:
        """(S,) one figure per seed, NaN where it is not known or the target was never reached."""
        key = (run, measure, target, rounds)
        if key not in self._kept:
            goal = self.goal(target) if _bare(measure)[1] in COSTS else float("nan")
            self._kept[key] = np.array([_figure(r, measure, goal, rounds) for r in self.runs[run]])
        return self._kept[key]

    def goal(self, of: str = "") -> float:
        """The target accuracy (0..1): a share of a run's own final one, or of the best of the others'."""
        of = of or self.of
        run = self.best("accuracy") if of == "best" else of
        return self.share * float(self.figures(run, "accuracy").mean()) / 100

    def best(self, measure: str) -> str:
        """Which of the runs that are not ours has the best mean; those with unknown figures come last."""
        own = (self.ours, *self.variants)
        others = [name for name in self.runs if name not in own] or [self.ours]
        sign = -1 if _bare(measure)[1] in MORE_IS_BETTER else 1
        means = {name: sign * self.figures(name, measure).mean() for name in others}
        return min(others, key=lambda n: means[n] if np.isfinite(means[n]) else np.inf)

    def expression(
        self, value: str, terms: set[tuple[str, str]], target: str = "", rounds: tuple[int, int] = (1, 0)
    ) -> tuple[Interval, Floats]:
        """An expression over means, with its interval, and what it is on every seed (S,).

        A cost is infinite where a seed never reached the target: a ratio to it is then infinite, zero or NaN.
        """
        columns = {
            (run, m): _dear(self.figures(self.best(m) if run == "best" else run, m, target, rounds), m)
            for run, m in terms
        }

        def of(seeds: Ints) -> float:
            means: dict[str, dict[str, float]] = {}
            for (run, m), column in columns.items():
                means.setdefault(run, {})[m] = float(column[seeds].mean())
            try:
                return value_of(value, means)
            except ZeroDivisionError:
                return float("nan")

        count = len(next(iter(self.runs.values())))
        return resample(of, count), np.array([of(np.array([s])) for s in range(count)])


def _dear(column: Floats, measure: str) -> Floats:
    """In an expression a target that was never reached costs infinitely much."""
    return np.where(np.isnan(column), np.inf, column) if _bare(measure)[1] in COSTS else column


def resample(of: Callable[[Ints], float], count: int, draws: int = DRAWS, seed: int = 0) -> Interval:
    """`of(indices of seeds)` on all seeds, with a 95 % interval over seeds drawn with replacement.

    One seed has no interval. With three the interval is all but the range of the seeds.
    """
    every = np.arange(count)
    mean = of(every)
    if count < 2 or not np.isfinite(mean):
        return Interval(mean, float("nan"), float("nan"))
    drawn = np.random.default_rng(seed).integers(count, size=(draws, count))
    # A bootstrap of few seeds has few distinct samples: each is worked out once.
    kinds, times = np.unique(np.sort(drawn, axis=1), axis=0, return_counts=True)
    values = np.repeat([of(kind) for kind in kinds], times)
    low, high = np.quantile(values, [0.025, 0.975])
    return Interval(mean, float(low), float(high))


def difference(a: Floats, b: Floats) -> Interval:
    """Mean of a - b, paired."""
    return resample(lambda s: float((a[s] - b[s]).mean()), a.size)


def ratio(a: Floats, b: Floats) -> Interval:
    """Mean of a over mean of b, paired."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return resample(lambda s: float(np.divide(a[s].mean(), b[s].mean())), a.size)


def _bare(measure: str) -> tuple[str, str]:
    """Prefix of the model, and the measure without it."""
    for prefix in ("ema_", "last_"):
        if measure.startswith(prefix):
            return prefix, measure.removeprefix(prefix)
    return "", measure


def _figure(run: Run, measure: str, goal: float, rounds: tuple[int, int]) -> float:
    """One figure of one run; NaN where it is not known."""
    prefix, name = _bare(measure)
    model = MODELS[prefix]
    if name in FINALS:
        return FINALS[name] * run.final(model).get(name, float("nan"))
    if name in COSTS:
        key, unit = COSTS[name]
        accuracy = run.score("accuracy", model)
        hit = to_target(accuracy, goal, {name: run.at_evaluations(key)}) if accuracy.size else None
        return hit[name] / unit if hit else float("nan")
    if name in TOTALS:
        key, unit = TOTALS[name]
        column = run.column(key)
        # A reason that nobody was refused for is not in the record.
        column = np.nan_to_num(column) if name == "too_empty" else column
        return float(column[-1]) / unit if column.size else float("nan")
    if name in TEMPO:
        first, last = rounds
        column = run.column("steps_mean")[first - 1 : last or None]
        column = column[np.isfinite(column)]
        return TEMPO[name](column) if column.size else float("nan")
    wall = float(run.summary.get("wall_s") or "nan")
    if name == "parameters":
        return float(run.summary.get("parameters") or "nan")
    return wall / max(1, len(run.records)) if name == "wall_per_round" else wall
