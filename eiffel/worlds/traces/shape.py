"""Which jobs of a trace to run and when they arrive: options of every format, applied in this order.

filter    min_length, max_length (s on the fastest device type), max_gang
pick      first | window (consecutive, from a random row or `start`) | sample (random rows) | iid (random
          rows with replacement, all at 0); how many: jobs
cap       no job longer than this (s on the fastest device type): its work is cut
arrivals  keep | static | poisson | gamma (gap: mean s between arrivals, burst: their coefficient of
          variation)
load      stretch the arrivals until offered work / capacity over the arrival span is this; or time_scale
epochs    in how many epochs each job reports progress
"""

from dataclasses import replace

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from eiffel.core.jobs import Nodes, Trace
from eiffel.worlds.traces.options import Options
from eiffel.worlds.traces.reading import Floats, Ints, TraceError

OPTIONS = (
    *("min_length", "max_length", "max_gang", "pick", "jobs", "start", "cap"),
    *("arrivals", "gap", "burst", "load", "time_scale", "epochs", "seed"),
)


def shape(trace: Trace, options: Options, nodes: Nodes | None) -> Trace:
    """Return the trace that the options ask for. Raises TraceError when they leave no job or lack a
    cluster.
    """
    trace = _capped(_picked(_filtered(trace, options), options), options)
    if not len(trace):
        raise TraceError("no job is left; widen min_length, max_length, max_gang, vc or jobs", field="trace")
    arrival = _spaced(_arrivals(trace, options), trace, options, nodes)
    if options.given("epochs"):
        trace = replace(trace, epochs=np.full(len(trace), options.whole("epochs", 1, low=1)))
    return replace(trace, arrival=arrival)


def length(trace: Trace) -> Floats:
    """Return (J,) seconds of each job alone on its fastest device type; inf if it has work and runs
    nowhere.
    """
    best = trace.rate.max(axis=1, initial=0.0)
    safe = np.where(best > 0, best, 1.0)
    return np.where(trace.work == 0, 0.0, np.where(best > 0, trace.work / safe, np.inf))


def stop_early(trace: Trace, share: float, seed: int) -> tuple[Trace, Floats]:
    """Let a `share` of the jobs end before they said: their work is U(0.2, 1) of what they declared.

    Returns the trace with the work that is really done, and what was declared (J,) steps.
    """
    rng = np.random.default_rng([seed, 3])
    ends = rng.random(len(trace)) < share
    part = np.where(ends, rng.uniform(0.2, 1.0, len(trace)), 1.0)
    return replace(trace, work=trace.work * part), trace.work


def demand(trace: Trace, nodes: Nodes) -> float:
    """Return the seconds in which the whole cluster could do the whole work: the least T of a linear
    programme.

    Variables z_cr >= 0, the share of the work of class c (jobs alike in rates and gang) done on type r:
        sum_r z_cr = 1,    sum_c w_c W_c z_cr / X_cr <= C_r T
    W: steps, w: gang, X: steps/s (spread over nodes if the gang is larger than any node of that type), C:
    devices.
    Jobs that run nowhere are left out. It ignores that one job cannot use two types at once: it says how
    loaded the cluster is, not how soon it can be done.
    """
    fits = trace.gang[:, None] <= nodes.largest()
    known = trace.on(nodes.types)
    speed = np.where(fits, known.rate, known.spread) * (trace.gang[:, None] <= nodes.capacity())
    runs = (speed > 0).any(axis=1) & (trace.work > 0)
    if not runs.any():
        return 0.0
    alike, back = np.unique(np.column_stack([speed, trace.gang])[runs], axis=0, return_inverse=True)
    work = np.bincount(back.reshape(-1), weights=trace.work[runs])
    return _least(alike[:, :-1], alike[:, -1] * work, nodes.capacity().astype(float))


def _least(speed: Floats, load: Floats, capacity: Floats) -> float:
    """Solve the programme of `demand`: speed (C, R), load (C,) device-steps, capacity (R,)."""
    c, r = np.nonzero(speed > 0)
    seconds = load[c] / speed[c, r]
    unit = float(load[c].sum() / (speed[c, r] * capacity.sum()).max()) or 1.0
    last, k = len(c), np.arange(len(c))
    classes, types = speed.shape
    one = coo_array((np.ones(last), (c, k)), shape=(classes, last + 1))
    rows, columns = np.concatenate([r, np.arange(types)]), np.concatenate([k, np.full(types, last)])
    cap = coo_array((np.concatenate([seconds / unit, -capacity]), (rows, columns)), shape=(types, last + 1))
    cost = np.zeros(last + 1)
    cost[last] = 1.0
    found = linprog(cost, A_ub=cap.tocsr(), b_ub=np.zeros(types), A_eq=one.tocsr(), b_eq=np.ones(classes))
    if not found.success:
        raise TraceError(f"cannot work out the offered load: {found.message}", field="trace.load")
    return float(found.fun) * unit


