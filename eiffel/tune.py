"""`eiffel tune`: a search of a strategy's learning rate, local steps and own knob, with as many trials for each.

From the data card's own setting the search walks over a fixed grid: it tries the neighbours of the best setting so
far, one knob up or down a step, until it has spent its trials or the best has no untried neighbour. A walk reaches
past any corner of the grid that a full grid of the same cost would have to leave out; the grid itself ends at a
learning rate of 3 and 200 local steps. Every setting is tried on the first seed; those within 1.5 points of the best
there are tried on the other seeds too, and the choice is made among these, by their means: the one, within half a
point of the best final accuracy, that needs the fewest bytes to 98 % of that accuracy. The result goes to
sims/tuned.yaml.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from eiffel import config as cfg
from eiffel.core.checkpoint import write_atomically
from eiffel.core.measures import to_target
from eiffel.report.read import load
from eiffel.reproduce import sims
from eiffel.reproduce.command import tell
from eiffel.reproduce.field import Job, Workers, job, perform, read_tuned
from eiffel.reproduce.sims import SIMS, Data, Method, SimsError

LR, STEPS = "strategies.local.lr", "strategies.pace.steps"
GRID: dict[str, tuple[float, ...]] = {
    LR: (0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    STEPS: (1, 2, 5, 10, 20, 50, 100, 200),
}
"""What is searched for every strategy; local steps only where the card fixes them."""

KNOBS: dict[str, dict[str, tuple[float, ...]]] = {
    "fedprox": {"strategies.local.mu": (0.001, 0.01, 0.1, 1.0)},
    "qfedavg": {"strategies.aggregate.weights.q": (0.001, 0.01, 0.1, 1.0, 5.0)},
    "term": {"strategies.aggregate.weights.t": (0.1, 0.5, 1.0, 2.0, 5.0)},
    "afl": {"strategies.aggregate.weights.ascent": (0.001, 0.01, 0.1, 1.0)},
    "fedavgm": {"strategies.aggregate.lr": (0.1, 0.3, 1.0)},
    "wang": {"strategies.pace.phi": (1e-5, 1e-4, 1e-3, 0.025)},
    "fedadagrad": {"strategies.aggregate.lr": (0.001, 0.01, 0.1, 1.0)},
    "fedadam": {"strategies.aggregate.lr": (0.001, 0.01, 0.1, 1.0)},
    "fedyogi": {"strategies.aggregate.lr": (0.001, 0.01, 0.1, 1.0)},
}
"""A rule's own knob, where its paper tunes one."""

KEPT = SIMS / "tuned.yaml" if SIMS.parent == cfg.ROOT else Path("tuned.yaml")
"""In a checkout the file that the tables read; an installed package is not written to."""

SEEDS, SHARE = (0, 7, 8), 0.98
SLACK, RACE = 0.005, 0.015
"""Accuracy below the best at which a setting may still be chosen, and at which it is tried on further seeds."""

