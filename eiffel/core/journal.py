"""The journal of a federated run: scores, ledger, record, sinks, checkpoint, in this order, every round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from eiffel.core import checkpoint
from eiffel.core.ledger import Ledger, Record, Rows, record, rows, scored
from eiffel.core.model import Outcomes, Params, Plan, Scores, Snapshot

Sink = Callable[[Record, Rows], None]
"""Takes each round's record and the per-device columns, while the run goes."""


class Scorable(Protocol):
    """What the journal needs of a world: scoring models, and a state to save."""

    def score(self, models: Mapping[str, Params]) -> Mapping[str, Scores]:
        """Measure models on every client's own test part; {} where the world cannot."""
        ...

    def state(self) -> Mapping[str, Any]:
        """All that a resumed world needs."""
        ...


class Models(Protocol):
    """What the journal needs of a method: the models its server holds."""

    def models(self, state: Any) -> Mapping[str, Params]:
        """By name: `last` and `ema`."""
        ...

    @property
    def served(self) -> str:
        """Which of them is published."""
        ...


class Books:
    """Keeps the books of a federated run. See `eiffel.core.loop.Journal`.

    score_every: rounds between evaluations (the last round is always scored). folder: where checkpoints go,
    None for none. save_every: rounds between checkpoints. stop: takes each record, returns a reason to end.
    """

    def __init__(
        self,
        world: Scorable,
        method: Models,
        ledger: Ledger,
        *,
        rounds: int,
        score_every: int = 2,
        sinks: Sequence[Sink] = (),
        folder: Path | None = None,
        save_every: int = 1,
        stop: Callable[[Record], str] = lambda _: "",
    ) -> None:
        self.ledger = ledger
        self._world, self._method, self._sinks, self._folder = world, method, sinks, folder
        self._probe: tuple[Plan, Outcomes] | None = None
        self._rounds, self._score_every, self._save_every, self._stop = rounds, score_every, save_every, stop

    def probed(self, snapshot: Snapshot, probe: Plan, answers: Outcomes) -> None:
        """Book what a probe cost, and remember it for the record of the round that follows."""
        self.ledger = self.ledger.spend(probe, answers)
        self._probe = probe, answers

    def add(self, round_: int, snapshot: Snapshot, plan: Plan, outcomes: Outcomes, state: Any) -> str:
        """Book one round; returns a reason to stop early, or ''."""
        self.ledger = self.ledger.add(snapshot, plan, outcomes)
        row = record(self.ledger, snapshot, plan, outcomes, self._probe)
        self._probe = None
        scores: Mapping[str, Scores] = {}
        if round_ % self._score_every == 0 or round_ == self._rounds:
            scores = self._world.score(self._method.models(state))
        if scores:
            row = scored(row, self._method.served, scores)
        columns = rows(snapshot, plan, outcomes, scores.get(self._method.served))
        for sink in self._sinks:
            sink(row, columns)
        if self._folder is not None and (round_ % self._save_every == 0 or round_ == self._rounds):
            # Last, so that a checkpoint never claims a round whose record was not written.
            checkpoint.save(self._folder, round_, self.tree(state))
        return self._stop(row)

    def tree(self, state: Any) -> dict[str, Any]:
        """Everything a resumed run needs, as one tree."""
        return {"policy": state, "world": self._world.state(), "ledger": self.ledger}
