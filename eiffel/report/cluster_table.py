"""The figures of cluster runs, which the terminal and the page show alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eiffel.report.cluster_folder import Saved, load
from eiffel.report.cluster_gather import Rival, Workload, seeds_text, workloads
from eiffel.report.console import aligned
from eiffel.report.units import digits, factor


@dataclass(frozen=True, slots=True)
class Column:
    """A figure: its name in `measures`, its head, the factor for people, and what it means."""

    name: str
    head: str
    unit: str
    meaning: str
    scale: float = 1.0
    less: bool = True  # whether less is better

    def text(self, value: float) -> str:
        """The figure with three digits, a dash where it is not known."""
        return digits(value * self.scale)


COLUMNS = (
    Column("ttd", "TTD", "h", "total time duration (makespan): first arrival to last end"),
    Column("jct_mean", "JCT mean", "h", "job completion time: arrival to end"),
    Column("jct_median", "median", "h", "of the job completion times"),
    Column("jct_p95", "95 %", "h", "of the job completion times"),
    Column("queue_mean", "queueing", "h", "completion time less the time in which steps were done"),
    Column(
        "rho_mean", "FTF", "", "finish-time fairness: completion time over that in an equal isolated part"
    ),
    Column(
        "cru", "CRU", "%", "cluster utilisation: share of the GPU time to the end that jobs held", 100, False
    ),
    Column("gru", "GRU", "%", "GPU utilisation: share of it in which steps were done", 100, False),
    Column("preemptions_mean", "preempted", "/job", "times a job was stopped before its end"),
    Column("moves_mean", "starts", "/job", "starts and moves that cost a restart"),
    Column("decision_ms_mean", "decision", "ms", "time that a decision took, mean"),
)
LIMITED = ("ttd", "jct_mean")
"""Figures that have a physical limit beside them."""


def table(paths: Sequence[Path]) -> str:
    """Compare cluster runs in a few lines of text."""
    found = [load(path) for path in paths]
    parts = [_workload(workload) for workload in workloads(found)]
    trouble = [f"! {run.path}: {run.problem.removeprefix(f'{run.path}: ')}" for run in found if run.problem]
    return "\n\n".join([*(parts or ["no run has results yet"]), *(["\n".join(trouble)] if trouble else [])])


def facts(workload: Workload) -> str:
    """What was run, in one line."""
    run = workload.first.runs[0]
    cluster = run.summary["cluster"]
    types = ", ".join(f"{count} {kind}" for kind, count in cluster["types"].items())
    slot = f"{run.settings.get('mode', 'slot')} mode, slots of {run.settings.get('slot_s', '?').removesuffix('.0')} s"
    return (
        f"{run.jobs_count:,} jobs, {cluster['gpus']:,} GPUs ({types}), {slot}, {seeds_text(workload.rivals)}"
    )


def _workload(workload: Workload) -> str:
    """One trace and cluster."""
    heads = ["policy", *(f"{c.head} {c.unit}".strip() for c in COLUMNS)]
    rows = [heads]
    for rival in workload.rivals:
        rows.append([rival.label, *(c.text(rival.mean(c.name)) + _against(rival, c.name) for c in COLUMNS)])
    limits = [c.text(workload.limit(c.name)) if c.name in LIMITED else "" for c in COLUMNS]
    if np.isfinite([workload.limit(name) for name in LIMITED]).any():
        rows.append(["limit", *limits])
    notes = "in brackets: times the limit, which no schedule beats"
    lines = [f"{workload.title}: {facts(workload)}", "", *aligned(rows), notes, *_unended(workload)]
    if len(workload.rivals) > 1:
        lines += [_gains(workload)]
    return "\n".join(lines)


def _against(rival: Rival, name: str) -> str:
    """Times the limit, in brackets."""
    ratio = rival.ratio(name) if name in LIMITED else np.nan
    return f" ({factor(ratio)})" if np.isfinite(ratio) else ""


def _gains(workload: Workload) -> str:
    """Ratios to the first policy, in a line each."""
    first, lines = workload.first.label, []
    for rival in workload.rivals[1:]:
        ratios = [(c, workload.gain(rival, c.name)) for c in COLUMNS[:6] if c.name != "jct_median"]
        said = ", ".join(f"{c.head} {factor(r)}x" for c, r in ratios if np.isfinite(r))
        lines.append(f"  {rival.label}: {said}")
    return "\n".join([f"{first}'s figure over that of the others (above 1: theirs is smaller)", *lines])


def _unended(workload: Workload) -> list[str]:
    """Jobs that were refused or did not end, which the means do not count."""
    out = []
    for rival in workload.rivals:
        jobs, ended, rejected = (rival.measures(name).sum() for name in ("jobs", "ended", "rejected"))
        if rejected:
            out.append(f"! {rival.label}: {rejected:.0f} jobs were refused (eiffel explain says why)")
        if jobs - ended - rejected > 0:
            out.append(
                f"! {rival.label}: {jobs - ended - rejected:.0f} jobs did not end; means leave them out"
            )
    return out


def complaints(runs: Sequence[Saved], found: Sequence[Workload]) -> list[str]:
    """A line for each run that is not whole, or does not count."""
    left = {run.path: why for w in found for rival in w.rivals for run, why in rival.left_out}
    reasons = {run.path: run.problem or left.get(run.path) for run in runs}
    return [f"{path}: {why.removeprefix(f'{path}: ')}" for path, why in reasons.items() if why]
