"""Gavel's traces (tab-separated, no header) with its measured throughputs (JSON), and its trace generator.

Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads", OSDI 2020;
stanford-futuredata/gavel. Two layouts of the trace exist and are told apart by their width:

    10 fields: job type, command, directory, steps argument, needs data, steps, gang, weight, SLO, arrival (s)
     7 fields: job type, command, steps argument, needs data, steps, arrival (s), gang   (the
     Philly-derived ones)
"""

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eiffel.core.jobs import Trace
from eiffel.worlds.traces.lengths import EPOCHS
from eiffel.worlds.traces.options import Options
from eiffel.worlds.traces.reading import Floats, Ints, Table, TraceError, find, first_line, read_table

OPTIONS = ("path", "throughputs", "unknown", "spread")
GENERATOR_OPTIONS = ("throughputs", "spread", "hours", "multi_gpu")
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
    """Read a throughput file. `missing`: spread/rate where there is no `*_unconsolidated` entry. Raises
    TraceError.
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

    A (job type, gang) without a throughput is an error (`unknown: error`) or its jobs are left out
    (`unknown: drop`).
    Steps/s over several nodes come from the *_unconsolidated entries, else they are `spread` (0.75) of the
    others.
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
    return _trace(table.row, arrival, work, gang, weight, kinds, row, speeds, types)


def _lines(path: str) -> Table:
    width = len(first_line(path, "\t"))
    if width not in (len(WIDE), len(NARROW)):
        problem = (
            f"{width} tab-separated fields where Gavel's traces have 10 or 7; choose another trace.format"
        )
        raise TraceError(problem, file=find(path), line=1)
    return read_table(path, (), WIDE if width == len(WIDE) else NARROW, delimiter="\t")


def _trace(
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
    ids, epochs = tuple(map(str, order.tolist())), np.full(len(order), EPOCHS)
    rate, spread = speeds.rate[row], speeds.spread[row]
    return Trace(ids, arrival, work, gang, epochs, weight, rate, spread, tuple(types), tuple(kinds))


def generate(options: Options, types: Sequence[str]) -> Trace:
    """Make the trace that Gavel's generate_trace.py makes with these options (same random streams, same
    jobs).

    jobs (480), seed, gap (mean s between arrivals; 0: all at once), hours (run times on a V100 to draw
    from: half an
    hour to four), multi_gpu (gangs of 1, 2, 4 at 70, 10 and 20 %). Needs the V100 throughputs of all 26
    job types.
    """
    path, missing = options.text("throughputs"), options.number("spread", MISSING_SPREAD)
    speeds, reference = throughputs(path, types, missing), throughputs(path, ["v100"], missing)
    kinds, gang, seconds, arrival = _drawn(options)
    row = reference.of(kinds, gang)
    if np.any(row < 0):
        lost = kinds[int(np.argmin(row))]
        raise TraceError(
            f"no throughput for {lost}, which the generator draws", file=path, field="throughputs"
        )
    work = np.floor(seconds * reference.rate[row, 0])
    order, weight = np.arange(len(kinds)), np.ones(len(kinds))
    return _trace(order, arrival, work, gang, weight, kinds, speeds.of(kinds, gang), speeds, types)


def _drawn(options: Options) -> tuple[list[str], Ints, Floats, Floats]:
    """Draw (job type, gang, seconds, arrival) as Gavel does: four streams of Python's generator, seeds 0
    to 3 apart.
    """
    seed, gap = options.whole("seed", 0), options.number("gap", 0.0)
    kind, wait, last, size = (random.Random(seed + k) for k in range(4))
    hours, several = _hours(options), options.flag("multi_gpu", True)
    jobs: list[tuple[str, int, float, float]] = []
    clock = 0.0
    for k in range(options.whole("jobs", 480, low=1)):
        name, distributed = kind.choice(MENU)
        gang = _scale(size) if several and distributed else 1
        seconds = 3600 * last.choice(hours)
        clock += -math.log(1.0 - wait.random()) * gap if k and gap > 0 else 0.0
        jobs.append((name, gang, seconds, math.floor(clock)))
    names, gangs, times, arrivals = zip(*jobs, strict=True)
    return list(names), np.array(gangs, np.int64), np.array(times, float), np.array(arrivals, float)


def _hours(options: Options) -> list[float]:
    given = options.values.get("hours")
    hours = [0.5 * k for k in range(1, 9)] if given is None else [float(h) for h in given]
    if not hours or min(hours) <= 0:
        raise options.fault("hours", f"{hours} must be a list of run times above 0")
    return hours


def _scale(rng: random.Random) -> int:
    share = rng.uniform(0, 1)
    return 2 if 0.7 <= share <= 0.8 else 4 if share >= 0.8 else 1


def _batches(model: str, several: bool, sizes: Sequence[int]) -> list[tuple[str, bool]]:
    return [(f"{model} (batch size {size})", several) for size in sizes]


# Gavel's 26 job types in its order (the generator draws by position), and whether they train on several GPUs.
MENU = (
    *_batches("ResNet-18", True, (16, 32, 64, 128, 256)),
    *_batches("ResNet-50", True, (16, 32, 64, 128)),
    *_batches("Transformer", True, (16, 32, 64, 128, 256)),
    *_batches("LM", True, (5, 10, 20, 40, 80)),
    *_batches("Recommendation", False, (512, 1024, 2048, 4096, 8192)),
    ("A3C", False),
    ("CycleGAN", False),
)
