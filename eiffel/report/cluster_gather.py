"""Cluster runs gathered for comparison: workloads, policies within them, seeds within those.

Runs belong to one workload when trace, cluster and every other setting are the same; to one policy when its card
is. What is left differs in the seed alone, and is averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eiffel.core.model import Floats
from eiffel.report.cluster_folder import Saved
from eiffel.report.gather import Key, labels

_NEITHER = ("seed", "trace.seed", "progress", "bounds", "strategies.name")
"""Settings that change no result, or what is averaged over, or known by name."""


@dataclass(frozen=True)
class Rival:
    """One policy on one workload: its runs that count, one a seed, and those that do not, with the reason.

    index: place among all series of the page, which sets its colour.
    """

    label: str
    index: int
    runs: tuple[Saved, ...]
    left_out: tuple[tuple[Saved, str], ...] = ()

    def measures(self, name: str) -> Floats:
        """(S,) a figure of every seed."""
        return np.array([run.measure(name) for run in self.runs])

    def mean(self, name: str) -> float:
        """A figure, mean over seeds."""
        return float(self.measures(name).mean())

    def ratio(self, name: str) -> float:
        """A figure over its physical limit, mean over seeds."""
        return float(np.mean([run.ratio(name) for run in self.runs]))

    def pooled(self, values: Sequence[Floats]) -> Floats:
        """Sorted finite values of all seeds together."""
        every = np.concatenate([np.asarray(v, float) for v in values]) if values else np.zeros(0)
        return np.sort(every[np.isfinite(every)])


@dataclass(frozen=True)
class Workload:
    """Policies that were tried on the same jobs and nodes, the first one first."""

    title: str
    rivals: tuple[Rival, ...]

    @property
    def first(self) -> Rival:
        """The one that others are compared with."""
        return self.rivals[0]

    def limit(self, name: str) -> float:
        """The physical limit of a figure, mean over the first policy's seeds."""
        return float(np.mean([run.bound(name) for run in self.first.runs]))

    def gain(self, rival: Rival, name: str) -> float:
        """How many times the first policy's figure this one's is smaller: mean over first / mean over rival.

        Over the seeds that both have; NaN where there are none.
        """
        mine = {run.seed: run.measure(name) for run in rival.runs}
        base = {run.seed: run.measure(name) for run in self.first.runs}
        both = [seed for seed in base if seed in mine]
        below = sum(mine[seed] for seed in both)
        return sum(base[seed] for seed in both) / below if both and below else float("nan")


def workloads(runs: Sequence[Saved], first: int = 0) -> list[Workload]:
    """Sort runs into workloads and policies, in the order in which they come. first: index of the first policy."""
    whole = [run for run in runs if run.problem is None]
    keys = {run.path: (_workload_key(run), _policy_key(run)) for run in whole}
    names, titles = labels([k for _, k in keys.values()]), labels([k for k, _ in keys.values()])
    order = {label: first + i for i, label in enumerate(dict.fromkeys(names.values()))}
    found = []
    for where in dict.fromkeys(key for key, _ in keys.values()):
        here = [run for run in whole if keys[run.path][0] == where]
        rivals = [
            _rival(names[key], order[names[key]], [run for run in here if keys[run.path][1] == key])
            for key in dict.fromkeys(keys[run.path][1] for run in here)
        ]
        found.append(Workload(titles[where], tuple(rivals)))
    return found


def _workload_key(run: Saved) -> Key:
    """Trace, cluster, and how they were run."""
    return run.where, _settings(run, policy=False)


def _policy_key(run: Saved) -> Key:
    """The card."""
    return run.strategy, _settings(run, policy=True)


def _settings(run: Saved, policy: bool) -> tuple[str, ...]:
    """Settings that make a difference to results, of the policy or of the workload."""
    return tuple(
        f"{key}={value}"
        for key, value in sorted(run.settings.items())
        if key not in _NEITHER and key.startswith("strategies.") == policy
    )


def _rival(label: str, index: int, runs: Sequence[Saved]) -> Rival:
    """Of runs that differ in the seed alone the latest of each seed counts."""
    latest = {run.seed: run for run in runs}
    left_out = tuple(
        (run, f"same seed as {latest[run.seed].path.name}, which came later")
        for run in runs
        if latest[run.seed] is not run
    )
    return Rival(label, index, tuple(latest.values()), left_out)


def seeds_text(rivals: Sequence[Rival]) -> str:
    """How many seeds, and which."""
    seeds = list(dict.fromkeys(run.seed for rival in rivals for run in rival.runs))
    shown = ", ".join(seeds) if len(seeds) <= 8 else f"{', '.join(seeds[:7])}, …"
    return f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''} ({shown})"
