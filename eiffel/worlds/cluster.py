"""A trace-driven cluster: observe, decide, run, learn, record, until every job has ended.

Time. In `slot` mode decisions fall on slot boundaries and a job that ends inside a slot leaves its GPUs idle to
the end of it (as in Gavel's simulator); in `event` mode they fall on arrivals, ends and node failures too.
Either way nothing is decided while nothing changes: a plan says how long it holds. An idle cluster jumps to the
next arrival. A gang that starts or moves holds its GPUs for `restart_s` before it does steps. Work is conserved
exactly: steps done = work + steps lost to node failures. No job is dropped.
"""

import time as clock
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from eiffel.core.jobs import (
    Floats,
    Ints,
    Nodes,
    Outcomes,
    Plan,
    Policy,
    Refusal,
    Rows,
    Snapshot,
    Trace,
)
from eiffel.core.placement import Gangs, gangs
from eiffel.worlds.cluster_estimates import Estimates, Known
from eiffel.worlds.cluster_run import ClusterRun, LastRefusal, Timeline
from eiffel.worlds.cluster_seats import Seats

Mode = Literal["slot", "event"]
PATIENCE = 1000  # decisions in a row that run nothing, with nothing to come, before a policy is called stuck


@dataclass(frozen=True, slots=True)
class Outage:
    """A node is away from `down` to `up` (s). What its jobs did since their last checkpoint is lost."""

    node: int
    down: float
    up: float


def simulate(
    trace: Trace,
    nodes: Nodes,
    policy: Policy,
    *,
    slot_s: float = 360.0,
    restart_s: float = 10.0,
    seed: int = 0,
    mode: Mode = "slot",
    outages: Sequence[Outage] = (),
    estimates: Estimates | None = None,
    declared: Floats | None = None,
    efficiency: float = 1.0,
    consolidate_s: float = 10.0,
    until_s: float = np.inf,
) -> ClusterRun:
    """Run a trace to its end under a policy.

    estimates: what the scheduler believes the rates to be (default: it knows them). declared: (J,) steps the
    user said, if not the true work. efficiency: what the steps of a forked job's copies are worth (1: as much
    as one job's); consolidate_s: what averaging the copies costs each of them per decision. until_s: stop
    there at the latest; jobs then unfinished have finish NaN. Jobs checkpoint at decisions and at least once a
    slot. Raises ValueError for device types the trace has no rates for, and for settings out of range.
    """
    if not (slot_s > 0 and restart_s >= 0 and consolidate_s >= 0 and 0 < efficiency <= 1):
        raise ValueError("need slot_s > 0, restart_s >= 0, consolidate_s >= 0 and 0 < efficiency <= 1")
    world = _World(trace.on(nodes.types), nodes, policy, slot_s, restart_s, mode, efficiency, consolidate_s)
    world.away(outages)
    world.estimates = estimates or Known()
    world.declared = world.trace.work if declared is None else np.maximum(declared, world.trace.work)
    return world.run(seed, until_s)


