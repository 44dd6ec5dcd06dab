"""E-LAS (Sultana et al., ICPP 2020), our reconstruction: least service that is still to come.

The abstract fixes the inputs: real-time epoch progress and the service attained in time and space; no run time is
known. Ours: with service s (GPU-s, restarts not counted) and progress e, a job that advanced linearly still needs
s (1 - e) / e, and the least goes first.
"""

from dataclasses import dataclass

import numpy as np

from eiffel.core.jobs import Floats, Nodes, Outcomes, Plan, Snapshot
from eiffel.schedule.order import in_order, open_rates


@dataclass(frozen=True, slots=True)
class Elas:
    """Least estimated remaining service first, preemptive, best-fit placement.

    After k of E epochs e = (k + 1/2) / E. A job that has not run goes first; one whose progress cannot be seen
    (E = 1) has e = 1/2 and the priority s, as in LAS.
    hysteresis: a running job's priority is multiplied by it, so that near ties do not swap places.
    """

    name: str = "elas"
    hysteresis: float = 0.7
    mixes: bool = False

    def init(self, nodes: Nodes) -> None:
        """There is nothing to remember: progress and service say it all."""

    def learn(self, state: None, plan: Plan, outcomes: Outcomes, snapshot: Snapshot) -> None:
        """There is nothing to learn."""

    def decide(self, state: None, snapshot: Snapshot, rng: np.random.Generator) -> Plan:
        """Order by what is still to come."""
        runs = np.zeros(len(snapshot), bool)
        runs[snapshot.held.job] = True
        ahead = to_come(snapshot.attained, snapshot.progress, snapshot.epochs.astype(float))
        ahead = np.where(runs, ahead * self.hysteresis, ahead) / snapshot.weight
        order = np.lexsort((snapshot.job, snapshot.arrival, ~runs, ahead))
        return in_order(snapshot, order, open_rates(snapshot))


def to_come(service: Floats, progress: Floats, epochs: Floats) -> Floats:
    """(J,) GPU-s still to come, from service so far and the share of `epochs` that is complete."""
    e = progress + 0.5 / epochs
    return np.asarray(service * (1 - e) / e, float)
