"""Made-up workloads: how long jobs are, how many GPUs they want, what they train. Arrivals are `shape`'s
business.

Run times are seconds on the reference device; `lengths.kind` says how they are drawn:

    uniform    hours: [low, high]
    choice     hours: [0.5, 1, ...], equally likely
    lognormal  median_hours, sigma
    gavel      10^x minutes, x uniform in [1.5, 3] for four jobs in five and in [3, 4] for the fifth: the
    Philly
               durations as Gavel (OSDI 2020, scheduler/utils.py) draws them
    philly     the run times of 82,247 Philly jobs (Jeon et al., ATC 2019), by 18 of their quantiles
    classes    shares: {S, M, L, XL} of jobs of 0-1, 1-10, 10-50, 60-100 GPU-hours, uniform within the class
               (the classes of Hadar's evaluation, from memory, unverified)
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from eiffel.core.jobs import Trace
from eiffel.worlds.traces.lengths import from_lengths
from eiffel.worlds.traces.options import Options
from eiffel.worlds.traces.reading import Floats, Ints

OPTIONS = ("lengths", "gangs")
HOUR = 3600.0
KINDS = ("uniform", "choice", "lognormal", "gavel", "philly", "classes")
GANGS = {1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05}  # Gavel's reading of Philly (scheduler/utils.py)
CLASSES = {"S": (0.0, 1.0), "M": (1.0, 10.0), "L": (10.0, 50.0), "XL": (60.0, 100.0)}  # GPU-hours
# Quantiles of `duration` in AdaptDL's philly.csv, s.
PHILLY_SHARE = (
    *(0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    *(0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0),
)
PHILLY_SECONDS = (
    *(1, 17, 48, 61, 75, 209, 599, 1144, 1821),
    *(2549, 4244, 11266, 43648, 147876, 254884, 430658, 1186475, 4628226),
)


def read(options: Options, types: Sequence[str]) -> Trace:
    """Draw `jobs` jobs (seeded), all arriving at 0."""
    rng = np.random.default_rng([options.whole("seed", 0), 10])
    jobs = options.whole("jobs", 480, low=1)
    gang = _gangs(jobs, options, rng)
    seconds = _seconds(gang, Options(options.values.get("lengths") or {}, "trace.lengths"), rng)
    return from_lengths([str(k) for k in range(jobs)], np.zeros(jobs), seconds, gang, options, types)


def _gangs(jobs: int, options: Options, rng: np.random.Generator) -> Ints:
    share = options.shares("gangs", GANGS)
    if not all(name.isdigit() and int(name) > 0 for name in share):
        raise options.fault("gangs", f"{sorted(share)} must be whole numbers of devices, each with a share")
    return rng.choice(np.array([int(name) for name in share], np.int64), jobs, p=list(share.values()))


def _seconds(gang: Ints, options: Options, rng: np.random.Generator) -> Floats:
    options.known(("kind", "hours", "median_hours", "sigma", "shares"))
    kind, jobs = options.choice("kind", KINDS, "gavel"), len(gang)
    if kind == "lognormal":
        median, sigma = options.number("median_hours", 1.0), options.number("sigma", 1.2)
        return HOUR * median * rng.lognormal(0.0, sigma, jobs)
    if kind == "gavel":
        many = rng.random(jobs) < 0.8
        return 60.0 * 10 ** np.where(many, rng.uniform(1.5, 3, jobs), rng.uniform(3, 4, jobs))
    if kind == "philly":
        return np.exp(np.interp(rng.random(jobs), PHILLY_SHARE, np.log(PHILLY_SECONDS)))
    if kind == "classes":
        share = options.shares("shares", dict.fromkeys(CLASSES, 0.25))
        unknown = sorted(set(share) - set(CLASSES))
        if unknown:
            raise options.fault("shares", f"{unknown[0]!r} is none of {', '.join(CLASSES)}")
        low, high = np.array([CLASSES[c] for c in share]).T
        drawn = rng.choice(len(share), jobs, p=list(share.values()))
        return HOUR * rng.uniform(low[drawn], high[drawn]) / gang
    hours = _hours(options, kind)
    return HOUR * (rng.uniform(*hours, jobs) if kind == "uniform" else rng.choice(hours, jobs))


def _hours(options: Options, kind: str) -> list[float]:
    given: Any = options.values.get("hours") or (
        [0.5, 4.0] if kind == "uniform" else [0.5 * k for k in range(1, 9)]
    )
    hours = [float(h) for h in given]
    if min(hours) < 0 or (kind == "uniform" and (len(hours) != 2 or hours[0] > hours[1])):
        raise options.fault(
            "hours", f"{hours} must be [low, high] for uniform, a list of run times for choice"
        )
    return hours
