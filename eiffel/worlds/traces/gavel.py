"""Gavel's traces (tab-separated, no header) with its measured throughputs (JSON).

Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads", OSDI 2020;
stanford-futuredata/gavel. Two layouts of the trace exist and are told apart by their width:

    10 fields: job type, command, directory, steps argument, needs data, steps, gang, weight, SLO, arrival (s)
     7 fields: job type, command, steps argument, needs data, steps, arrival (s), gang   (the Philly-derived)
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eiffel.core.jobs import Trace
from eiffel.worlds.traces.lengths import EPOCHS
from eiffel.worlds.traces.options import Options
from eiffel.worlds.traces.reading import Floats, Ints, Table, TraceError, find, first_line, read_table

OPTIONS = ("path", "throughputs", "unknown", "spread")
WIDE = (
    *("job_type", "command", "directory", "steps_arg", "needs_data", "total_steps"),
    *("scale_factor", "priority_weight", "slo", "arrival_time"),
)
NARROW = ("job_type", "command", "steps_arg", "needs_data", "total_steps", "arrival_time", "scale_factor")
MISSING_SPREAD = 0.75  # ours: what a gang over several nodes keeps where Gavel has no unconsolidated figure


@dataclass(frozen=True, slots=True)
class Throughputs:
    """Gavel's throughput file for some device types, R of them."""

    row: Mapping[tuple[str, int], int]  # (job type, gang) -> row
    rate: Floats  # (K, R) steps/s of the gang on one node
    spread: Floats  # (K, R) steps/s over several nodes

    def of(self, kinds: Sequence[str], gang: Ints) -> Ints:
        """Return the row of each job, -1 where there is none."""
        pairs = zip(kinds, gang.tolist(), strict=True)
        return np.array([self.row.get(pair, -1) for pair in pairs], dtype=np.int64)


def throughputs(path: str, types: Sequence[str], missing: float = MISSING_SPREAD) -> Throughputs:
    """Read a throughput file. `missing`: spread / rate where it has no `*_unconsolidated` entry.

    Raises TraceError for what is not JSON, a device type that it lacks, an entry that is no speed.
    """
    file = find(path)
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"not JSON: {error}", file=file, line=getattr(error, "lineno", None)) from None
    for name in types:
        if not isinstance(data, dict) or name not in data:
            there = ", ".join(data) if isinstance(data, dict) else "no device types at all"
            raise TraceError(
                f"no throughputs for this device type; the file has {there}", file=file, field=name
            )
    keys = list(data[types[0]]) if types else []
    rate = np.array([[_alone(file, data, t, k) for t in types] for k in keys]).reshape(len(keys), len(types))
    apart = np.array([[_apart(file, data, t, k, missing) for t in types] for k in keys]).reshape(rate.shape)
    return Throughputs({_parsed(file, key): k for k, key in enumerate(keys)}, rate, apart)


def _alone(
    file: object, data: Mapping[str, Mapping[str, Mapping[str, object]]], name: str, key: str
) -> float:
    value = data[name].get(key, {}).get("null")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        problem = f"{key} has {value!r} for 'null' (alone on its GPUs); give steps/s, 0 = cannot run"
        raise TraceError(problem, file=file, field=name)
    return float(value)


def _apart(
    file: object, data: Mapping[str, Mapping[str, Mapping[str, object]]], name: str, key: str, missing: float
) -> float:
    other = f"{name}_unconsolidated"
    if key in data.get(other, {}):
        return _alone(file, data, other, key)
    return _alone(file, data, name, key) * (1.0 if key.endswith(", 1)") else missing)


def _parsed(file: object, key: str) -> tuple[str, int]:
    """Return (job type, gang) of a key such as "('ResNet-18 (batch size 16)', 2)"."""
    name, _, gang = key.removeprefix("('").removesuffix(")").rpartition("', ")
    if not gang.isdigit() or not key.startswith("('"):
        raise TraceError(f"key {key!r} does not read ('job type', gang)", file=file, field="job type")
    return name, int(gang)


def read(options: Options, types: Sequence[str]) -> Trace:
    """Read a trace and its throughputs. Ids are the line order, from 0, as in Gavel's simulator.

    A (job type, gang) without a throughput is an error (`unknown: error`), or its jobs are left out
    (`unknown: drop`). Steps/s over several nodes are the *_unconsolidated entries, else `spread` (0.75) times
    the others.
    """
    table = _lines(options.text("path"))
    speeds = throughputs(options.text("throughputs"), types, options.number("spread", MISSING_SPREAD))
    row = speeds.of(table.text("job_type"), table.whole("scale_factor", low=1))
    if options.choice("unknown", ("error", "drop"), "error") == "error":
        lost = f"{int((row < 0).sum())} of {len(table)} jobs"
        cure = f"has no throughput at its gang size; set trace.unknown=drop to leave such jobs out ({lost})"
        table.must(row >= 0, "job_type", cure)
    table, row = table.keep(row >= 0), row[row >= 0]
    weight = table.number("priority_weight") if table.has("priority_weight") else np.ones(len(table))
    table.must(weight > 0, "priority_weight", "is not above 0; give 1 for a job like the others")
    arrival, work = table.number("arrival_time"), table.number("total_steps")
    gang, kinds = table.whole("scale_factor", low=1), table.text("job_type")
    return trace_of(table.row, arrival, work, gang, weight, kinds, row, speeds, types)


def _lines(path: str) -> Table:
    width = len(first_line(path, "\t"))
    if width not in (len(WIDE), len(NARROW)):
        problem = (
            f"{width} tab-separated fields where Gavel's traces have 10 or 7; choose another trace.format"
        )
        raise TraceError(problem, file=find(path), line=1)
    return read_table(path, (), WIDE if width == len(WIDE) else NARROW, delimiter="\t")


def trace_of(
    order: Ints,
    arrival: Floats,
    work: Floats,
    gang: Ints,
    weight: Floats,
    kinds: Sequence[str],
    row: Ints,
    speeds: Throughputs,
    types: Sequence[str],
) -> Trace:
    """Put the columns of J jobs together; `row` (J,) says where each job's rates are in `speeds`."""
    ids, epochs = tuple(map(str, order.tolist())), np.full(len(order), EPOCHS)
    rate, spread = speeds.rate[row], speeds.spread[row]
    return Trace(ids, arrival, work, gang, epochs, weight, rate, spread, tuple(types), tuple(kinds))
