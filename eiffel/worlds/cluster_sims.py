"""Reproducible results as data: a file names runs, ratios of their measures, bounds, and published figures.

A file `sims/<name>.yaml` of kind `cluster` has
    cases    traces, clusters and settings; a case may be a grid (`for: {seed: [0, 1], load: [2, 4]}`), whose
             values replace `${seed}` in it
             A case may say `overstated: 0.6`: that share of the jobs declares more work than it does, which is
             U(0.2, 1) of what was declared
    runs     policies by name, with their options and, if they differ, settings
    figures  name: {case, value, bound, each, published, remark, missed}: `value` is an expression over runs and
             measures such as `gavel.ttd / hadar.ttd`, worked out per case; `bound: ">= 1.18"` judges the mean
             and `each: ">= 1.17"` every single one
"""

import ast
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eiffel.core.bounds import completion, makespan
from eiffel.core.jobs import Floats, Nodes, Trace
from eiffel.core.measures_jobs import JobMeasures, isolated_jct, measure
from eiffel.schedule import policy
from eiffel.worlds.cluster import simulate
from eiffel.worlds.cluster_estimates import Wrong
from eiffel.worlds.cluster_run import ClusterRun
from eiffel.worlds.traces import load_nodes, load_trace, stop_early

OPERATORS: Mapping[type, Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a result: what was measured, what it was to be, what the paper says."""

    name: str
    setting: str  # the case
    measured: tuple[float, ...]  # one per case of the grid
    bound: str  # on the mean, "" if none
    each: str  # on every one, "" if none
    published: str
    remark: str

    @property
    def mean(self) -> float:
        """Mean over the cases."""
        return float(np.mean(self.measured))


@dataclass(frozen=True, slots=True)
class Case:
    """One setting: the workload, the cluster, and what does not depend on the policy."""

    trace: Trace
    nodes: Nodes
    declared: Floats
    fair: Floats  # (J,) s, JCT in isolation
    settings: Mapping[str, Any]
    limits: Mapping[str, float]  # lb_ttd, lb_jct: h


def evaluate(
    spec: Mapping[str, Any], data: Path, report: Callable[[str], None] | None = None
) -> list[Figure]:
    """Run everything that a sims file asks for and return its figures.

    data: folder that `${data}` stands for. report: called with a line per run. Each (case, run) runs once,
    however many figures use it. Raises ValueError for names that do not exist.
    """
    figures: list[Figure] = []
    done: dict[tuple[str, str], dict[str, float]] = {}
    cases: dict[str, list[tuple[str, Case]]] = {}
    for name, entry in spec["figures"].items():
        used = sorted(set(re.findall(r"\b([a-z_][a-z_0-9]*)\.", entry["value"])) - {"limit"})
        unknown = [run for run in used if run not in spec["runs"]]
        if unknown:
            raise ValueError(f"figures.{name}: no run {unknown[0]!r}; there are {', '.join(spec['runs'])}")
        measured = []
        for label in _listed(entry["case"]):
            if label not in spec["cases"]:
                raise ValueError(f"figures.{name}: no case {label!r}; there are {', '.join(spec['cases'])}")
            if label not in cases:
                cases[label] = [(f"{label} {k}", make_case(c, data)) for k, c in expand(spec["cases"][label])]
            for key, case in cases[label]:
                values = {"limit": dict(case.limits)}
                for run in used:
                    if (key, run) not in done:
                        done[key, run] = asdict(run_case(case, spec["runs"][run]))
                        if report:
                            report(
                                f"{key}: {run} jct {done[key, run]['jct_mean']:.3f} h ttd {done[key, run]['ttd']:.2f} h"
                            )
                    values[run] = done[key, run]
                measured.append(value_of(entry["value"], values))
        figures.append(
            Figure(
                name,
                ", ".join(_listed(entry["case"])),
                tuple(measured),
                entry.get("bound", ""),
                entry.get("each", ""),
                str(entry.get("published", "")),
                entry.get("remark", ""),
            )
        )
    return figures


def expand(case: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (label, case) for every combination of the values under `for`."""
    grid = case.get("for", {})
    plain = {k: v for k, v in case.items() if k != "for"}
    for values in itertools.product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        yield " ".join(f"{k}={v}" for k, v in chosen.items()), _filled(plain, chosen)


def make_case(case: Mapping[str, Any], data: Path) -> Case:
    """Load the trace and the cluster of one case."""
    case = _filled(case, {"data": str(data)})
    nodes = load_nodes(case["cluster"])
    trace = load_trace(case["trace"], nodes.types, nodes)
    declared = trace.work
    if "overstated" in case:
        shorter, said = stop_early(trace, float(case["overstated"]), int(case["trace"].get("seed", 0)))
        declared = trace.work * np.where(shorter.work > 0, said / np.maximum(shorter.work, 1e-300), 1.0)
    limits = {"lb_ttd": makespan(trace, nodes) / 3600, "lb_jct": completion(trace, nodes) / 3600}
    return Case(trace, nodes, declared, isolated_jct(trace, nodes), case.get("settings", {}), limits)


def run_case(case: Case, run: Mapping[str, Any]) -> JobMeasures:
    """Run one policy on one case and measure it."""
    options = {k: v for k, v in run.items() if k not in ("policy", "settings")}
    settings = {**case.settings, **run.get("settings", {})}
    if "error" in settings:
        settings["estimates"] = Wrong(float(settings.pop("error")), int(settings.pop("error_seed", 0)))
    done = simulate(
        case.trace, case.nodes, policy(run["policy"], **options), declared=case.declared, **settings
    )
    if not done.complete:
        raise ValueError(f"{run['policy']}: the run did not end")
    return measures(done, case.fair)


def measures(run: ClusterRun, fair: Floats | None = None) -> JobMeasures:
    """The measures of a run of the cluster world."""
    return measure(
        run.trace, run.nodes, start=run.start, finish=run.finish, ran=run.ran, busy=run.busy,
        useful=float(run.timeline.useful.sum()), moves=run.moves.astype(float),
        preemptions=run.preemptions.astype(float), admitted=run.admitted, decision_s=run.timeline.decision, fair=fair,
    )  # fmt: skip


def value_of(expression: str, values: Mapping[str, Mapping[str, float]]) -> float:
    """Work out `a.x / b.y` and the like: + - * /, brackets, numbers, run.measure. Raises ValueError else."""

    def walk(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](walk(node.left), walk(node.right))
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            measures_of = values.get(node.value.id, {})
            if node.attr in measures_of:
                return float(measures_of[node.attr])
            raise ValueError(f"{expression!r}: no measure {node.attr!r}; there are {', '.join(measures_of)}")
        raise ValueError(f"{expression!r}: only numbers, + - * / and run.measure are understood")

    return walk(ast.parse(expression, mode="eval").body)


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _filled(value: Any, names: Mapping[str, Any]) -> Any:
    """Replace ${name} throughout; a value that is nothing but ${name} keeps the type."""
    if isinstance(value, Mapping):
        return {k: _filled(v, names) for k, v in value.items()}
    if isinstance(value, list):
        return [_filled(v, names) for v in value]
    if isinstance(value, str):
        for name, new in names.items():
            if value == f"${{{name}}}":
                return new
            value = value.replace(f"${{{name}}}", str(new))
    return value
