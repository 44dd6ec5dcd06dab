"""FIFO and YARN-CS: first come, first served; running jobs run to their end."""

import zlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from eiffel.core.jobs import Bools, Ints, Nodes, Outcomes, Plan, Refusal, Rows, Snapshot
from eiffel.core.placement import best_fit, scatter
from eiffel.core.refusals import verdict


@dataclass(frozen=True, slots=True)
class Fifo:
    """Arrival order, no preemption, head-of-line blocking.

    types: `fastest` first, or `hashed`: an order drawn from the job's number, blind to speed, which is how we
    read YARN's capacity scheduler on a heterogeneous cluster. patience: `relax` spreads a gang over nodes at
    once when no node has room; `wait` waits for one node (gangs larger than a node spread in either case).
    backfill: pass over jobs that do not fit instead of blocking.
    """

    name: str = "fifo"
    types: Literal["fastest", "hashed"] = "fastest"
    patience: Literal["relax", "wait"] = "relax"
    backfill: bool = False
    mixes: bool = False

    def init(self, nodes: Nodes) -> None:
        """There is nothing to remember."""

    def learn(self, state: None, plan: Plan, outcomes: Outcomes, snapshot: Snapshot) -> None:
        """There is nothing to learn."""

    def decide(self, state: None, snapshot: Snapshot, rng: np.random.Generator) -> Plan:
        """Start jobs from the head of the queue until one does not fit."""
        free = snapshot.free - snapshot.held.used(len(snapshot.nodes))
        waits = np.ones(len(snapshot), bool)
        waits[snapshot.held.job] = False
        queue = np.flatnonzero(waits)
        queue = queue[np.argsort(snapshot.arrival[queue], kind="stable")]
        held = snapshot.held
        parts = [(held.job, held.node, held.count)]
        code = np.full(len(snapshot), Refusal.BEHIND, np.int64)
        for j in queue:
            seat, blocked = self._seat(snapshot, int(j), free)
            if seat is None:
                code[j] = blocked
                if self.backfill or blocked == Refusal.UNRUNNABLE:
                    continue
                break
            nodes, counts = seat
            free[nodes] -= counts
            parts.append((np.full(len(nodes), j), nodes, counts))
        rows = Rows.of(*(np.concatenate(c) for c in zip(*parts, strict=True)))
        return verdict(snapshot, rows, code=code, until=np.inf)

    def _seat(self, snapshot: Snapshot, j: int, free: Ints) -> tuple[tuple[Ints, Ints] | None, Refusal]:
        """Nodes and counts for one job, or why there are none."""
        gang, kinds = int(snapshot.gang[j]), self._order(snapshot, j)
        fragmented = False
        for r in kinds:
            mine = np.flatnonzero(snapshot.nodes.type == r)
            room = free[mine]
            node = best_fit(room, gang)
            if node >= 0:
                return (mine[[node]], np.array([gang])), Refusal.NONE
            if room.sum() < gang:
                continue
            if self.patience == "relax" or gang > snapshot.nodes.devices[mine].max():
                chosen, counts = scatter(room, gang)
                return (mine[chosen], counts), Refusal.NONE
            fragmented = True
        if not len(kinds):
            return None, Refusal.UNRUNNABLE
        return None, Refusal.FRAGMENTED if fragmented else Refusal.NO_ROOM

    def _order(self, snapshot: Snapshot, j: int) -> list[int]:
        rate = snapshot.rate[j]
        usable: Bools = (rate > 0) & (snapshot.capacity >= snapshot.gang[j])
        kinds = np.flatnonzero(usable)
        if self.types == "fastest":
            return [int(r) for r in kinds[np.argsort(-rate[kinds], kind="stable")]]
        start = zlib.crc32(int(snapshot.job[j]).to_bytes(8, "little"))
        return [int(r) for r in np.roll(kinds, start % max(len(kinds), 1))]


def YarnCS(patience: Any = "relax", backfill: bool = False) -> Fifo:
    """YARN's capacity scheduler as the papers compare with it: FIFO, blind to device types."""
    return Fifo("yarn_cs", "hashed", patience, backfill)