Setting = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """One run: final accuracy (0..1), then accuracy and running bytes at every evaluation."""

    final: float
    accuracy: tuple[float, ...]
    bytes: tuple[float, ...]

    def cost(self, target: float) -> float:
        """Bytes to the target; infinite where it was never reached."""
        hit = to_target(self.accuracy, target, {"bytes": self.bytes})
        return hit["bytes"] if hit else float("inf")


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting and its runs, one for each seed so far, in the order of the seeds."""

    setting: Setting
    runs: tuple[Curve, ...]

    @property
    def accuracy(self) -> float:
        """Mean of the final accuracies."""
        return fmean(r.final for r in self.runs)

    def cost(self, target: float) -> float:
        """Mean bytes to the target; infinite where a run never reached it."""
        return fmean(r.cost(target) for r in self.runs)


def main(argv: Sequence[str]) -> int:
    """`eiffel tune STRATEGY ... --data NAME ...`."""
    parser = argparse.ArgumentParser("eiffel tune", description=(__doc__ or "").split("\n\n", 1)[1])
    parser.add_argument("strategies", nargs="+", metavar="STRATEGY")
    parser.add_argument(
        "--data", nargs="+", required=True, metavar="NAME", help="data cards, or names in sims/_baselines"
    )
    parser.add_argument("--budget", type=int, default=24, help="trials for each strategy on each data set")
    parser.add_argument("--rounds", type=int, help="rounds of a trial (default: the data card's)")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="some that no table uses")
    parser.add_argument("--out", type=Path, default=Path("outputs/tune"), help="folder of the trials' runs")
    parser.add_argument("--into", type=Path, default=KEPT, help="file that keeps the result")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(argv)
    if chosen.budget < 1:
        raise SimsError(f"--budget is {chosen.budget}; it must be at least one trial")
    with Workers(chosen.workers) as pool:
        for name in chosen.data:
            for strategy in chosen.strategies:
                found = search(strategy, data_named(name), chosen, pool)
                keep(chosen.into, strategy, name, found)
                print(f"{strategy} on {name}: {words(found)}", flush=True)
    return 0


def data_named(name: str) -> Data:
    """A data set as sims/_baselines.yaml deals it, else a data card by its name."""
    known = sims.load("_baselines").get("data", {}) if (SIMS / "_baselines.yaml").exists() else {}
    entry = known.get(name) or {}
    card = entry.get("card", name)
    if card not in cfg.options("datasets"):
        raise SimsError(f"--data {name}. {cfg.did_you_mean(name, {*known, *cfg.options('datasets')})}")
    return Data(name, card, entry.get("set") or {})


def grid_of(strategy: str, data: Data) -> tuple[dict[str, tuple[float, ...]], Setting]:
    """The knobs of a strategy with their values, and the setting of its cards, where the search begins."""
    card = job(Method(strategy, strategy, {}), data, SEEDS[0], None).config
    known = GRID | KNOBS.get(strategy, {})
    values = {key: _dig(card, key) for key in known}
    values[LR] = values[LR] or card["datasets"]["local"]["lr"]
    grid = {key: known[key] for key, value in values.items() if value is not None}
    start = tuple((key, min(grid[key], key=lambda v: abs(v - float(values[key])))) for key in grid)
    return grid, start


def _dig(config: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key, None where there is none."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def neighbours(grid: Mapping[str, Sequence[float]], setting: Setting) -> list[Setting]:
    """The settings that differ in one knob by one step of the grid."""
    found = []
    for i, (key, value) in enumerate(setting):
        at = grid[key].index(value)
        for next_ in (at + 1, at - 1):
            if 0 <= next_ < len(grid[key]):
                found.append((*setting[:i], (key, grid[key][next_]), *setting[i + 1 :]))
    return found


def search(strategy: str, data: Data, chosen: argparse.Namespace, pool: Workers) -> dict[str, Any]:
    """Walk over the grid; returns what sims/tuned.yaml keeps."""
    if strategy not in cfg.options("strategies"):
        raise SimsError(
            f"there is no strategy {strategy!r}. {cfg.did_you_mean(strategy, cfg.options('strategies'))}"
        )
    grid, start = grid_of(strategy, data)
    runs: dict[Setting, dict[int, Curve]] = {}
    wave = [start]
    while wave and len(runs) < chosen.budget:
        runs |= {setting: {} for setting in wave[: chosen.budget - len(runs)]}
        for seed in chosen.seeds:
            due = [s for s in contenders(runs, chosen.seeds) if seed not in runs[s]]
            for setting, curve in _try(strategy, data, seed, due, chosen, pool).items():
                runs[setting][seed] = curve
        wave = [s for s in neighbours(grid, best(trials(runs, chosen.seeds)).setting) if s not in runs]
    return _entry(grid, trials(runs, chosen.seeds), strategy, chosen)


def contenders(runs: Mapping[Setting, Mapping[int, Curve]], seeds: Sequence[int]) -> list[Setting]:
    """Settings worth a run on every seed: near the best on the first one, or not run yet."""
    first = {s: found[seeds[0]].final for s, found in runs.items() if found}
    bar = max(first.values(), default=0.0) - RACE
    return [s for s in runs if first.get(s, bar) >= bar]


def trials(runs: Mapping[Setting, Mapping[int, Curve]], seeds: Sequence[int]) -> list[Trial]:
    """What is known of each setting, those run on every seed first: only among these is chosen."""
    made = [Trial(s, tuple(found[seed] for seed in seeds if seed in found)) for s, found in runs.items()]
    return sorted(made, key=lambda t: -len(t.runs))


def _try(
    strategy: str, data: Data, seed: int, wave: Sequence[Setting], chosen: argparse.Namespace, pool: Workers
) -> dict[Setting, Curve]:
    """Run some settings. One that diverges goes on with the last finite model and ends with a low accuracy."""
    asked: dict[Setting, Job] = {
        s: job(Method(strategy, strategy, dict(s)), data, seed, chosen.rounds) for s in wave
    }
    failed = perform(list(asked.values()), chosen.out, pool, tell)
    found = {}
    for setting, one in asked.items():
        if one.key in failed:
            raise SimsError(f"{one.command}: {failed[one.key][1]}")
        run = load(one.folder(chosen.out))
        found[setting] = Curve(
            run.final().get("accuracy", 0.0),
            tuple(run.score("accuracy")),
            tuple(run.at_evaluations("total_bytes")),
        )
    return found


def best(found: Sequence[Trial]) -> Trial:
    """Of the trials on every seed, and within half a point of the best, the one with fewest bytes to 98 % of that."""
    full = [t for t in found if len(t.runs) == len(found[0].runs)]
    top = max(t.accuracy for t in full)
    near = [t for t in full if t.accuracy >= top - SLACK]
    return min(near, key=lambda t: (t.cost(SHARE * top), -t.accuracy))


def _entry(
    grid: Mapping[str, Sequence[float]],
    found: Sequence[Trial],
    strategy: str,
    chosen: argparse.Namespace,
) -> dict[str, Any]:
    """A result in plain words and numbers."""
    won = best(found)
    target = SHARE * max(t.accuracy for t in found if len(t.runs) == len(won.runs))
    cost = won.cost(target)
    tried = {t.setting for t in found}
    return {
        "set": dict(won.setting),
        "accuracy": round(100 * won.accuracy, 2),
        "target": round(100 * target, 2),
        "target_mb": round(cost / 1e6, 3) if cost < float("inf") else None,
        "edge": [key for key, value in won.setting if _on_edge(key, value, grid[key])],
        "all_neighbours_tried": all(s in tried for s in neighbours(grid, won.setting)),
        "seeds": list(chosen.seeds),
        "rounds": chosen.rounds,
        "budget": chosen.budget,
        "date": datetime.now(UTC).date().isoformat(),
        "grid": {key: list(values) for key, values in grid.items()},
        "trials": [[*(v for _, v in t.setting), len(t.runs), round(100 * t.accuracy, 2)] for t in found],
    }


def _on_edge(key: str, value: float, values: Sequence[float]) -> bool:
    """Whether the grid might have had to go on: fewer local steps than one there are not."""
    return value in (values[0], values[-1]) and (key, value) != (STEPS, 1)


def keep(file: Path, strategy: str, data: str, entry: Mapping[str, Any]) -> None:
    """Put a result into the file, in one step; what others found stays."""
    found = read_tuned(file)
    found.setdefault(strategy, {})[data] = dict(entry)
    ordered = {s: {d: found[s][d] for d in sorted(found[s])} for s in sorted(found)}
    head = "# Written by `eiffel tune`: the choice, and every trial (knobs in order, number of seeds, accuracy in %).\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    body = yaml.safe_dump(ordered, sort_keys=False, width=110, default_flow_style=None)
    write_atomically(file, (head + body).encode())


def words(entry: Mapping[str, Any]) -> str:
    """What was found, in a line."""
    setting = ", ".join(f"{key.split('.')[-1]} {value:g}" for key, value in entry["set"].items())
    edge = (
        f"; on the grid's edge: {', '.join(k.split('.')[-1] for k in entry['edge'])}" if entry["edge"] else ""
    )
    cost = f"{entry['target_mb']} MB to {entry['target']} %" if entry["target_mb"] else "target not reached"
    return f"{setting}: {entry['accuracy']} %, {cost} ({len(entry['trials'])} trials{edge})"
