"""How long a cluster decision takes: our kernels and policies against linear programs, ratios in one run.

    python benchmarks/policies.py [jobs ...]

Inputs: 83 job types x 3 device types with the spread of Gavel's measured throughputs (drawn; no file needed), gangs
1, 2, 4, 8, and jobs / 4 GPUs of each type, four to a node. Times are CPU ms, the best of several. The programs are
those that Gavel (Narayanan et al., OSDI 2020) solves, here over all jobs with HiGHS: max-sum throughput, max-min,
makespan as one program, finish-time fairness by bisection to 2 %. Gavel's own solver (ECOS through CVXPY), measured
on like inputs with 2,048 jobs: max-sum 46-55 ms, max-min 60 ms, makespan 261 ms, finish-time fairness 6,050 ms;
these are quoted, not re-measured here: that solver is not installed.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, vstack

from eiffel.core.jobs import NOWHERE, Nodes, Outcomes, Snapshot
from eiffel.core.market import clear, level
from eiffel.schedule import policy

GAVEL_MS = {
    "max-sum": 46.4,
    "max-min": 60.0,
    "makespan": 261.0,
    "finish-time": 6050.0,
}  # 2,048 jobs, see above


def best_ms(run: Callable[[], Any], times: int = 5) -> float:
    took = []
    for _ in range(times):
        began = time.process_time()
        run()
        took.append(time.process_time() - began)
    return 1e3 * min(took)


def inputs(jobs: int) -> tuple[Snapshot, np.ndarray]:
    rng = np.random.default_rng(0)
    speed = np.exp(rng.normal(3, 1, (83, 1))) * np.array([1.0, 0.65, 0.2]) * rng.lognormal(0, 0.3, (83, 3))
    kind, gang = rng.integers(0, 83, jobs), rng.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05])
    rate = speed[kind] * gang[:, None] ** 0.8
    work = rate[:, 0] * 3600 * rng.choice(np.arange(0.5, 4.5, 0.5), jobs)
    nodes = Nodes.of({"v100": jobs // 4, "p100": jobs // 4, "k80": jobs // 4}, 4)
    done = rng.uniform(0, 0.9, jobs)
    seen = Snapshot(
        now=20000.0, slot=360.0, restart=10.0, job=np.arange(jobs), arrival=np.sort(rng.uniform(0, 2e4, jobs)),
        work=work, remaining=work * (1 - done), gang=gang, weight=np.ones(jobs), rate=rate, spread=0.75 * rate,
        attained=3600 * gang * done, ran=3600 * done, progress=np.floor(10 * done) / 10, epochs=np.full(jobs, 10),
        last=np.full(jobs, 2e4), held=NOWHERE, nodes=nodes, free=nodes.devices,
    )  # fmt: skip
    return seen, rate


def constraints(rate: np.ndarray, gang: np.ndarray) -> tuple[csr_array, csr_array]:
    """Rows of: time of each job, GPUs of each type; and throughput of each job. Columns (job, type)."""
    jobs, kinds = rate.shape
    column = np.arange(jobs * kinds)
    job, kind = column // kinds, column % kinds
    rows = np.concatenate([job, jobs + kind])
    use = csr_array(
        (np.concatenate([np.ones(len(job)), gang[job]]), (rows, np.tile(column, 2))),
        shape=(jobs + kinds, len(job)),
    )
    return use, csr_array((rate.ravel(), (job, column)), shape=(jobs, len(job)))


def programs(seen: Snapshot) -> dict[str, tuple[Callable[[], float], Callable[[], float]]]:
    """(ours, linear program) of every kernel; both return the objective."""
    rate, gang, capacity = seen.rate, seen.gang.astype(float), seen.capacity.astype(float)
    use, through = constraints(rate, gang)
    ends = np.concatenate([np.ones(len(gang)), capacity])
    mean = rate @ capacity / capacity.sum() / gang
    alone = np.maximum((rate * np.minimum(capacity / len(gang) / gang[:, None], 1 / 3)).sum(axis=1), 1e-9)
    elapsed, due = seen.now - seen.arrival, (seen.work) / alone

    def lowest(a: np.ndarray) -> float:
        unit = a.mean()  # scaled, or HiGHS' tolerances are as large as the objective
        system = csr_array(hstack([use, csr_array((use.shape[0], 1))]))
        need = csr_array(hstack([-through, csr_array(a[:, None] / unit)]))
        cost = np.zeros(system.shape[1])
        cost[-1] = -1
        both = csr_array(vstack([system, need]))
        found = linprog(cost, A_ub=both, b_ub=np.concatenate([ends, np.zeros(len(a))]), method="highs")
        return -unit / float(found.fun)

    def finish_time() -> float:
        low, high = 1e-6, 1e3
        low = float(((seen.remaining / rate.max(axis=1) + elapsed) / due).max())
        high = 4 * low
        while high / low > 1.02:
            middle = (low * high) ** 0.5
            fits = lowest(seen.remaining / (middle * due - elapsed)) <= 1
            low, high = (low, middle) if fits else (middle, high)
        return high

    worth = rate / gang[:, None]
    flat = -(worth * gang[:, None]).ravel()
    return {
        "max-sum": (
            lambda: clear(worth, seen.gang, seen.capacity).bound,
            lambda: -float(linprog(flat, A_ub=use, b_ub=ends, method="highs").fun),
        ),
        "max-min": (lambda: level(rate, gang, capacity, mean).theta, lambda: lowest(mean)),
        "makespan": (
            lambda: level(rate, gang, capacity, seen.remaining).theta,
            lambda: lowest(seen.remaining),
        ),
        "finish-time": (lambda: level(rate, gang, capacity, seen.remaining, due, elapsed).theta, finish_time),
    }


def decisions(seen: Snapshot) -> None:
    cards: list[tuple[str, dict[str, Any]]] = [
        ("srtf", {}), ("tiresias", {}), ("elas", {}), ("yarn_cs", {}), ("market", {"utility": "jct"}), ("market", {}),
        ("hadar", {"utility": "jct"}), ("hadar", {"utility": "thr"}), ("gavel", {}),
        ("gavel", {"objective": "makespan"}), ("gavel", {"objective": "finish_time"}), ("hadare", {}),
    ]  # fmt: skip
    for kind, options in cards:
        made = policy(kind, **options)
        fresh = made.init(seen.nodes)
        first = best_ms(lambda m=made, s=fresh: m.decide(s, seen, np.random.default_rng(0)), 3)
        plan = made.decide(fresh, seen, np.random.default_rng(0))
        busy = np.where(plan.rows.held(len(seen)) > 0, 360.0, 0.0)
        out = Outcomes(seen.now, 360.0, busy, busy, busy, busy > 0, np.zeros(len(seen), bool))
        state = made.learn(fresh, plan, out, seen)
        later = replace(
            seen,
            now=seen.now + 360,
            held=plan.rows,
            remaining=seen.remaining - 0.001 * seen.work * (busy > 0),
        )
        following = best_ms(lambda m=made, s=state, n=later: m.decide(s, n, np.random.default_rng(1)), 3)
        print(
            f"  {kind + ' ' + ' '.join(map(str, options.values())):24s} first {first:8.2f}   next {following:8.2f}"
        )


def main() -> None:
    for jobs in [int(v) for v in sys.argv[1:]] or [128, 512, 2048]:
        seen, _ = inputs(jobs)
        print(f"{jobs} jobs, {seen.nodes.total} GPUs: kernels, CPU ms")
        for name, (ours, program) in programs(seen).items():
            mine, theirs = best_ms(ours), best_ms(program, 1)
            gap = ours() / program() - 1
            against = (
                f"  Gavel's solver (quoted) {GAVEL_MS[name]:7.0f} = {GAVEL_MS[name] / mine:6.1f}x"
                if jobs == 2048
                else ""
            )
            ratio = f"{theirs:9.1f} = {theirs / mine:7.1f}x"
            print(f"  {name:12s} ours {mine:8.2f}  HiGHS {ratio}  objective {gap:+.1e}{against}")
        print("  decisions with placement, CPU ms")
        decisions(seen)


if __name__ == "__main__":
    main()
