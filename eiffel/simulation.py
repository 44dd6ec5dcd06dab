"""One simulated federation: from a composed configuration to a run folder, and on from where it stopped.

configuration -> data, trainer, fleet, method -> the loop -> records, rows, summary
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from eiffel import config as cfg
from eiffel import data, train
from eiffel.core import checkpoint, loop, measures
from eiffel.core.checkpoint import write_atomically
from eiffel.core.journal import Books
from eiffel.core.ledger import Ledger, Record, Rows
from eiffel.core.model import Trainer
from eiffel.data.federated import Federated
from eiffel.method import Method
from eiffel.report import Report, open_sinks, read
from eiffel.report.versions import TRAINING, versions
from eiffel.worlds.devices import build_fleet
from eiffel.worlds.fleet import FleetWorld

CONFIG = "config.yaml"
CHECKPOINTS = "checkpoints"
SUMMARY = "summary.json"


@dataclass(slots=True)
class Parts:
    """What a run is made of."""

    data: Federated
    world: FleetWorld
    method: Method
    state: Any
    rounds: int
    size: int
    how: str = ""


def assemble(config: Mapping[str, Any]) -> Parts:
    """Build data, trainer, fleet and method. Raises ConfigError or DataError in words for the user."""
    seed, card = int(config["seed"]), config["datasets"]
    rounds = int(config["rounds"] or card["rounds"])
    # Before anything slow: a misspelt number should not cost the user the loading of the data.
    method = cfg.build_method(config, rounds)
    federated = data.load(card, _clients(config), seed)
    trainer = _trainer(config, federated)
    size = int(config["fleet"]["size"] or len(federated.clients))
    fleet = build_fleet(config["fleet"], size, trainer.size, seed)
    # A fleet larger than the data has clients reuses their parts: device i holds the part of client i mod N.
    examples = np.resize(federated.train.sizes, size).astype(np.int32)
    world = FleetWorld(fleet, trainer, examples, seed=seed)
    state = method.init(trainer.initial(seed), size)
    return Parts(federated, world, method, state, rounds, size, getattr(trainer, "note", ""))


def _trainer(config: Mapping[str, Any], federated: Federated) -> Trainer:
    """The engine; one outside `eiffel.train` names its maker, "package.module:callable", in `engine.trainer`."""
    where = config["engine"].get("trainer")
    if not where:
        return train.trainer(federated, config["datasets"]["model"], config["engine"], int(config["seed"]))
    module, _, name = str(where).partition(":")
    try:
        make = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as problem:
        raise cfg.ConfigError(
            f"engine.trainer is {where!r}; write package.module:callable ({problem})"
        ) from problem
    trainer: Trainer = make(config, federated, _clients(config))
    return trainer


def _clients(config: Mapping[str, Any]) -> int | None:
    """How many clients the data are dealt to: the fleet's size, unless the card fixes a smaller number."""
    size, parts = config["fleet"]["size"], config["datasets"].get("parts")
    return int(parts) if parts else (int(size) if size else None)


