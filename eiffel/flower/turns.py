"""A strategy whose loop is somebody else's: one turn to ask, one turn to hear, for training and for evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord

from eiffel.core.loop import PROBE
from eiffel.core.model import Plan, Snapshot, generator
from eiffel.core.validate import weighted
from eiffel.flower import wire
from eiffel.flower.federation import Growing
from eiffel.flower.post import FlowerPost
from eiffel.flower.wire import Layout
from eiffel.worlds.fleet import FleetWorld
from eiffel.worlds.grid import GridWorld
from eiffel.worlds.post import EVALUATE, TRAIN, Letter, Sent


class Turns:
    """The same acts as in `core.loop.run`, in pieces. The messages' journey is the caller's business."""

    def __init__(
        self, world: GridWorld | FleetWorld, post: FlowerPost, policy: Growing, layout: Layout, seed: int
    ) -> None:
        if not isinstance(world, GridWorld):
            raise ValueError(
                "a grid with a simulated fleet needs the strategy's own loop: call strategy.start()"
            )
        self._world, self._post, self._policy, self._layout, self._seed = world, post, policy, layout, seed
        self._state: Any = None
        self._asked: tuple[Snapshot, Plan, list[Letter], list[Message]] | None = None

    def ask(self, round_: int, arrays: ArrayRecord, config: ConfigRecord) -> list[Message]:
        """Observe and decide."""
        self._post.config = {**self._post.config, TRAIN: config}
        snapshot = self._world.observe(round_)
        if snapshot is None:
            return []
        if self._state is None:
            self._state = self._policy.init(snapshot.size)
        if (
            probe := self._policy.ask(self._state, snapshot, generator(self._seed, round_, PROBE))
        ) is not None:
            answers = self._world.run(probe)
            self._state = self._policy.hear(self._state, snapshot, probe, answers)
            snapshot = self._world.observe(round_) or snapshot
        plan = self._policy.decide(self._state, snapshot, generator(self._seed, round_))
        letters = self._world.letters(plan)
        messages = self._post.messages(letters, plan.params)
        self._asked = snapshot, plan, letters, messages
        return messages

    def hear(self, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Judge and learn. (None, None) where nothing was asked."""
        if self._asked is None:
            return None, None
        (snapshot, plan, letters, messages), self._asked = self._asked, None
        now = self._world.now
        sent = [
            Sent(message.metadata.message_id, letter, wire.weight(message.content), now)
            for letter, message in zip(letters, messages, strict=True)
        ]
        course = self._world.begin(plan, sent)
        for reply in sorted(replies, key=lambda r: r.metadata.src_node_id):
            self._world.hear(self._post.answer(reply), course)
        outcomes = self._world.finish(course)
        self._state = self._policy.learn(self._state, snapshot, plan, outcomes)
        served = self._policy.models(self._state)[self._policy.served]
        return self._layout.record(served), _means(self._world.metrics)

    def ask_scores(self, round_: int, arrays: ArrayRecord, config: ConfigRecord) -> list[Message]:
        """Everybody who is there measures the arrays."""
        self._post.config = {**self._post.config, EVALUATE: config}
        letters = self._world.examiners(round_)
        params = self._layout.flat([array.numpy() for array in arrays.values()])
        return self._post.messages(letters, params)

    def hear_scores(self, replies: Iterable[Message]) -> MetricRecord | None:
        """The means of what they measured."""
        answers = [self._post.answer(reply) for reply in replies]
        return _means(weighted([(a.examples, a.metrics) for a in answers if np.isfinite(a.examples)]))


def _means(table: Mapping[str, tuple[float, float]]) -> MetricRecord | None:
    return MetricRecord({name: mean for name, (mean, _) in table.items()}) if table else None