class _World:
    """The mutable insides of one run. J jobs of the trace; `active` holds trace rows, ascending."""

    estimates: Estimates
    declared: Floats

    def __init__(
        self, trace: Trace, nodes: Nodes, policy: Policy, slot_s: float, restart_s: float, mode: Mode,
        efficiency: float, consolidate_s: float,
    ) -> None:  # fmt: skip
        jobs = len(trace)
        self.trace, self.nodes, self.policy, self.mode = trace, nodes, policy, mode
        self.slot_s, self.restart_s = slot_s, restart_s
        self.efficiency, self.consolidate_s = efficiency, consolidate_s
        self.lone = np.where(trace.gang[:, None] > nodes.largest(), trace.spread, trace.rate)
        self.remaining = trace.work.copy()
        self.start, self.finish = np.full(jobs, np.nan), np.full(jobs, np.nan)
        self.ran, self.busy, self.done, self.lost = (np.zeros(jobs) for _ in range(4))
        self.attained, self.last_ran = np.zeros(jobs), trace.arrival.copy()
        self.moves, self.preemptions = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
        self.waited = np.zeros((jobs, len(Refusal)))
        self.refusal = LastRefusal(
            np.full(jobs, np.nan), np.zeros(jobs, np.int64), np.full(jobs, -1), np.full(jobs, np.nan),
            np.full(jobs, np.nan), np.zeros(jobs, np.int64),
        )  # fmt: skip
        self.free = nodes.devices.copy()
        self.active = np.zeros(0, np.int64)
        self.seats = Seats(jobs, len(nodes))
        self.ticks: list[tuple[Any, ...]] = []

    def away(self, outages: Sequence[Outage]) -> None:
        """Note when which nodes are away. Raises ValueError for a node that does not exist or no time at all."""
        for o in outages:
            if not (0 <= o.node < len(self.nodes) and o.down < o.up):
                raise ValueError(
                    f"{o}: the cluster has nodes 0 to {len(self.nodes) - 1}, and down < up is needed"
                )
        self.down = np.array([o.down for o in outages], float)
        self.up = np.array([o.up for o in outages], float)
        self.node = np.array([o.node for o in outages], np.int64)
        self.changes = np.unique(np.concatenate([self.down, self.up]))

    def run(self, seed: int, until_s: float) -> ClusterRun:
        """The five lines: observe, decide, run, learn, record."""
        refused = self._admit_or_refuse()
        queue = np.flatnonzero(refused == Refusal.NONE)
        arrival = self.trace.arrival[queue]
        head, now, step, idle = 0, 0.0, 0, 0
        state = self.policy.init(self.nodes)
        belief = self.estimates.init(self.trace, self.lone)
        while True:
            now, head = self._arrive(now, head, queue, arrival)
            self._service(now)
            if not len(self.active) or now >= until_s:
                break
            seen = self._observe(now, belief)
            began = clock.perf_counter()
            plan = self.policy.decide(state, seen, np.random.default_rng([seed, step]))
            spent = clock.perf_counter() - began
            after = arrival[head] if head < len(arrival) else np.inf
            outcomes, sat = self._carry_out(plan, seen, min(after, until_s))
            idle = 0 if len(plan.rows) or np.isfinite(after) or now < self.up.max(initial=0.0) else idle + 1
            if idle >= PATIENCE:
                raise ValueError(
                    f"{self.policy.name}: nothing has run for {idle} decisions, {len(seen)} jobs wait"
                )
            state = self.policy.learn(state, plan, outcomes, seen)
            belief = self.estimates.learn(belief, seen.job, sat)
            self._record(seen, plan, outcomes, spent)
            now, step = now + outcomes.seconds, step + 1
        return self._result(refused, complete=not len(self.active) and head == len(queue))

    # ---- observe

    def _admit_or_refuse(self) -> Ints:
        """(J,) Refusal: who can never run here. A job without work ends when it arrives."""
        gang, capacity = self.trace.gang, self.nodes.capacity()
        runs = (self.lone > 0) & (capacity > 0)
        mixed = self.trace.spread > 0
        single = (runs & (gang[:, None] <= capacity)).any(axis=1)
        together = (mixed * capacity).sum(axis=1) >= gang if self.policy.mixes else np.zeros(len(gang), bool)
        refused = np.where(single | together, Refusal.NONE, Refusal.TOO_LARGE)
        refused[~(runs.any(axis=1) | (mixed & (capacity > 0)).any(axis=1))] = Refusal.UNRUNNABLE
        idle = (self.trace.work <= 0) & (gang <= self.nodes.total)
        refused[idle] = Refusal.NONE
        self.start[idle] = self.finish[idle] = self.trace.arrival[idle]
        return refused.astype(np.int64)

    def _arrive(self, now: float, head: int, queue: Ints, arrival: Floats) -> tuple[float, int]:
        while True:
            tail = int(np.searchsorted(arrival, now * (1 + 1e-12) + 1e-9, side="right"))
            if tail > head:
                new = queue[head:tail]
                self.active = np.concatenate([self.active, new[np.isnan(self.finish[new])]])
                head = tail
            if len(self.active) or head == len(queue):
                return now, head
            now = float(arrival[head])

    def _service(self, now: float) -> None:
        """Which nodes are there now; a gang on a node that is not loses its place."""
        if not len(self.down):
            return
        self.free = self.nodes.devices.copy()
        self.free[self.node[(self.down <= now) & (now < self.up)]] = 0
        held = self.seats.held
        if len(held) and (self.free[held.node] == 0).any():
            self.seats.leave(held.job[self.free[held.node] == 0], np.full(len(self.trace), now))

    def _observe(self, now: float, belief: Any) -> Snapshot:
        a, t = self.active, self.trace
        rate, spread = self.estimates.rates(belief, a)
        progress = (
            np.floor((t.work[a] - self.remaining[a]) / self.declared[a] * t.epochs[a] + 1e-9) / t.epochs[a]
        )
        known = self.remaining[a] + (self.declared[a] - t.work[a])
        h = self.seats.held
        held = Rows(np.searchsorted(a, h.job), h.node, h.count, h.copy)
        return Snapshot(
            now, self.slot_s, self.restart_s, a, t.arrival[a], self.declared[a], known, t.gang[a], t.weight[a],
            rate, spread, self.attained[a], self.ran[a], progress, t.epochs[a], self.last_ran[a], held, self.nodes,
            self.free,
        )  # fmt: skip

    # ---- run

    def _carry_out(self, plan: Plan, seen: Snapshot, after: float) -> tuple[Outcomes, "Sat"]:
        """Carry the plan out until the next decision; `after` is the next arrival (s)."""
        a, rows, jobs = self.active, plan.rows, len(seen)
        self._check(rows, seen)
        crew = gangs(rows, self.lone[a], self.trace.spread[a], self.nodes)
        seated = Rows(a[rows.job], rows.node, rows.count, rows.copy)
        debt, moved = self.seats.settle(seated, crew, seen.now, self.restart_s, self.preemptions)
        copies = np.bincount(crew.job, minlength=jobs)
        forked = copies > 1
        speed = crew.speed * np.where(forked, self.efficiency, 1.0)[crew.job]
        wait = debt + np.where(forked, self.consolidate_s, 0.0)[crew.job]
        take = _time_to_do(speed, wait, crew.job, self.remaining[a], forked)
        end = self._next(seen.now, plan.until, after, seen.now + take.min(initial=np.inf), bool(len(rows)))
        span = end - seen.now
        stop = np.minimum(span, take)  # (J,) s each job runs on
        failed = self._failures(rows, crew, seen.now, end)
        hit = failed < take[crew.job]  # a node failed before the job's end
        stop_gang = np.minimum(stop[crew.job], failed)
        useful = np.maximum(stop_gang - wait, 0.0)
        lost = np.bincount(crew.job, speed * np.where(hit, np.minimum(useful, self.slot_s), 0.0), jobs)
        broken = np.bincount(crew.job, hit, jobs) > 0
        done = np.bincount(crew.job, speed * useful, jobs)
        ended = (take <= span * (1 + 1e-12)) & ~broken & (copies > 0)
        done = np.where(ended, self.remaining[a], np.minimum(done, self.remaining[a] + lost))
        self.remaining[a] = np.where(ended, 0.0, self.remaining[a] - done + lost)
        self.seats.debt = np.maximum(debt - span, 0.0)
        if broken.any():
            fell = np.full(len(self.trace), end)
            np.minimum.at(fell, a[crew.job[hit]], seen.now + failed[hit])
            self.seats.leave(a[broken], fell)
        self.finish[a[ended]] = seen.now + take[ended]
        self.done[a] += done
        self.lost[a] += lost
        ran, stayed = self._book(rows, crew, useful, stop_gang, seen.now, end)
        shifted = np.bincount(crew.job, moved, jobs) > 0
        self.moves[a] += shifted
        outcomes = Outcomes(seen.now, span, np.asarray(done, float), ran, stayed, shifted, ended)
        sat = Sat(crew.job, self.nodes.type[rows.node[crew.first]], crew.parts > 1, crew.speed, useful)
        return outcomes, sat

    def _book(
        self, rows: Rows, crew: Gangs, useful: Floats, stayed: Floats, now: float, end: float
    ) -> tuple[Floats, Floats]:
        """Book what the gangs did: useful and stayed (K,) s. Returns both by job (of its longest copy)."""
        a, jobs = self.active, len(self.active)
        size = np.add.reduceat(rows.count, crew.first) if len(crew.first) else np.zeros(0)
        ran, held = np.zeros(jobs), np.zeros(jobs)
        np.maximum.at(ran, crew.job, useful)
        np.maximum.at(held, crew.job, stayed)
        self.ran[a] += ran
        self.attained[a] += np.bincount(crew.job, useful * size, jobs)
        self.busy[a] += np.bincount(crew.job, stayed * size, jobs)
        present = a[crew.job]
        self.start[present] = np.where(np.isnan(self.start[present]), now, self.start[present])
        self.last_ran[present] = end
        return ran, held

    def _check(self, rows: Rows, seen: Snapshot) -> None:
        """A plan that breaks the rules is an error of the policy, not something to be silently mended."""
        used = rows.used(len(self.nodes))
        if np.any(used > self.free):
            node = int(np.argmax(used > self.free))
            raise ValueError(
                f"{self.policy.name}: {used[node]} GPUs planned on node {node}, which has {self.free[node]}"
            )
        held = rows.held(len(seen))
        copies = np.zeros(len(seen), np.int64)
        np.maximum.at(copies, rows.job, rows.copy + 1)
        if np.any(held != copies * seen.gang):
            j = int(np.argmax(held != copies * seen.gang))
            raise ValueError(
                f"{self.policy.name}: job {seen.job[j]} is planned {held[j]} GPUs, its gang is {seen.gang[j]}"
            )

    def _next(self, now: float, until: float, after: float, ends: float, running: bool) -> float:
        """When to decide again."""
        later = int(np.searchsorted(self.changes, now, side="right"))
        outage = float(self.changes[later]) if later < len(self.changes) else np.inf
        wake = min(after, ends, outage, max(until, now + self.slot_s))
        if not np.isfinite(wake):
            raise ValueError(
                f"{self.policy.name}: at {now} s nothing runs, nothing will arrive, and {len(self.active)} jobs wait"
            )
        if self.mode == "event":
            early = until if now < until < wake else wake
            return max(float(early), float(np.nextafter(now, np.inf)))
        return now + self.slot_s * max(1.0, float(np.ceil((wake - now) / self.slot_s - 1e-9)))

    def _failures(self, rows: Rows, crew: Gangs, now: float, end: float) -> Floats:
        """(K,) s after which a gang loses a node in this stretch, inf if it does not."""
        fails = np.full(len(rows), np.inf)
        for o in np.flatnonzero((now < self.down) & (self.down <= end)):
            hit = rows.node == self.node[o]
            fails[hit] = np.minimum(fails[hit], self.down[o] - now)
        return np.minimum.reduceat(fails, crew.first) if len(rows) else fails

    # ---- record

    def _record(self, seen: Snapshot, plan: Plan, out: Outcomes, spent: float) -> None:
        a, kinds = self.active, len(self.nodes.types)
        kind = self.nodes.type[plan.rows.node]
        waits = out.busy <= 0
        idle = np.where(plan.why == Refusal.NONE, out.seconds - out.busy, out.seconds)
        self.waited[a, plan.why] += np.where(out.ended, 0.0, idle)
        free = seen.capacity - np.bincount(kind, plan.rows.count, kinds).astype(np.int64)
        w = np.flatnonzero(plan.why != Refusal.NONE)
        r, rows = self.refusal, a[w]
        r.time[rows], r.why[rows], r.limit[rows] = seen.now, plan.why[w], plan.limit[w]
        r.price[rows], r.value[rows], r.free[rows] = plan.price[w], plan.value[w], free[plan.limit[w]]
        busy = np.bincount(kind, plan.rows.count * out.busy[plan.rows.job], kinds)
        useful = np.bincount(kind, plan.rows.count * out.ran[plan.rows.job], kinds)
        waiting = int(waits.sum())
        self.ticks.append(
            (seen.now, out.seconds, len(a) - waiting, waiting, busy, useful, seen.capacity, spent)
        )
        if out.ended.any():
            self.seats.leave(a[out.ended], self.finish)
            self.active = a[~out.ended]

    def _result(self, refused: Ints, complete: bool) -> ClusterRun:
        last = self.ticks[-1][0] + self.ticks[-1][1] if self.ticks else 0.0
        self.seats.leave(self.seats.held.job, np.full(len(self.trace), last))
        kinds = len(self.nodes.types)
        columns = list(zip(*self.ticks, strict=True)) if self.ticks else [()] * 8
        shaped = [
            np.array(c).reshape(len(self.ticks), kinds) if 4 <= k < 7 else np.array(c)
            for k, c in enumerate(columns)
        ]
        return ClusterRun(
            self.policy.name, self.trace, self.nodes, self.slot_s, self.restart_s, self.start, self.finish, self.ran,
            self.busy, self.done, self.lost, self.moves, self.preemptions, refused, self.waited, self.refusal,
            Timeline(*shaped), self.seats.sittings(), complete,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sat:
    """What could be measured in a stretch: K gangs, their first device type, and the speed they showed."""

    job: Ints  # (K,) row of the snapshot
    type: Ints  # (K,)
    apart: Any  # (K,) bool: on several nodes
    speed: Floats  # (K,) steps/s
    seconds: Floats  # (K,) s over which it was measured


def _time_to_do(speed: Floats, wait: Floats, job: Ints, work: Floats, forked: Any) -> Floats:
    """(J,) s until each job's gangs have done its work, gang k being idle for wait[k] s first; inf: never."""
    jobs = len(work)
    counts = speed > 0
    take = np.full(jobs, np.inf)
    for _ in range(2 + int(counts.sum())):
        rate = np.bincount(job, np.where(counts, speed, 0.0), jobs)
        owed = np.bincount(job, np.where(counts, speed * wait, 0.0), jobs)
        take = np.where(rate > 0, (work + owed) / np.where(rate > 0, rate, 1.0), np.inf)
        late = counts & (wait >= take[job]) & forked[job]  # a copy that would still be restarting at the end
        if not late.any():
            break
        counts = counts & ~late
    return take