def simulate(config: Mapping[str, Any], folder: Path, *, command: str = "") -> Record:
    """Run a federation from its first round; returns the summary that lies in the folder."""
    if (folder / CONFIG).exists():
        raise cfg.ConfigError(
            f"{folder} already holds a run. Go on with it by `eiffel resume {folder}`, or choose another "
            f"folder (hydra.run.dir=...)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / CONFIG, OmegaConf.to_yaml(OmegaConf.create(dict(config))).encode())
    try:
        run = _Run(config, folder, command)
    except Exception as problem:
        # Nothing ran, but the folder should say what was tried and why it failed.
        failed = {"status": "failed", "why": str(problem), "command": command, "seed": config["seed"]}
        write_atomically(folder / SUMMARY, json.dumps(failed, indent=2).encode())
        raise
    return run.go()


def resume(folder: Path, *, command: str = "") -> Record:
    """Go on exactly where a killed run stopped: from its newest usable checkpoint.

    Raises ConfigError when the folder holds no run, CheckpointError when no checkpoint can be used.
    """
    if not (folder / CONFIG).exists():
        raise cfg.ConfigError(f"{folder} holds no run: there is no {CONFIG} in it. Name the folder of a run")
    run = _Run(cfg.plain(OmegaConf.load(folder / CONFIG)), folder, command)
    run.restore()
    return run.go()


class _Run:
    """A run in its folder: parts, books, sinks, summary."""

    def __init__(self, config: Mapping[str, Any], folder: Path, command: str) -> None:
        self.config, self.path = config, folder
        self.started, self.done = time.monotonic(), 0
        self.parts = assemble(config)
        self.curve = Curve()
        self.about = about(config, self.parts, command)
        stop_at = config["stop_at"]
        self.books = Books(
            self.parts.world,
            self.parts.method,
            Ledger.open(self.parts.size),
            rounds=self.parts.rounds,
            score_every=int(config["score_every"]),
            sinks=(self.curve.add, self._tell),
            folder=folder / CHECKPOINTS,
            save_every=int(config["save_every"]),
            stop=lambda row: stop_when(row, stop_at) if stop_at else "",
        )

    def _tell(self, row: Record, columns: Rows) -> None:
        self.sinks.record(row, columns)

    def restore(self) -> None:
        """Take up the newest usable checkpoint and the records up to it."""
        template = self.books.tree(self.parts.state)
        self.done, tree, complaints = checkpoint.load(self.path / CHECKPOINTS, template)
        for complaint in complaints:
            print(complaint, file=sys.stderr)
        self.parts.state, self.books.ledger = tree["policy"], tree["ledger"]
        self.parts.world.restore(tree["world"])
        for row in read.load(self.path).records:
            if row["round"] <= self.done:
                self.curve.add(dict(row))

    def go(self) -> Record:
        """The loop, with a summary before and after, whatever happens."""
        card = cfg.construct(Report, self.config["report"], "report")
        rounds, name = self.parts.rounds, self.path.name
        self.sinks = open_sinks(
            card, self.path, rounds=rounds, name=name, config=self.config, after=self.done
        )
        if self.parts.how and card.terminal != "off":
            print(self.parts.how, file=sys.stderr)
        self._summary("running", "")
        try:
            with interrupts() as cancelled:
                ended = loop.run(
                    self.parts.world,
                    self.parts.method,
                    self.books,
                    self.parts.state,
                    rounds=self.parts.rounds,
                    seed=int(self.config["seed"]),
                    first=self.done + 1,
                    cancelled=cancelled,
                )
            self._save_model(ended.state)
            finished = ended.round == self.parts.rounds or not ended.why.startswith("interrupted")
            return self._summary("finished" if finished else "stopped", ended.why)
        except BaseException as problem:
            self._summary("failed", f"{type(problem).__name__}: {problem}")
            raise
        finally:
            self.sinks.close()
            self.parts.world.close()

    def _save_model(self, state: Any) -> None:
        method = self.parts.method
        checkpoint.write_npz(self.path / "model.npz", dict(method.models(state)))

    def _summary(self, status: str, why: str) -> Record:
        rows, served = self.curve.rows, self.parts.method.served
        totals = self.books.ledger.totals
        final = {name: measures.last_mean([r["scores"][name] for r in rows]) for name in ("last", "ema")}
        summary = {
            **self.about,
            "status": status,
            "why": why,
            "final": {"served": final[served], **final},
            "totals": {
                "rounds": self.curve.last,
                "bytes": totals.bytes_down + totals.bytes_up,
                "joules": totals.joules_useful + totals.joules_wasted,
                "joules_wasted": totals.joules_wasted,
                "seconds": totals.seconds,
                "steps": totals.steps,
            },
            "targets": targets(rows, served, self.config["target"]),
            "wall_s": time.monotonic() - self.started,
            "finished": None if status == "running" else _now(),
        }
        self.sinks.summary(summary)
        return summary


@dataclass(slots=True)
class Curve:
    """The records that hold an evaluation, in order; what the summary is made of."""

    rows: list[Record] = field(default_factory=list)
    last: int = 0

    def add(self, row: Record, _: Rows | None = None) -> None:
        """Keep a record that was scored."""
        self.last = row["round"]
        if row["scores"]:
            self.rows.append(row)


def targets(rows: Sequence[Record], served: str, accuracy: float | None) -> dict[str, Any]:
    """What it had cost when each model reached the target accuracy (default: 98 % of its own final one)."""
    reached: dict[str, Any] = {}
    for name in ("last", "ema"):
        curve = [row["scores"][name]["accuracy"] for row in rows]
        goal = accuracy or 0.98 * (measures.last_mean([{"a": a} for a in curve]).get("a", float("nan")))
        costs = {
            "rounds": [row["round"] for row in rows],
            "bytes": [row["total_bytes"] for row in rows],
            "joules": [row["total_joules"] for row in rows],
            "seconds": [row["total_s"] for row in rows],
        }
        reached[name] = measures.to_target(curve, goal, costs) if rows else None
    return {"served": reached[served], **reached}


def stop_when(row: Record, accuracy: float) -> str:
    """A reason to end the run once the served model is good enough, or ''."""
    scores = row["scores"]
    if scores and scores[scores["served"]]["accuracy"] >= accuracy:
        return f"the served model reached {accuracy:.3g}"
    return ""


def about(config: Mapping[str, Any], parts: Parts, command: str) -> Record:
    """What was run and with what: enough to do it again."""
    return {
        "command": command,
        "overrides": command.split()[2:] if command.startswith("eiffel sim") else [],
        "seed": config["seed"],
        "started": _now(),
        "strategy": {"name": parts.method.name, "card": config["strategies"]},
        "data": {
            "name": parts.data.name,
            "clients": len(parts.data.clients),
            "samples": int(parts.data.y.shape[0]),
            "metric": parts.data.metric,
            "sources": dict(parts.data.sources),
        },
        "fleet": {"name": config["fleet"]["name"], "devices": parts.size},
        "rounds": parts.rounds,
        "engine": parts.how,
        "parameters": int(parts.state.aggregate.params.size),
        "versions": versions(*TRAINING),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def interrupts() -> Iterator[Callable[[], str]]:
    """While inside, Ctrl-C and SIGTERM ask the run to end after its round; a second one is obeyed."""
    asked: list[str] = []

    def ask(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(f"interrupted by {signal.Signals(number).name}; `eiffel resume` goes on from here")

    try:
        old = {s: signal.signal(s, ask) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: whoever runs us there owns the signals
        yield lambda: ""
        return
    try:
        yield lambda: asked[0] if asked else ""
    finally:
        for number, before in old.items():
            signal.signal(number, before)
