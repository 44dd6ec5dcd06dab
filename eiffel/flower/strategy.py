"""Eiffel in an existing Flower app: a strategy for Flower's Message API. Nothing else in the app changes.

    from eiffel.flower import Strategy
    strategy = Strategy.card("eiffel")
    result = strategy.start(grid, initial_arrays, num_rounds=50)

It is a thin layer over the loop that the simulation runs: same policy, same validator, same ledger, same records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from logging import INFO
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from flwr.supercore import log

from eiffel.flower.federation import NEVER
from eiffel.flower.running import Central, Finished, Run, Settings
from eiffel.flower.turns import Turns
from eiffel.method import Method


class Strategy(FlowerStrategy):
    """A federated method as a Flower strategy.

    method: the four choices, see `eiffel.method.Method`. settings: see `Settings`; also as keywords.
    """

    def __init__(self, method: Method, settings: Settings | None = None, **keywords: Any) -> None:
        self.method = method
        self.settings = settings or Settings(**keywords)
        self._turns: Turns | None = None

    @classmethod
    def card(cls, name: str = "eiffel", *overrides: str, **keywords: Any) -> Strategy:
        """The strategy of a card of strategies/, with Hydra overrides and keywords of `Settings`.

        `Strategy.card("oort", "cohort.size=5", "cohort.deadline_s=60", folder="outputs/first")`. Raises ConfigError.
        """
        from eiffel import config as cfg
        from eiffel.flower.composing import composed, waits

        config = composed("strategy", [f"strategies={name}", *overrides])
        method = cfg.build_method(config, 0)
        named = {key: config[key] for key in ("seed", "devices", "score_every", "evaluators")}
        if keywords.get("folder") is not None:
            keywords["folder"] = Path(keywords["folder"])
        return cls(method, **{**named, "waits": waits(config["waits"], method.cohort.asked), **keywords})

    def summary(self) -> None:
        """Say what the strategy is made of."""
        m = self.method
        for name, part in (("select", m.select), ("pace", m.pace), ("weights", m.aggregate.weights)):
            log(INFO, "\t├──> %s: %s", name, part)
        log(INFO, "\t└──> %s", m.cohort)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Central | None = None,
    ) -> Finished:
        """Run the federation. timeout: of a round without a deadline, seconds, unless `waits` says less.

        train_config, evaluate_config: the app's own numbers, sent as they are. evaluate_fn: measures the served
        model on the server, before the first round and after each. Raises NotEnoughNodes when no round could
        begin; a run that can no longer go on ends with what it has, and `why` says so.
        """
        run = Run(self.method, self.settings, grid, initial_arrays, num_rounds, timeout)
        run.speak(train_config, evaluate_config)
        log(INFO, "Starting Eiffel strategy %r:", self.method.name)
        self.summary()
        return run.go(evaluate_fn)

    # Under somebody else's loop (Flower's own `start` of another class, a wrapper for differential privacy, ...).

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of a round; none when there are too few nodes."""
        if self._turns is None:
            run = Run(self.method, self.settings, grid, arrays, NEVER, math.inf)
            self._turns = Turns(run.world, run.post, run.policy, run.layout, self.settings.seed)
        return self._turns.ask(server_round, arrays, config)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The model after a round, and the means of what the devices measured."""
        return (None, None) if self._turns is None else self._turns.hear(replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of an evaluation on the devices' own data."""
        every = self.settings.score_every
        due = self._turns is not None and every > 0 and server_round % every == 0
        return self._turns.ask_scores(server_round, arrays, config) if due and self._turns is not None else []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Means over the devices that measured, weighted by their examples."""
        return None if self._turns is None else self._turns.hear_scores(replies)
