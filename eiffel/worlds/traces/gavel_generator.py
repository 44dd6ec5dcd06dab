"""Gavel's trace generator (scheduler/scripts/utils/generate_trace.py), re-made draw for draw.

Its evaluations use seeds whose traces are not all published as files; this makes them, equal job by job.
"""

import math
import random
from collections.abc import Sequence

import numpy as np

from eiffel.core.jobs import Trace
from eiffel.worlds.traces import gavel
from eiffel.worlds.traces.options import Options
from eiffel.worlds.traces.reading import Floats, Ints, TraceError

OPTIONS = ("throughputs", "spread", "hours", "multi_gpu")


def read(options: Options, types: Sequence[str]) -> Trace:
    """Make the trace that Gavel's generator makes with these options: same random streams, same jobs.

    jobs (480), seed, gap (mean s between arrivals; 0: all at once), hours (run times on a V100 to draw from:
    half an hour to four), multi_gpu (gangs of 1, 2, 4 at 70, 10 and 20 %). Needs the V100 throughputs of all
    26 job types. Raises TraceError.
    """
    path, missing = options.text("throughputs"), options.number("spread", gavel.MISSING_SPREAD)
    speeds, reference = gavel.throughputs(path, types, missing), gavel.throughputs(path, ["v100"], missing)
    kinds, gang, seconds, arrival = _drawn(options)
    row = reference.of(kinds, gang)
    if np.any(row < 0):
        lost = kinds[int(np.argmin(row))]
        raise TraceError(
            f"no throughput for {lost}, which the generator draws", file=path, field="throughputs"
        )
    work = np.floor(seconds * reference.rate[row, 0])
    order, weight = np.arange(len(kinds)), np.ones(len(kinds))
    return gavel.trace_of(order, arrival, work, gang, weight, kinds, speeds.of(kinds, gang), speeds, types)


def _drawn(options: Options) -> tuple[list[str], Ints, Floats, Floats]:
    """Draw (job type, gang, s, arrival) as Gavel does: four generators, seeds 0 to 3 apart."""
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
