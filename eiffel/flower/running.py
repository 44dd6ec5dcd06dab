"""A strategy's run over a grid: from settings to records, and on from where a killed run stopped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from logging import INFO
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.supercore import log

from eiffel.core import checkpoint, loop
from eiffel.core.journal import Books
from eiffel.core.ledger import Ledger, Record
from eiffel.core.measures import last_mean
from eiffel.core.model import Params, Scores
from eiffel.flower.digest import code_digest
from eiffel.flower.federation import NEVER, Growing, Journal, Measured
from eiffel.flower.grid import EiffelGrid
from eiffel.flower.post import FlowerPost
from eiffel.flower.trainer import GridTrainer
from eiffel.flower.wire import Layout
from eiffel.method import Method
from eiffel.report import RunFolder, Sink
from eiffel.report.read import load
from eiffel.worlds.fleet import FleetWorld
from eiffel.worlds.grid import GridWorld
from eiffel.worlds.post import EVALUATE, TRAIN, NotEnoughNodes, Waits

CHECKPOINTS = "checkpoints"
Central = Callable[[int, ArrayRecord], MetricRecord | None]
"""Measures a model on the server, as Flower's `evaluate_fn`."""


@dataclass
class Finished(Result):
    """Flower's Result, with every round's record and why the run ended. rounds: done."""

    records: list[Record] = field(default_factory=list)
    why: str = ""
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """How a strategy is carried out.

    seed: of selection, and of batches with our ClientApp. devices: size of the federation; 0: whoever comes.
    waits: the budget of every wait. score_every: rounds between evaluations on the devices' own data (0: none).
    evaluators: most devices that evaluate (0: all). sinks: take every record while the run goes. folder: of the
    run: records, devices' rows, checkpoints. resume: go on from the folder's newest checkpoint, if it has one.
    stop: takes each record, returns a reason to end or ''. task: scalars that every message carries to our app.
    about: what else belongs in the run's summary.
    """

    seed: int = 0
    devices: int = 0
    waits: Waits | None = None
    score_every: int = 1
    evaluators: int = 0
    sinks: Sequence[Sink] = ()
    folder: Path | None = None
    resume: bool = False
    stop: Callable[[Record], str] = lambda row: ""
    task: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)


