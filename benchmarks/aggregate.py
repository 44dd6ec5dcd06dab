"""What it costs to check updates as they are summed, against plain in-place additions, in turn in one run.

    python benchmarks/aggregate.py [--params 10000000] [--updates 1000]

    plain add             total.add_(update, alpha=w): no check at all
    accumulate            the same for an update that arrived whole: read once to check it, once to add it
    made                  update = start - end in place, then added: no check at all
    made and checked      `difference`, which checks, then added
    numpy                 total += w * update, as many aggregators do

One thread. Memory is the total and one update (8 updates take turns, so that none sits in the cache).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import record
from eiffel.train import streams


def variants(params: int, batch: int) -> dict[str, Callable[[int], Any]]:
    """Each adds `batch` updates."""
    pool = [torch.rand(params) for _ in range(8)]
    total, start = torch.zeros(params), torch.rand(params)
    one, weight = total[None], 1e-3

    def made(turn: int) -> None:
        for k in range(batch):
            end = pool[(turn + k) % 8]
            torch.sub(start, end, out=end)
            total.add_(end, alpha=weight)

    def checked(turn: int) -> None:
        for k in range(batch):
            end = pool[(turn + k) % 8]
            streams.add(one, (weight,), end, streams.difference(start, end))

    def each(call: Callable[[torch.Tensor], Any]) -> Callable[[int], Any]:
        return lambda turn: [call(pool[(turn + k) % 8]) for k in range(batch)] and None

    def numpy(update: torch.Tensor) -> None:
        array = total.numpy()
        array += weight * update.numpy()

    return {
        "plain add": each(lambda u: total.add_(u, alpha=weight)),
        "accumulate": each(lambda u: streams.accumulate(total, u, weight)),
        "made": made,
        "made and checked": checked,
        "numpy": each(numpy),
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--params", type=int, default=10_000_000)
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=20, help="updates a turn")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    calls = variants(asked.params, asked.batch)
    seconds = record.in_turn(calls, max(3, asked.updates // asked.batch))
    found = record.rows(seconds, "plain add")
    record.table(f"{asked.batch} updates of {asked.params:,} parameters a turn", found)
    by_name = {r["variant"]: r for r in found}
    made = by_name["made and checked"]["median_ms"] / by_name["made"]["median_ms"]
    arrived = by_name["accumulate"]["median_ms"] / by_name["plain add"]["median_ms"]
    print(f"\n  an arriving update: {arrived:.2f}x a plain add; checking one as it is made: {made:.2f}x not")
    record.write("aggregate", {"params": asked.params, "rows": found, "arrived": arrived, "made": made})


if __name__ == "__main__":
    main()
