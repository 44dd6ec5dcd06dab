"""`eiffel reproduce`: make the runs that files of sims/ ask for, print what they came to, write one page."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from eiffel.config import ConfigError
from eiffel.reproduce import field, results, sims, text
from eiffel.reproduce.cluster import evaluated
from eiffel.reproduce.results import FAILS, HOLDS, MISSED, SHOWN, UNJUDGED, Result
from eiffel.reproduce.sims import SIMS, Cluster, Sim


def main(argv: Sequence[str]) -> int:
    """`eiffel reproduce [NAME ...] [--long] [--list]`; 1 where a gate fails whose file does not say so itself."""
    chosen = _parser().parse_args(argv)
    form = "long" if chosen.long else "short"
    names = list(dict.fromkeys(chosen.names)) or sims.names()
    wanted = [sims.read(name, form) for name in names]
    if chosen.list:
        print(text.listing(wanted))
        return 0
    if chosen.workers < 1:
        raise ConfigError(f"--workers is {chosen.workers}; it must be at least 1")
    found = reproduce(wanted, form, chosen.out, chosen.workers, chosen.fresh)
    from eiffel.reproduce import page

    where = page.write(found, form, chosen.out / "reproduce.html")
    print(summary(found))
    print(f"page: {os.path.relpath(where)}")
    return 1 if any(result.failed or (chosen.strict and result.missed) for result in found) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "eiffel reproduce",
        description="Run the results kept in sims/, print measured against expected, write one page; "
        "exits with 1 where a gate fails, unless its file says beforehand that it is missed, and why. "
        "Runs that lie in --out already are not made again.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="files of sims/ (default: all)")
    parser.add_argument("--long", action="store_true", help="more seeds, full numbers of rounds, all runs")
    parser.add_argument("--list", action="store_true", help="say what there is and how long each takes")
    parser.add_argument("--out", type=Path, default=Path("outputs/reproduce"), help="folder of runs and page")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="runs at a time (default: one a core)"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 for announced misses too")
    parser.add_argument("--fresh", action="store_true", help="make all runs again, also those that lie there")
    return parser


def reproduce(
    wanted: Sequence[Sim | Cluster], form: str, out: Path, workers: int, fresh: bool = False
) -> list[Result]:
    """Make every run and work every file out, printing as it goes."""
    tuned = field.read_tuned(SIMS / "tuned.yaml")
    # All files are composed before anything runs: a misspelt key in the last should not cost the first.
    asked = {sim.name: field.jobs(sim, tuned) for sim in wanted if isinstance(sim, Sim)}
    made: set[str] = set()
    done = []
    with field.Workers(workers) as pool:
        # The cluster's files are one task each and take minutes: they go first, and runs fill the gaps.
        waiting = {s.name: pool.submit(evaluated, s, out, fresh) for s in wanted if isinstance(s, Cluster)}
        for sim in wanted:
            began, spent = time.monotonic(), pool.spent
            if isinstance(sim, Cluster):
                result = waiting[sim.name]()
            else:
                jobs = asked[sim.name]
                if fresh:
                    field.forget([j for j in jobs.values() if j.key not in made], out)
                failed = field.perform(list(jobs.values()), out, pool, tell)
                made |= {j.key for j in jobs.values()}
                result = results.federated(sim, jobs, out, failed)
                result.tuning = field.tuning(sim, tuned)
            result.seconds = time.monotonic() - began
            result.processor += pool.spent - spent
            print(text.result_text(result, form), flush=True)
            done.append(result)
    return done


def tell(words: str) -> None:
    """Progress goes to standard error, so that the tables can be sent to a file."""
    print(words, file=sys.stderr, flush=True)


def summary(found: Sequence[Result]) -> str:
    """The last line: what holds and what does not."""
    states = [f.state for r in found for f in r.figures if f.state != SHOWN]
    said = {MISSED: "missed, as their files say"}
    words = [
        f"{states.count(state)} {said.get(state, state)}"
        for state in (HOLDS, FAILS, MISSED, UNJUDGED)
        if states.count(state)
    ]
    broken = sum(len(r.broken) for r in found)
    return "\ngates: " + (", ".join(words) or "none") + (f"; {broken} runs failed" if broken else "")
