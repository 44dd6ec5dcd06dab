"""What the cluster half says and hears: traces, nodes, snapshots, plans, outcomes; arrays with shape and unit.

J jobs, R device types, H nodes, P placement rows. Rates are steps/s of a whole gang, times are seconds,
service is GPU-seconds. Ids exist only in `Trace.id` and `Snapshot.job`; everything else is a row number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole workload: J jobs sorted by arrival (stably), R device types.

    Raises ValueError, naming field and job, for a wrong shape, a value that is not finite, a negative one, a
    gang or epoch count below 1, a weight of 0, or an id that occurs twice.
    """

    id: tuple[str, ...]  # (J,) the user's job ids
    arrival: Floats  # (J,) s
    work: Floats  # (J,) steps to do in all, >= 0
    gang: Ints  # (J,) devices the job needs at once, >= 1
    epochs: Ints  # (J,) how many epochs the work is divided in (progress is visible in these units), >= 1
    weight: Floats  # (J,) priority weight, > 0
    rate: Floats  # (J, R) steps/s of the whole gang on device type r, on one node; 0: cannot run there
    spread: Floats  # (J, R) steps/s of the whole gang when it lies on several nodes
    types: tuple[str, ...]  # (R,) names of the device types
    model: tuple[str, ...]  # (J,) what kind of job (for reports)

    def __post_init__(self) -> None:
        jobs, kinds = len(self.id), len(self.types)
        shapes = {name: (jobs,) for name in ("arrival", "work", "gang", "epochs", "weight")}
        for name, shape in {**shapes, "rate": (jobs, kinds), "spread": (jobs, kinds)}.items():
            self._check(name, getattr(self, name), shape)
        if len(self.model) != jobs:
            raise ValueError(f"trace.model has {len(self.model)} entries for {jobs} jobs")
        if len(set(self.id)) != jobs:
            seen: set[str] = set()
            twice = next(i for i in self.id if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise ValueError(f"trace.id: job id {twice!r} occurs twice; ids must be unique")
        if jobs and np.any(np.diff(self.arrival) < 0):
            order = np.argsort(self.arrival, kind="stable")
            for name, value in _rows(self, order).items():
                object.__setattr__(self, name, value)

    def _check(self, name: str, value: NDArray[Any], shape: tuple[int, ...]) -> None:
        if value.shape != shape:
            raise ValueError(f"trace.{name} has shape {value.shape}, expected {shape}")
        least = {"gang": 1, "epochs": 1}.get(name, 0)
        bad = ~np.isfinite(value) | (value < least) | ((value <= 0) if name == "weight" else False)
        if bad.any():
            row = int(np.argwhere(bad)[0][0])
            rule = "> 0" if name == "weight" else f">= {least}"
            raise ValueError(
                f"trace.{name} of job {self.id[row]!r} is {value[row]}; it must be finite and {rule}"
            )

    def __len__(self) -> int:
        return len(self.id)

    def take(self, rows: Ints) -> "Trace":
        """Return the trace of these rows only, kept sorted by arrival."""
        return replace(self, **_rows(self, np.sort(np.asarray(rows, dtype=np.int64))))

    def on(self, types: tuple[str, ...]) -> "Trace":
        """Return the trace with its rate columns in the order of `types`.

        A cluster may have fewer types than the trace knows. Raises ValueError for a type without rates.
        """
        missing = [name for name in types if name not in self.types]
        if missing:
            raise ValueError(f"the trace has no rates for device type {missing[0]!r}; it knows {self.types}")
        columns = [self.types.index(name) for name in types]
        return replace(self, rate=self.rate[:, columns], spread=self.spread[:, columns], types=types)


def _rows(trace: Trace, order: Ints) -> dict[str, Any]:
    picked: dict[str, Any] = {}
    for field in fields(trace):
        value = getattr(trace, field.name)
        if field.name != "types":
            picked[field.name] = (
                value[order] if isinstance(value, np.ndarray) else tuple(value[k] for k in order)
            )
    return picked


@dataclass(frozen=True, slots=True)
class Nodes:
    """A cluster of H nodes, each with devices of one type."""

    type: Ints  # (H,) index into types
    devices: Ints  # (H,) GPUs on the node, >= 1
    types: tuple[str, ...]  # (R,)

    def __post_init__(self) -> None:
        if self.type.shape != self.devices.shape or self.type.ndim != 1:
            raise ValueError(
                f"nodes.type {self.type.shape} and nodes.devices {self.devices.shape} must be (H,)"
            )
        if len(self.type) and (self.type.min() < 0 or self.type.max() >= len(self.types)):
            raise ValueError(f"nodes.type must index the {len(self.types)} device types")
        if np.any(self.devices < 1):
            raise ValueError(f"nodes.devices of node {int(np.argmax(self.devices < 1))} must be >= 1")

    @classmethod
    def of(cls, counts: Mapping[str, int], per_node: int) -> "Nodes":
        """Make nodes of `per_node` GPUs, `counts[type]` in all; what does not divide makes a smaller node."""
        if per_node < 1:
            raise ValueError(f"per_node is {per_node}; a node has at least one GPU")
        kind, size = [], []
        for r, (name, count) in enumerate(counts.items()):
            if count < 0:
                raise ValueError(f"cluster type {name!r} has {count} GPUs; a count is >= 0")
            sizes = [per_node] * (count // per_node) + [count % per_node] * (count % per_node > 0)
            kind += [r] * len(sizes)
            size += sizes
        return cls(np.array(kind, np.int64), np.array(size, np.int64), tuple(counts))

    def __len__(self) -> int:
        return len(self.type)

    @property
    def total(self) -> int:
        """How many GPUs there are."""
        return int(self.devices.sum())

    def capacity(self, devices: Ints | None = None) -> Ints:
        """(R,) GPUs of every type; `devices` (H,) counts something else per node, e.g. GPUs in service."""
        counted = self.devices if devices is None else devices
        return np.bincount(self.type, weights=counted, minlength=len(self.types)).astype(np.int64)

    def largest(self) -> Ints:
        """(R,) GPUs of the largest node of every type."""
        top = np.zeros(len(self.types), np.int64)
        np.maximum.at(top, self.type, self.devices)
        return top


@dataclass(frozen=True, slots=True)
class Rows:
    """A placement: P rows sorted by (job, copy, node). One copy unless a job is forked (HadarE)."""

    job: Ints  # (P,) row of the job in the snapshot
    node: Ints  # (P,)
    count: Ints  # (P,) GPUs on that node, >= 1
    copy: Ints  # (P,) 0 for the job itself, 1.. for its copies; each copy is a whole gang

    def __len__(self) -> int:
        return len(self.job)

    @classmethod
    def of(cls, job: Any, node: Any, count: Any, copy: Any = None) -> "Rows":
        """Sort lists or arrays of equal length into Rows."""
        j, n, c = (np.asarray(v, np.int64).reshape(-1) for v in (job, node, count))
        k = np.zeros(len(j), np.int64) if copy is None else np.asarray(copy, np.int64).reshape(-1)
        order = np.lexsort((n, k, j))
        return cls(j[order], n[order], c[order], k[order])

    def where(self, keep: Bools) -> "Rows":
        """Return the rows for which `keep` (P,) is true."""
        return Rows(self.job[keep], self.node[keep], self.count[keep], self.copy[keep])

    def used(self, nodes: int) -> Ints:
        """(H,) GPUs in use on each of `nodes` nodes."""
        return np.bincount(self.node, weights=self.count, minlength=nodes).astype(np.int64)

    def held(self, jobs: int) -> Ints:
        """(J,) GPUs that each of `jobs` jobs holds, copies included."""
        return np.bincount(self.job, weights=self.count, minlength=jobs).astype(np.int64)


NOWHERE = Rows(*(np.zeros(0, np.int64) for _ in range(4)))


class Refusal(IntEnum):
    """Why a job does not run in this slot. `core.refusals` puts them into words."""

    NONE = 0  # it runs
    NO_ROOM = 1  # jobs that go first hold the devices
    PRICE = 2  # the device time costs more than it is worth to this job
    BEHIND = 3  # the queue is blocked by an earlier job (no backfilling)
    FRAGMENTED = 4  # enough free devices, but not on one node
    SHARE = 5  # it has had its share of device time for now
    TOO_LARGE = 6  # its gang is larger than the cluster (or one device type, for policies that do not mix)
    UNRUNNABLE = 7  # its rate is 0 on every device type
    UNSOLVED = 8  # it arrived after the last allocation was computed


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a scheduler sees at one moment. Rates and work are what is *known*, not what is true."""

    now: float  # s
    slot: float  # s, length of a slot
    restart: float  # s, what a start or a move costs
    job: Ints  # (J,) a number that stays with a job, ascending
    arrival: Floats  # (J,) s
    work: Floats  # (J,) declared steps in all
    remaining: Floats  # (J,) declared steps still to do, > 0
    gang: Ints  # (J,)
    weight: Floats  # (J,)
    rate: Floats  # (J, R) steps/s on one node if the gang fits one of that type, else `spread`
    spread: Floats  # (J, R) steps/s over several nodes
    attained: Floats  # (J,) GPU-s of service so far, restart time not counted
    ran: Floats  # (J,) s that the job has run
    progress: Floats  # (J,) share of its epochs that are complete, [0, 1)
    epochs: Ints  # (J,)
    last: Floats  # (J,) s, when the job last ran; its arrival if never
    held: Rows  # where jobs are now
    nodes: Nodes
    free: Ints  # (H,) GPUs in service on every node, running jobs not subtracted; 0 for a node that is down

    def __len__(self) -> int:
        return len(self.job)

    @property
    def capacity(self) -> Ints:
        """(R,) GPUs in service of every type."""
        return self.nodes.capacity(self.free)


@dataclass(frozen=True, slots=True)
class Plan:
    """Who runs where until the next decision, and why the others wait."""

    rows: Rows
    why: Ints  # (J,) Refusal
    limit: Ints  # (J,) the device type that stands in the way, -1: none in particular
    price: Floats  # (J,) what that type costs per GPU, in the policy's unit of value; NaN: no prices here
    value: Floats  # (J,) what the job would pay per GPU
    until: float = 0.0  # s: ask again then, or at the next slot, or when something happens; inf: only then
    memo: Any = None  # what the policy wants back in `learn`


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What came of a plan, by snapshot row."""

    start: float  # s
    seconds: float  # s until the next decision
    done: Floats  # (J,) steps
    ran: Floats  # (J,) s of useful running
    busy: Floats  # (J,) s that its GPUs were held, restart included
    moved: Bools  # (J,) paid a restart
    ended: Bools  # (J,)


class Policy(Protocol):
    """A cluster scheduling policy: state in, state out. It needs no simulator around it."""

    @property
    def name(self) -> str:
        """The name on its card."""

    @property
    def mixes(self) -> bool:
        """Whether one job's gang may lie on several device types (task level)."""

    def init(self, nodes: Nodes) -> Any:
        """Return the state to start from."""

    def decide(self, state: Any, snapshot: Snapshot, rng: np.random.Generator) -> Plan:
        """Say who runs where now, and why the others wait."""

    def learn(self, state: Any, plan: Plan, outcomes: Outcomes, snapshot: Snapshot) -> Any:
        """Return the state after the plan was carried out."""
