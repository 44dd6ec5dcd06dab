"""A round's bookkeeping for very large fleets: choosing 100 devices and booking what came back.

    python benchmarks/fleet.py [--largest 10000000]

Everything but training: predict costs, rule out, score (loss rank, size, age, cost), draw, learn, ledger. Printed
as milliseconds and as a ratio to one numpy argpartition of the same length, timed in turn in the same run.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np

from eiffel.aggregate import Aggregate, Rank
from eiffel.core.checkpoint import flatten
from eiffel.core.ledger import Ledger
from eiffel.core.model import Local, Outcomes, Plan, Reports, Snapshot, Status, Trained, generator
from eiffel.method import Cohort, Method
from eiffel.pace import EiffelPace
from eiffel.select import EiffelSelect, Uniform

K = 100
P = 1000
ROUNDS = 9


def fleet(n: int) -> Snapshot:
    """n devices with lognormal costs."""
    rng = np.random.default_rng(0)

    def spread(sigma: float) -> np.ndarray:
        return rng.lognormal(0, sigma, n).astype(np.float32)

    return Snapshot(
        round=1,
        now=0.0,
        reason=np.zeros(n, np.uint8),
        examples=rng.integers(10, 500, n).astype(np.int32),
        step_s=spread(0.9),
        step_j=spread(0.9),
        exchange_s=spread(1.1),
        exchange_j=spread(1.1),
        battery_j=spread(0.2) * 1e4,
        capacity_j=np.full(n, 5e4, np.float32),
        bytes_down=4 * P,
        bytes_up=4 * P + 16,
    )


def came_back(plan: Plan, rng: np.random.Generator) -> Outcomes:
    """Everybody delivers a random update."""
    k = plan.chosen.size
    loss = rng.lognormal(size=k)
    reports = Reports(plan.chosen, np.full(k, 50), plan.steps, loss, loss)
    weights = plan.weigh(reports)
    sums = rng.normal(size=(len(weights), P)).astype(np.float32)
    trained = Trained(reports, rng.random(k), weights, sums)
    ones = np.ones(k)
    status = np.full(k, Status.DELIVERED, np.uint8)
    moved = np.full(k, 4 * P)
    return Outcomes(plan.round, 0.0, 1.0, plan.chosen, status, plan.steps, ones, ones, moved, moved, trained)


def milliseconds(work: Callable[[], object]) -> float:
    """Of one call."""
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)


def measure(n: int, method: Method) -> dict[str, float]:
    """Medians over rounds, in turn: a round of the method, one argpartition, and the size of the state."""
    snapshot, rng = fleet(n), np.random.default_rng(1)
    state, ledger = method.init(np.zeros(P, np.float32), n), Ledger.open(n)
    keys = rng.random(n, np.float32)
    rounds, limits = [], []
    for round_ in range(1, ROUNDS + 1):
        world = Snapshot(**{**{f: getattr(snapshot, f) for f in Snapshot.__slots__}, "round": round_})
        begun = time.perf_counter()
        plan = method.decide(state, world, generator(0, round_))
        decided = time.perf_counter()
        outcomes = came_back(plan, rng)
        told = time.perf_counter()
        state = method.learn(state, world, plan, outcomes)
        ledger = ledger.add(world, plan, outcomes)
        rounds.append(1e3 * (time.perf_counter() - told + decided - begun))
        limits.append(milliseconds(lambda: np.argpartition(keys, n - K)))
    held = sum(a.nbytes for tree in (state, ledger, snapshot) for a in flatten(tree).values())
    return {
        "round_ms": float(np.median(rounds)),
        "partition_ms": float(np.median(limits)),
        "state_mb": held / 1e6,
    }


METHODS = {
    "eiffel": Method(
        name="eiffel",
        select=EiffelSelect(),
        pace=EiffelPace(),
        aggregate=Aggregate(Rank()),
        local=Local(probe=64),
        cohort=Cohort(K),
    ),
    "uniform": Method(select=Uniform(), cohort=Cohort(K), name="uniform"),
}


def main() -> None:
    """Print the table and keep it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=10_000_000)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    table = []
    print(f"{'devices':>10}  {'method':8}  {'round':>9}  {'argpartition':>12}  {'ratio':>6}  {'state':>9}")
    for n in (1_000, 10_000, 100_000, 1_000_000, 10_000_000):
        if n > chosen.largest:
            break
        for name, method in METHODS.items():
            row = {"devices": n, "method": name} | measure(n, method)
            row["ratio"] = row["round_ms"] / row["partition_ms"]
            table.append(row)
            print(
                f"{n:>10,}  {name:8}  {row['round_ms']:6.2f} ms  {row['partition_ms']:9.2f} ms"
                f"  {row['ratio']:6.1f}  {row['state_mb']:6.1f} MB"
            )
    chosen.results.mkdir(exist_ok=True)
    out = chosen.results / f"fleet-{date.today()}.json"
    out.write_text(
        json.dumps({"machine": platform.processor() or platform.machine(), "rows": table}, indent=1)
    )
    print(f"results: {out}")


if __name__ == "__main__":
    main()
