"""Alibaba's GPU traces: tasks of 2020 (pai_task_table.csv) and pods of 2023 (openb_pod_list_*.csv).

Weng et al., "MLaaS in the wild", NSDI 2022; Weng et al., "Beware of fragmentation", ATC 2023.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from eiffel.core.jobs import Trace
from eiffel.worlds.traces.lengths import from_lengths
from eiffel.worlds.traces.options import Options
from eiffel.worlds.traces.reading import Bools, Floats, Table, first_line, read_table

OPTIONS = ("path", "jobs_path", "statuses", "shared")
POD_COLUMNS = ("name", "num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time")
TASK_COLUMNS = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")


def read(options: Options, types: Sequence[str]) -> Trace:
    """Read either trace; the columns tell which it is."""
    columns = first_line(options.text("path"))
    return _pods(options, types) if "num_gpu" in columns else _tasks(options, types)


def _pods(options: Options, types: Sequence[str]) -> Trace:
    """Read 2023: a pod is a job of `deletion - scheduled` s. Left out: CPU pods, pods never scheduled.

    A pod that shares a GPU (gpu_milli < 1000) counts as a whole one (`shared: whole`) or is left out
    (`shared: drop`). A pod with a gpu_spec runs on those types only.
    """
    table = read_table(options.text("path"), POD_COLUMNS)
    ran = np.array([bool(v.strip()) for v in table.text("scheduled_time")], dtype=bool)
    table = table.keep(ran)
    table = table.keep(table.whole("num_gpu") > 0)
    if options.choice("shared", ("whole", "drop"), "whole") == "drop":
        table = table.keep(table.number("gpu_milli") >= 1000)
    seconds = table.number("deletion_time") - table.number("scheduled_time")
    table.must(seconds >= 0, "deletion_time", "is before scheduled_time")
    ids, gang = table.unique("name"), table.whole("num_gpu", low=1)
    trace = from_lengths(ids, table.number("creation_time"), seconds, gang, options, types)
    return _on_specified(trace, table, ids)


def _on_specified(trace: Trace, table: Table, ids: Sequence[str]) -> Trace:
    if not table.has("gpu_spec"):
        return trace
    spec = dict(zip(ids, table.text("gpu_spec"), strict=True))
    allowed = np.array([_allows(spec[i], trace.types) for i in trace.id]).reshape(trace.rate.shape)
    return replace(trace, rate=trace.rate * allowed, spread=trace.spread * allowed)


def _allows(spec: str, types: Sequence[str]) -> list[bool]:
    wanted = {name.strip().lower() for name in spec.split("|")} - {"", "nan"}
    return [not wanted or name.lower() in wanted for name in types]


def _tasks(options: Options, types: Sequence[str]) -> Trace:
    """Read 2020: a job is all GPU tasks of one job_name, from the first start to the last end.

    gang = sum of inst_num * plan_gpu / 100, rounded up. Left out: tasks without GPU, or of other `statuses`
    than Terminated. The job table, if `jobs_path` gives it, says when a job was submitted.
    """
    table = _headed(options.text("path"), TASK_COLUMNS)
    table = table.keep(np.isin(np.array(table.text("status")), options.names("statuses") or ["Terminated"]))
    table = table.keep(np.array([_positive(v) for v in table.text("plan_gpu")], dtype=bool))
    start, end = table.number("start_time"), table.number("end_time")
    table.must(end >= start, "end_time", "is before start_time")
    names, job = np.unique(np.array(table.text("job_name")), return_inverse=True)
    gpus = np.bincount(job, table.number("inst_num") * table.number("plan_gpu") / 100, len(names))
    first, last = np.full(len(names), np.inf), np.zeros(len(names))
    np.minimum.at(first, job, start)
    np.maximum.at(last, job, end)
    gang = np.maximum(1, np.ceil(gpus - 1e-9)).astype(np.int64)
    submitted = _submitted(options, names.tolist(), first)
    return from_lengths(names.tolist(), submitted, last - first, gang, options, types)


def _submitted(options: Options, names: Sequence[str], first: Floats) -> Floats:
    if not options.given("jobs_path"):
        return first
    table = _headed(options.text("jobs_path"), JOB_COLUMNS)
    table = table.keep(np.isin(np.array(table.text("job_name")), list(names)))
    when = dict(zip(table.text("job_name"), table.number("start_time").tolist(), strict=True))
    return np.array([when.get(name, at) for name, at in zip(names, first.tolist(), strict=True)])


def _headed(path: str, columns: Sequence[str]) -> Table:
    """Read a table whose header line may be in a file of its own, as Alibaba ships them."""
    return read_table(path, columns, None if columns[0] in first_line(path) else columns)


def _positive(value: str) -> Bools | bool:
    try:
        return float(value) > 0
    except ValueError:
        return bool(value.strip())  # let Table.number name the line