class Run:
    """One run of a strategy over a grid."""

    def __init__(
        self, method: Method, settings: Settings, grid: Grid, arrays: ArrayRecord, rounds: int, timeout: float
    ) -> None:
        self.settings, self.rounds = settings, rounds
        adopt_log()
        self.layout = Layout.of(arrays)
        params = self.layout.flat([array.numpy() for array in arrays.values()])
        self.post = FlowerPost(grid, self.layout)
        self.policy = Growing(method, params)
        self.task = {"code": code_digest(), **settings.task}
        self.world = self._world(grid, timeout)

    def _world(self, grid: Grid, timeout: float) -> GridWorld | FleetWorld:
        waits = self.settings.waits or Waits(wanted=self.policy.method.cohort.asked)
        waits = replace(waits, round_s=min(waits.round_s, timeout))
        size = grid.fleet.size if isinstance(grid, EiffelGrid) and grid.fleet is not None else 0
        real = GridWorld(
            self.post,
            self.layout.size,
            seed=self.settings.seed,
            devices=size or self.settings.devices,
            waits=waits,
            task=self.task,
            evaluators=self.settings.evaluators,
        )
        if not isinstance(grid, EiffelGrid) or grid.fleet is None:
            return real
        return simulated(
            grid, real, self.post, self.policy.init(size).aggregate.params, self.task, self.settings.seed
        )

    def speak(self, train: ConfigRecord | None, evaluate: ConfigRecord | None) -> None:
        """Send the app's own numbers along."""
        self.post.config = {TRAIN: train or ConfigRecord(), EVALUATE: evaluate or ConfigRecord()}

    def go(self, central: Central | None) -> Finished:
        """The loop, from the first round or from where a killed run stopped."""
        s, result, began = self.settings, Finished(), time.monotonic()
        if isinstance(self.world, GridWorld) and self.world.observe(0) is None:
            raise NotEnoughNodes(self.world.why)
        folder = RunFolder(s.folder) if s.folder is not None else None
        sinks = (*((folder,) if folder else ()), *s.sinks)
        devices = self.world.nodes.size if isinstance(self.world, GridWorld) else self.world.size
        state = self.policy.init(devices)
        tell = [sink.record for sink in sinks]
        journal = self._journal(tell, devices, lambda round_, now: self._judge(result, round_, now, central))
        done, state = self._restore(journal, state) if s.resume else (0, state)
        if folder is not None:
            folder.truncate(done)
        if not done:
            self._judge(result, 0, state, central)

        def summary(status: str, why: str) -> None:
            about = self._about(journal, status, why) | {"wall_s": time.monotonic() - began}
            for sink in sinks:
                sink.summary(about)

        summary("running", "")
        try:
            ended = loop.run(
                self.world, self.policy, journal, state, rounds=self.rounds, seed=s.seed, first=done + 1
            )
            summary("finished" if ended.round == self.rounds else "stopped", ended.why)
        except BaseException as problem:
            failed = isinstance(problem, Exception)
            summary("failed" if failed else "stopped", f"{type(problem).__name__}: {problem}")
            raise
        finally:
            for sink in sinks:
                sink.close()
        if ended.round == 0 and self.rounds:
            raise NotEnoughNodes(ended.why)
        models = self.policy.models(ended.state)
        if s.folder is not None:
            checkpoint.write_npz(s.folder / "model.npz", dict(models))
        result.arrays = self.layout.record(models[self.policy.served])
        result.records, result.why, result.rounds = journal.records, ended.why, ended.round
        log(INFO, "Eiffel: %s after %d rounds", ended.why, ended.round)
        return result

    def _about(self, journal: Journal, status: str, why: str) -> dict[str, Any]:
        """The run's summary, as `eiffel report` reads it."""
        served, totals = self.policy.served, journal.books.ledger.totals
        scored = [row["scores"][served] for row in journal.records if row["scores"]]
        final = last_mean(scored) if scored else {}
        return {
            "status": status,
            "why": why,
            "seed": self.settings.seed,
            "strategy": {"name": self.policy.method.name},
            "fleet": {"devices": int(journal.books.ledger.participation.size)},
            "rounds": self.rounds,
            "parameters": self.layout.size,
            "final": {"served": final, served: final},
            "totals": {
                "rounds": journal.records[-1]["round"] if journal.records else 0,
                "bytes": totals.bytes_down + totals.bytes_up,
                "joules": totals.joules_useful + totals.joules_wasted,
                "joules_wasted": totals.joules_wasted,
                "seconds": totals.seconds,
                "steps": totals.steps,
            },
            **self.settings.about,
        }

    def _journal(
        self, tell: Sequence[Callable[..., None]], devices: int, after: Callable[[int, Any], str]
    ) -> Journal:
        s = self.settings
        journal = Journal(self.world, s.folder, tell, after)
        journal.books = Books(
            Measured(self.world, self.policy.served),
            self.policy,
            Ledger.open(devices),
            rounds=self.rounds if s.score_every else NEVER,
            score_every=s.score_every or NEVER,
            sinks=(journal.sink,),
            folder=None if s.folder is None else s.folder / CHECKPOINTS,
            stop=s.stop,
        )
        return journal

    def _restore(self, journal: Journal, state: Any) -> tuple[int, Any]:
        """The newest usable checkpoint's round and state; 0 and the state as it is where there is none."""
        folder = self.settings.folder
        if folder is None or not any((folder / CHECKPOINTS).glob("*.npz")):
            return 0, state
        done, tree, complaints = checkpoint.load(folder / CHECKPOINTS, journal.books.tree(state))
        for complaint in complaints:
            log(INFO, "%s", complaint)
        self.world.restore(tree["world"])
        journal.books.ledger = tree["ledger"]
        journal.records += [dict(row) for row in load(folder).records if row["round"] <= done]
        self.policy.resumed(int(tree["ledger"].participation.size))
        return done, tree["policy"]

    def _judge(self, result: Finished, round_: int, state: Any, central: Central | None) -> str:
        """Flower's own figures of a round."""
        if isinstance(self.world, GridWorld) and round_:
            if self.world.metrics:
                result.train_metrics_clientapp[round_] = means(self.world.metrics)
            if (
                self.settings.score_every
                and round_ % self.settings.score_every == 0
                and self.world.evaluation
            ):
                result.evaluate_metrics_clientapp[round_] = means(self.world.evaluation)
        if central is not None:
            found = central(round_, self.layout.record(self.policy.models(state)[self.policy.served]))
            if found is not None:
                result.evaluate_metrics_serverapp[round_] = found
        return ""


def means(table: Mapping[str, tuple[float, float]]) -> MetricRecord:
    """Weighted means as Flower carries them."""
    return MetricRecord({name: mean for name, (mean, _) in table.items()})


def simulated(
    grid: EiffelGrid, real: GridWorld, post: FlowerPost, params: Params, task: Mapping[str, Any], seed: int
) -> FleetWorld:
    """The simulated fleet of an in-process grid: its clock and energy, the grid's ClientApps."""
    assert grid.fleet is not None
    size = grid.fleet.size

    def score(model: Params) -> Scores:
        nan = np.full(size, np.nan)
        return real.score({"it": model}).get("it", Scores(nan, nan, np.zeros(size, np.int64)))

    trainer = GridTrainer(post, int(params.size), size, initial=lambda _: params, score=score, task=task)
    return FleetWorld(grid.fleet, trainer, grid.examples, seed=seed)


def adopt_log() -> None:
    """What the world says of its devices goes where Flower's own log goes, and so into `flwr log`."""
    ours, theirs = logging.getLogger("eiffel"), logging.getLogger("flwr")
    ours.setLevel(theirs.level)
    for handler in theirs.handlers:
        if handler not in ours.handlers:
            ours.addHandler(handler)