def _filtered(trace: Trace, options: Options) -> Trace:
    seconds = length(trace)
    keep = seconds >= options.number("min_length", 0.0)
    if options.given("max_length"):
        keep &= seconds <= options.number("max_length", 0.0)
    if options.given("max_gang"):
        keep &= trace.gang <= options.whole("max_gang", 1, low=1)
    return trace if keep.all() else trace.take(np.flatnonzero(keep))


def _picked(trace: Trace, options: Options) -> Trace:
    """Keep `jobs` jobs. Those from inside a trace start at 0; those drawn iid all arrive at 0."""
    pick = options.choice("pick", ("first", "window", "sample", "iid"), "first")
    count = options.whole("jobs", len(trace), low=1)
    if count > len(trace) and pick != "iid":
        cure = "ask for fewer, or pick: iid to draw with replacement"
        problem = f"{count} jobs wanted, {len(trace)} are there; {cure}"
        raise options.fault("jobs", problem)
    if pick == "first":
        return trace if count == len(trace) else trace.take(np.arange(count))
    rng = np.random.default_rng([options.whole("seed", 0), 1])
    rows = _rows(pick, len(trace), count, options, rng)
    ids = tuple(trace.id[k] for k in rows) if pick != "iid" else tuple(str(k) for k in range(count))
    arrival = np.zeros(count) if pick == "iid" else trace.arrival[rows] - trace.arrival[rows].min()
    arrays = ("work", "gang", "epochs", "weight", "rate", "spread")
    picked = {name: getattr(trace, name)[rows] for name in arrays}
    return Trace(
        id=ids, arrival=arrival, types=trace.types, model=tuple(trace.model[k] for k in rows), **picked
    )


def _rows(pick: str, jobs: int, count: int, options: Options, rng: np.random.Generator) -> Ints:
    if pick == "iid":
        return rng.integers(0, jobs, count)
    if pick == "sample":
        return np.sort(rng.choice(jobs, count, replace=False))
    start = options.whole("start", int(rng.integers(0, jobs - count + 1)))
    if start + count > jobs:
        raise options.fault("start", f"{start} + {count} jobs is beyond the {jobs} that are there")
    return np.arange(start, start + count)


def _capped(trace: Trace, options: Options) -> Trace:
    if not options.given("cap"):
        return trace
    most = options.number("cap", 0.0) * trace.rate.max(axis=1, initial=0.0)
    return replace(trace, work=np.minimum(trace.work, np.where(most > 0, most, trace.work)))


def _arrivals(trace: Trace, options: Options) -> Floats:
    kind = options.choice("arrivals", ("keep", "static", "poisson", "gamma"), "keep")
    if kind == "keep":
        return trace.arrival
    jobs = len(trace)
    if kind == "static":
        return np.zeros(jobs)
    if not options.given("gap") and not options.given("load"):
        raise options.fault("gap", f"arrivals: {kind} needs gap (mean seconds between arrivals) or load")
    rng = np.random.default_rng([options.whole("seed", 0), 2])
    spread = options.number("burst", 2.0) if kind == "gamma" else 1.0
    if spread <= 0:
        raise options.fault("burst", "must be above 0; 1 is Poisson, more is burstier")
    waits = rng.gamma(spread**-2, options.number("gap", 1.0) * spread**2, jobs)
    return np.asarray(np.cumsum(waits) - waits[0])


def _spaced(arrival: Floats, trace: Trace, options: Options, nodes: Nodes | None) -> Floats:
    if not options.given("load"):
        return arrival * options.number("time_scale", 1.0)
    if options.given("time_scale"):
        raise options.fault("load", "load and time_scale both set the arrivals; give one")
    if nodes is None:
        raise options.fault("load", "needs a cluster: offered load is work over capacity")
    load, span = options.number("load", 1.0), float(np.ptp(arrival))
    if load <= 0 or (span == 0 and len(trace) > 1):
        raise options.fault(
            "load", "must be above 0, and arrivals must not all be at once (arrivals: poisson)"
        )
    start = arrival.min(initial=np.inf)
    scale = demand(trace, nodes) / load / span if span else 1.0
    return np.asarray(start + (arrival - start) * scale)
