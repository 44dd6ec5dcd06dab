"""Shortest remaining time, or service, first: an oracle that knows how long jobs take."""

from dataclasses import dataclass

import numpy as np

from eiffel.core.jobs import Nodes, Outcomes, Plan, Snapshot
from eiffel.schedule.order import in_order, open_rates


@dataclass(frozen=True, slots=True)
class Srtf:
    """Jobs with the least remaining time (or, `service`, time x GPUs) first; preemptive.

    Each takes the fastest device type that has room. Remaining time is steps left / best rate.
    """

    name: str = "srtf"
    service: bool = False
    mixes: bool = False

    def init(self, nodes: Nodes) -> None:
        """There is nothing to remember."""

    def learn(self, state: None, plan: Plan, outcomes: Outcomes, snapshot: Snapshot) -> None:
        """There is nothing to learn."""

    def decide(self, state: None, snapshot: Snapshot, rng: np.random.Generator) -> Plan:
        """Order by what is left."""
        left = snapshot.remaining / np.maximum(snapshot.rate.max(axis=1), 1e-300) / snapshot.weight
        if self.service:
            left = left * snapshot.gang
        return in_order(snapshot, np.lexsort((snapshot.job, left)), open_rates(snapshot))
