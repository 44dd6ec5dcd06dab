"""The built-in table of job types: how fast gangs of each GPU type train, and where each figure is from.

Two kinds of figure, kept apart:

*Measured* (K80, P100, V100): steps/s of a whole gang of 1, 2, 4 or 8 GPUs, on one node and over several, at
one batch size per model, to four digits, oddities included, as published with Gavel (Narayanan et al.,
"Heterogeneity-aware cluster scheduling policies for deep learning workloads", OSDI 2020): the throughput
files of its repository, MIT.

*Estimated* (T4, A10, A100, H100): the figures of the V100 times the ratio of attainable speeds of a roofline
(Williams, Waterman and Patterson, CACM 2009)

    attainable(g, I) = min(peak_g, I * bandwidth_g)        FLOP/s

peak_g: FP32 peak without tensor cores (FLOP/s). bandwidth_g: memory bandwidth (B/s). I: FLOP per byte of the
model, a guess of ours that says no more than compute bound (64), mixed (12) or memory bound (4). Mixed
precision is faster than this, and a faster network is not credited: our estimate, not a measurement.

Gangs between the measured sizes are interpolated in log(gang), log(rate); beyond the largest, the rate per
GPU stays what it is there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eiffel.worlds.traces.reading import Floats, Ints, TraceError

GAVEL = "measured: Gavel (OSDI 2020), simulation_throughputs.json"
GAVEL_PHYSICAL = "measured: Gavel (OSDI 2020), physical_cluster_throughputs.json"
MEASURED = ("k80", "p100", "v100")


@dataclass(frozen=True, slots=True)
class Device:
    """What a GPU can do at best. `peak`: FP32 FLOP/s; `bandwidth`: memory B/s."""

    peak: float
    bandwidth: float
    source: str


DEVICES = {
    "k80": Device(4.1e12, 240e9, "one of the two GK210 of NVIDIA's Tesla K80 board, at boost clock"),
    "p100": Device(9.5e12, 732e9, "NVIDIA Tesla P100 PCIe 16 GB"),
    "v100": Device(14.1e12, 900e9, "NVIDIA Tesla V100 PCIe 16 GB"),
    "t4": Device(8.1e12, 320e9, "NVIDIA T4"),
    "a10": Device(31.2e12, 600e9, "NVIDIA A10"),
    "a100": Device(19.5e12, 1555e9, "NVIDIA A100 40 GB"),
    "h100": Device(66.9e12, 3350e9, "NVIDIA H100 SXM5"),
}
ALIASES = {"v100m16": "v100", "v100m32": "v100"}  # the names of Alibaba's 2023 trace


@dataclass(frozen=True, slots=True)
class JobType:
    """A model to train: {device: steps/s of a gang of each size in `gangs`} on one `node`, and `apart`."""

    name: str
    intensity: float  # FLOP/B, our guess
    gangs: tuple[int, ...]
    node: dict[str, tuple[float, ...]]
    apart: dict[str, tuple[float, ...]]
    source: str


def _alone(name: str, intensity: float, speeds: tuple[float, float, float], source: str) -> JobType:
    rates: dict[str, tuple[float, ...]] = {device: (v,) for device, v in zip(MEASURED, speeds, strict=True)}
    return JobType(name, intensity, (1,), rates, rates, source)


_SIZES = (1, 2, 4, 8)
JOB_TYPES = (
    JobType(
        "ResNet-18 (batch size 64)",
        64,
        _SIZES,
        {
            "k80": (7.052, 12.5, 21.63, 42.64),
            "p100": (22.3, 41.48, 74.99, 120.0),
            "v100": (24.09, 74.14, 95.59, 255.8),
        },
        {
            "k80": (7.052, 13.99, 25.07, 45.61),
            "p100": (22.3, 25.51, 40.21, 67.77),
            "v100": (24.09, 31.48, 38.31, 63.15),
        },
        GAVEL,
    ),
    JobType(
        "ResNet-50 (batch size 32)",
        64,
        _SIZES,
        {
            "k80": (1.237, 2.353, 4.379, 8.792),
            "p100": (4.888, 9.749, 18.55, 33.57),
            "v100": (7.787, 10.83, 13.76, 24.07),
        },
        {
            "k80": (1.237, 2.559, 5.04, 10.0),
            "p100": (4.888, 9.429, 14.84, 26.34),
            "v100": (7.787, 8.974, 12.85, 22.83),
        },
        GAVEL,
    ),
    JobType(
        "Transformer (batch size 64)",
        12,
        _SIZES,
        {
            "k80": (1.752, 3.063, 5.031, 8.976),
            "p100": (5.092, 7.887, 13.31, 19.94),
            "v100": (8.618, 15.88, 19.66, 49.65),
        },
        {
            "k80": (1.752, 2.727, 4.507, 8.234),
            "p100": (5.092, 5.505, 9.007, 15.18),
            "v100": (8.618, 7.005, 10.57, 17.01),
        },
        GAVEL,
    ),
    JobType(
        "LM (batch size 20)",
        4,
        _SIZES,
        {
            "k80": (17.14, 23.77, 35.7, 61.45),
            "p100": (58.17, 62.33, 93.81, 116.6),
            "v100": (64.74, 132.2, 111.0, 497.3),
        },
        {
            "k80": (17.14, 16.93, 29.99, 58.07),
            "p100": (58.17, 32.86, 40.94, 65.83),
            "v100": (64.74, 30.44, 33.4, 58.89),
        },
        GAVEL,
    ),
    _alone("CycleGAN", 64, (0.5048, 2.403, 4.426), GAVEL),
    _alone("A3C", 4, (3.439, 5.681, 7.176), GAVEL),
    _alone("Recommendation (batch size 2048)", 4, (18.93, 53.84, 88.21), GAVEL_PHYSICAL),
)
TABLE = {kind.name: kind for kind in JOB_TYPES}


def device(name: str) -> str:
    """Return the table's name for a device type. Raises TraceError for one it does not know."""
    known = ALIASES.get(name.lower(), name.lower())
    if known not in DEVICES:
        cure = f"the built-in table knows {', '.join(DEVICES)}; trace.assign_models: false needs no table"
        raise TraceError(f"no rates for device type {name!r}: {cure}", field="cluster.nodes.type")
    return known


