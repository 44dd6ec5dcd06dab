"""Training a simulated fleet's cohorts over a Flower grid: Flower's engines behind the `Trainer` seam.

Time, energy and luck are the simulated fleet's; only the work is done by ClientApps, wherever the grid runs
them. So the same card makes the same choices as in the plain simulation, and the same weights but for rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eiffel.core.model import Ints, Params, Plan, Scores, Status, Trained
from eiffel.worlds.gather import Basket, Report, heard
from eiffel.worlds.grid import orders
from eiffel.worlds.post import LOSS, PROBE, TRAIN, Answer, Letter, Post, first_of


class GridTrainer:
    """Implements `Trainer` over a `Post`. size: P. parts: clients that the data have; device i has part i mod parts.

    initial, score: as `Trainer`'s, done here: they are no device's work. task: scalars of every letter. budget:
    seconds that a cohort's training may take. nodes: seconds to wait for the first node. close: called at the end.
    """

    def __init__(
        self,
        post: Post,
        size: int,
        parts: int,
        *,
        initial: Callable[[int], Params],
        score: Callable[[Params], Scores],
        task: Mapping[str, Any] | None = None,
        budget: float = 3600.0,
        wait: float = 120.0,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.size, self.initial, self.score, self.close = size, initial, score, close
        self._post, self._parts, self._task, self._budget, self._wait = (
            post,
            parts,
            dict(task or {}),
            budget,
            wait,
        )

    def train(self, plan: Plan, device: Ints, steps: Ints, seed: int) -> Trained:
        """Train these devices of the plan. Raises RuntimeError, naming the device, where one could not."""
        rows = {int(d): int(k) for k, d in enumerate(plan.chosen)}
        nodes, asked = self._nodes(), [int(d) for d in device]
        letters = [self._letter(plan, rows[d], nodes[d % len(nodes)], seed) for d in asked]
        answers = self._exchange(letters, plan.params)
        if plan.probing:
            return heard({d: _report(a, plan, rows[d]) for d, a in answers.items()}, self.size)
        basket = Basket(len(asked), self.size)
        for d in sorted(asked):
            answer = answers[d]
            update = None if answer.weights is None else plan.params - answer.weights
            basket.add(d, update, _report(answer, plan, rows[d]), answer.slope)
        return basket.close(plan)

    def _nodes(self) -> Sequence[int]:
        """The nodes there are, waiting for the first; which one does a device's work changes nothing."""
        until = time.monotonic() + self._wait
        while not (nodes := self._post.present()):
            if time.monotonic() > until:
                raise TimeoutError(f"no Flower node came within {self._wait:g} s")
            time.sleep(0.1)
        return nodes

    def _letter(self, plan: Plan, k: int, node: int, seed: int) -> Letter:
        told = orders(plan, k, seed)
        task = {**self._task, **told, "part": told["device"] % self._parts}
        shift = None if plan.shift is None else plan.shift[k]
        return Letter(
            PROBE if plan.probing else TRAIN, told["device"], node, task, self._budget, plan.round, shift
        )

    def _exchange(self, letters: Sequence[Letter], params: Params) -> dict[int, Answer]:
        waiting = {
            id_: letter for letter, (id_, _) in zip(letters, self._post.send(letters, params), strict=True)
        }
        answers: dict[int, Answer] = {}
        until, pause = time.monotonic() + self._budget, 0.002
        if "" in waiting:
            raise RuntimeError(f"device {waiting[''].device}: its message could not be sent")
        while waiting:
            arrived = [a for a in self._post.collect(list(waiting)) if a.answers in waiting]
            for answer in arrived:
                device = waiting.pop(answer.answers).device
                if answer.status not in (Status.DELIVERED, Status.NON_FINITE):
                    raise RuntimeError(f"device {device} {answer.status.text}: {answer.why}")
                answers[device] = answer
            if time.monotonic() > until:
                late = sorted(letter.device for letter in waiting.values())
                raise TimeoutError(
                    f"{len(late)} devices did not answer within {self._budget:g} s, the first is {late[0]}"
                )
            pause = 0.002 if arrived else min(2 * pause, 0.2)
            if waiting and not arrived:
                time.sleep(pause)
        return answers


def _report(answer: Answer, plan: Plan, k: int) -> Report:
    told = first_of(answer.metrics, LOSS)
    figures = {"loss" if plan.probing else "first_loss": told, **answer.figures}
    return Report.of(figures, answer.examples, int(plan.steps[k]))
