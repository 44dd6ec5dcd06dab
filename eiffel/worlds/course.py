"""One round among real nodes as it goes: who has answered what, and what became of the rest."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from eiffel.core import validate
from eiffel.core.model import Codes, Floats, Outcomes, Plan, Status, Trained
from eiffel.worlds.gather import Basket, Report, heard
from eiffel.worlds.nodes import Nodes
from eiffel.worlds.post import LOSS, Answer, Sent, first_of

log = logging.getLogger("eiffel")

_OPEN = 255  # no answer yet


class Course:
    """One round as it goes: who has answered what. Rows as in `Plan.chosen`."""

    def __init__(self, plan: Plan, sent: Sequence[Sent], size: int, start: float) -> None:
        self.plan, self.sent, self.start = plan, sent, start
        self.basket = Basket(int(plan.chosen.size), size)
        self.metrics: list[tuple[float, Mapping[str, float]]] = []
        k = int(plan.chosen.size)
        self.status: Codes = np.full(k, _OPEN, np.uint8)
        self.seconds, self.joules = np.full(k, np.nan), np.full(k, np.nan)
        self.steps, self.bytes_up = np.zeros(k, np.int64), np.zeros(k, np.int64)
        self.bytes_down = np.array([s.bytes for s in sent], np.int64)
        self.status[[not s.id for s in sent]] = Status.FAILED
        self.probed: dict[int, Report] = {}

    @property
    def delivered(self) -> int:
        """How many count so far."""
        return int(np.count_nonzero(self.status == Status.DELIVERED))

    @property
    def stated(self) -> int:
        """How many devices have stated what energy they used."""
        return int(np.count_nonzero(np.isfinite(self.joules)))

    @property
    def over(self) -> bool:
        """Whether enough count, or nobody is left to wait for."""
        enough = 0 < self.plan.wait_for <= self.delivered
        return enough or not bool((self.status == _OPEN).any())

    def take(self, device: int, answer: Answer, now: float) -> None:
        """Book an answer of this round."""
        k = int(np.searchsorted(self.plan.chosen, device))
        figures = answer.figures
        self.seconds[k], self.bytes_up[k] = now - self.start, answer.bytes
        self.joules[k] = figures.get("joules", np.nan)
        self.steps[k] = int(
            figures.get("steps", self.plan.steps[k] if answer.status == Status.DELIVERED else 0)
        )
        self.status[k] = self._judge(device, k, answer)
        if answer.why:
            log.warning("device %d: %s (%s)", device, Status(int(self.status[k])).text, answer.why)

    def _judge(self, device: int, k: int, answer: Answer) -> Status:
        if answer.status not in (Status.DELIVERED, Status.NON_FINITE):
            return answer.status
        if self.over:
            return Status.SURPLUS
        report = self._report(k, answer)
        if self.plan.probing:
            self.probed[device] = report
            return Status.DELIVERED
        if not validate.sound_weight(answer.examples):
            return Status.BAD_WEIGHT
        update = None if answer.weights is None else self.plan.params - answer.weights
        if not self.basket.add(device, update, report, answer.slope):
            return Status.NON_FINITE
        self.metrics.append((answer.examples, answer.metrics))
        return Status.DELIVERED

    def _report(self, k: int, answer: Answer) -> Report:
        """What the device said. A stock app's only loss is that of training: it stands in for the first one."""
        told = first_of(answer.metrics, LOSS)
        figures = {"loss" if self.plan.probing else "first_loss": told, **answer.figures}
        examples = answer.examples if validate.sound_weight(answer.examples) else 0.0
        return Report.of(figures, examples, int(self.plan.steps[k]))

    def close(self, end: float, nodes: Nodes) -> Outcomes:
        """What became of the round; energy that devices did not state is estimated from what is known of them."""
        enough = 0 < self.plan.wait_for <= self.delivered
        given_up = Status.LATE if np.isfinite(self.plan.deadline_s) else Status.SILENT
        self.status[self.status == _OPEN] = Status.SURPLUS if enough else given_up
        seconds = np.where(np.isnan(self.seconds), end - self.start, self.seconds)
        return Outcomes(
            round=self.plan.round,
            start_s=self.start,
            end_s=end,
            device=np.asarray(self.plan.chosen, np.int64),
            status=self.status,
            steps=self.steps,
            seconds=seconds,
            joules=np.where(np.isnan(self.joules), self._estimate(seconds, nodes), self.joules),
            bytes_down=self.bytes_down,
            bytes_up=self.bytes_up,
            trained=self._trained(),
        )

    def _estimate(self, seconds: Floats, nodes: Nodes) -> Floats:
        """(K,) joules a task takes by what is known of the devices, or the part of it that there was time for."""
        seen = nodes.snapshot(0, 0.0, np.zeros(nodes.size, np.uint8), 0, 0)
        who = self.plan.chosen
        steps = np.where(self.steps > 0, self.steps, self.plan.steps)
        due = steps * seen.step_s[who] + seen.exchange_s[who]
        joules = steps * seen.step_j[who] + seen.exchange_j[who]
        share = np.clip(np.divide(seconds, due, out=np.ones(due.shape), where=due > 0), 0.0, 1.0)
        return np.asarray(np.where(self.status == Status.DELIVERED, 1.0, share) * joules, np.float64)

    def _trained(self) -> Trained:
        if self.plan.probing or not len(self.basket):
            return heard(self.probed, self.basket.size)
        return self.basket.close(self.plan)
