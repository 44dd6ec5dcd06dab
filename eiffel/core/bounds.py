"""How well any scheduler could do: lower bounds on makespan and completion times.

They let jobs be divided at will over device types and time, charge no restarts and ignore nodes, so no schedule
beats them; only a gang larger than every node of a type is known to run there at its spread rate. Gangs that mix
types are covered: one that runs at the speed of the slowest is no better than taking turns on the types.
"""

import heapq

import numpy as np

from eiffel.core.jobs import Floats, Nodes, Trace
from eiffel.core.level import level


def _best(trace: Trace, nodes: Nodes) -> tuple[Trace, Floats, Floats]:
    here = trace.on(nodes.types)
    capacity = nodes.capacity().astype(float)
    alone = np.maximum(here.rate, here.spread)
    rate = np.where(
        here.gang[:, None] > nodes.largest(), here.spread, alone
    )  # larger than a node: never alone
    return here, np.where(capacity > 0, rate, 0.0), capacity


def shortest(trace: Trace, nodes: Nodes) -> Floats:
    """(J,) s that each job needs at its best rate; inf if it runs nowhere."""
    _, rate, _ = _best(trace, nodes)
    top = rate.max(axis=1, initial=0.0)
    return np.where(trace.work <= 0, 0.0, np.where(top > 0, trace.work / np.where(top > 0, top, 1.0), np.inf))


def makespan(trace: Trace, nodes: Nodes, points: int = 16) -> float:
    """Lower bound on the time (s) from the first arrival to the last end.

    The largest, over `points` moments t, of t + the fluid makespan of the jobs that arrive at t or later (a
    linear program, solved exactly by `level`). Jobs that run nowhere do not count.
    """
    _, rate, capacity = _best(trace, nodes)
    alone = shortest(trace, nodes)
    runs = np.isfinite(alone) & (trace.work > 0)
    if not runs.any():
        return 0.0
    first = float(trace.arrival[runs].min())
    best = float((trace.arrival + np.where(runs, alone, 0.0))[runs].max()) - first
    moments = np.unique(np.quantile(trace.arrival[runs], np.linspace(0, 1, points), method="higher"))
    for t in moments:
        late = runs & (trace.arrival >= t)
        theta = level(rate[late], trace.gang[late], capacity, trace.work[late]).theta
        best = max(best, float(t) - first + theta)
    return best


def completion(trace: Trace, nodes: Nodes) -> float:
    """Lower bound on the mean completion time (s), in O(J log J) after one `level`.

    At any prices p of device time with p @ C = 1 the cluster is one machine on which job j needs
    c_j = min_r w_j p_r work_j / X_jr. On it, preemptive shortest-job-first minimises the sum of mean busy times
    M_j (Goemans et al., 2002), and a job that needs at least s_j ends no earlier than M_j + s_j / 2. The best
    of two price vectors counts: those of the makespan, and equal ones; so does the mean of s_j alone.
    """
    _, rate, capacity = _best(trace, nodes)
    alone = shortest(trace, nodes)
    runs = np.flatnonzero(np.isfinite(alone) & (trace.work > 0))
    if not len(runs):
        return 0.0
    need = np.where(
        rate[runs] > 0, trace.work[runs, None] / np.where(rate[runs] > 0, rate[runs], 1.0), np.inf
    )
    prices = [level(rate[runs], trace.gang[runs], capacity, trace.work[runs]).price, np.ones(len(capacity))]
    best = float(alone[runs].sum())
    for price in prices:
        if price @ capacity <= 0:
            continue
        cost = (trace.gang[runs, None] * need * (price / (price @ capacity))).min(axis=1)
        busy = mean_busy(trace.arrival[runs], cost)
        best = max(best, float((busy + alone[runs] / 2 - trace.arrival[runs]).sum()))
    return best / len(runs)


def mean_busy(arrival: Floats, cost: Floats) -> Floats:
    """(J,) s: mean busy times on one machine under preemptive shortest-job-first (by total cost).

    The mean busy time is the average moment at which a job is worked on. arrival ascending, cost >= 0 (s).
    """
    left, moment = cost.copy(), np.zeros(len(cost))
    queue: list[tuple[float, int]] = []
    now, head, jobs = 0.0, 0, len(cost)
    while head < jobs or queue:
        if not queue:
            now = max(now, float(arrival[head]))
        while head < jobs and arrival[head] <= now:
            heapq.heappush(queue, (float(cost[head]), head))
            head += 1
        j = queue[0][1]
        step = min(float(left[j]), float(arrival[head]) - now if head < jobs else np.inf)
        moment[j] += (now + step / 2) * step
        now, left[j] = now + step, left[j] - step
        if left[j] <= 1e-12 * cost[j]:  # also a job that costs nothing
            heapq.heappop(queue)
    return np.where(cost > 0, moment / np.where(cost > 0, cost, 1.0), arrival)
