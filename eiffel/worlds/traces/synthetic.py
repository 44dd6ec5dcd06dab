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

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from eiffel.core.jobs import Trace
from eiffel.worlds.traces.lengths import from_lengths
from eiffel.worlds.traces.options import Options
from eiffel.worlds.traces.reading import Floats, Ints

OPTIONS = ("lengths", "gangs")
HOUR = 3600.0
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
    lengths = Options(options.values.get("lengths") or {}, "trace.lengths")
    lengths.known(("kind", "hours", "median_hours", "sigma", "shares"))
    seconds = LENGTHS[lengths.choice("kind", tuple(LENGTHS), "gavel")](gang, lengths, rng)
    return from_lengths([str(k) for k in range(jobs)], np.zeros(jobs), seconds, gang, options, types)


def _gangs(jobs: int, options: Options, rng: np.random.Generator) -> Ints:
    share = options.shares("gangs", GANGS)
    if not all(name.isdigit() and int(name) > 0 for name in share):
        raise options.fault("gangs", f"{sorted(share)} must be whole numbers of devices, each with a share")
    return rng.choice(np.array([int(name) for name in share], np.int64), jobs, p=list(share.values()))


def _uniform(gang: Ints, options: Options, rng: np.random.Generator) -> Floats:
    low, high = (_hours(options, [0.5, 4.0]) * 2)[:2]
    if high < low:
        raise options.fault("hours", f"[{low:g}, {high:g}] must be [low, high]")
    return HOUR * rng.uniform(low, high, len(gang))


def _choice(gang: Ints, options: Options, rng: np.random.Generator) -> Floats:
    return HOUR * rng.choice(np.array(_hours(options, [0.5 * k for k in range(1, 9)])), len(gang))


def _lognormal(gang: Ints, options: Options, rng: np.random.Generator) -> Floats:
    median, sigma = options.number("median_hours", 1.0), options.number("sigma", 1.2)
    return HOUR * median * rng.lognormal(0.0, sigma, len(gang))


def _gavel(gang: Ints, options: Options, rng: np.random.Generator) -> Floats:
    many, jobs = rng.random(len(gang)) < 0.8, len(gang)
    return 60.0 * 10 ** np.where(many, rng.uniform(1.5, 3, jobs), rng.uniform(3, 4, jobs))


def _philly(gang: Ints, options: Options, rng: np.random.Generator) -> Floats:
    return np.asarray(np.exp(np.interp(rng.random(len(gang)), PHILLY_SHARE, np.log(PHILLY_SECONDS))))


def _classes(gang: Ints, options: Options, rng: np.random.Generator) -> Floats:
    share = options.shares("shares", dict.fromkeys(CLASSES, 0.25))
    unknown = sorted(set(share) - set(CLASSES))
    if unknown:
        raise options.fault("shares", f"{unknown[0]!r} is none of {', '.join(CLASSES)}")
    drawn = rng.choice(len(share), len(gang), p=list(share.values()))
    low, high = (np.array([CLASSES[name][end] for name in share])[drawn] for end in (0, 1))
    return np.asarray(HOUR * rng.uniform(low, high) / gang)


def _hours(options: Options, default: list[float]) -> list[float]:
    given = options.values.get("hours")
    hours = default if given is None else [float(h) for h in given]
    if not hours or min(hours) < 0:
        raise options.fault("hours", f"{hours} must be a list of run times, none below 0")
    return hours


LENGTHS: Mapping[str, Callable[[Ints, Options, np.random.Generator], Floats]] = {
    "uniform": _uniform,
    "choice": _choice,
    "lognormal": _lognormal,
    "gavel": _gavel,
    "philly": _philly,
    "classes": _classes,
}