def attainable(name: str, intensity: float) -> float:
    """Return the roofline of a device type, FLOP/s, at `intensity` FLOP/B."""
    spec = DEVICES[device(name)]
    return min(spec.peak, intensity * spec.bandwidth)


def rate(kind: JobType, gang: int, name: str, apart: bool = False) -> float:
    """Return steps/s of a gang on a device type, `apart`: on several nodes. 0: it trains on one GPU only."""
    if gang > 1 and len(kind.gangs) == 1:
        return 0.0
    known = device(name)
    anchor = known if known in MEASURED else "v100"
    rates = (kind.apart if apart and gang > 1 else kind.node)[anchor]
    value = float(np.exp(np.interp(np.log(gang), np.log(kind.gangs), np.log(rates))))
    value *= max(1.0, gang / kind.gangs[-1])
    return value * attainable(known, kind.intensity) / attainable(anchor, kind.intensity)


def estimated(name: str) -> bool:
    """Say whether the rates of a device type are the roofline's rather than measured."""
    return device(name) not in MEASURED


def chosen(names: Sequence[str]) -> tuple[JobType, ...]:
    """Return the job types of these names, all for []. Raises TraceError for one that is not in the table."""
    for name in names:
        if name not in TABLE:
            raise TraceError(
                f"{name!r} is not in the built-in table: {'; '.join(TABLE)}", field="trace.models"
            )
    return tuple(TABLE[name] for name in names) or JOB_TYPES


def draw(gang: Ints, kinds: Sequence[JobType], rng: np.random.Generator) -> Ints:
    """Draw a job type for every gang (J,), equally likely among those that train on that many GPUs.

    Raises TraceError if gangs of several GPUs are wanted and no job type in `kinds` does that.
    """
    several = np.array([k for k, kind in enumerate(kinds) if len(kind.gangs) > 1], dtype=np.int64)
    if not len(several) and np.any(gang > 1):
        cure = "add ResNet, Transformer or LM to trace.models, or draw gangs of 1 only"
        raise TraceError(f"none of the job types trains on several GPUs: {cure}", field="trace.models")
    share = rng.random(len(gang))
    alone = np.floor(share * len(kinds)).astype(np.int64)
    together = several[np.floor(share * len(several)).astype(np.int64)] if len(several) else alone
    return np.where(gang > 1, together, alone)


def rates_of(pick: Ints, gang: Ints, kinds: Sequence[JobType], types: Sequence[str]) -> tuple[Floats, Floats]:
    """Return (rate, spread), (J, R) each, of jobs of type `pick` (J,) with gangs (J,)."""
    pairs, back = np.unique(np.stack([pick, gang]), axis=1, return_inverse=True)
    tables = [
        np.array([[rate(kinds[k], int(w), name, apart) for name in types] for k, w in pairs.T])
        for apart in (False, True)
    ]
    shape = (len(pick), len(types))
    node, spread = (table.reshape(-1, len(types))[back.reshape(-1)].reshape(shape) for table in tables)
    return node, spread
