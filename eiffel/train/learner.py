"""What one process does with a task: measure the incoming loss, train a block, judge test samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eiffel.core.model import Floats
from eiffel.train import models
from eiffel.train.bank import Bank, Source
from eiffel.train.batches import Draws
from eiffel.train.flat import Flat
from eiffel.train.objectives import sample_losses
from eiffel.train.paths import choose
from eiffel.train.task import Task

FORWARD = 256  # samples a forward pass: large enough for full speed, small enough for the cache


class Learner:
    """One module, its flat buffers and the samples: everything a worker needs, built once."""

    def __init__(self, data: Source, card: models.Card, settings: Mapping[str, Any]) -> None:
        device = str(settings.get("device") or "cpu")
        self.bank = Bank.of(data, device)
        self.flat = Flat(models.initial(card, data, 0), device)
        self.draws = Draws()
        self.path, self.note = choose(self.flat, self.bank, bool(card.get("module")), settings)

    def train(self, start: Tensor, task: Task, sums: Tensor, full: Tensor | None) -> tuple[Floats, Floats]:
        """Train a block into zeroed sums (m, P); (k,) |u|^2 and (k,) first-batch losses."""
        sums.zero_()
        sumsq, first = self.path.block(start, task, sums, full)
        return numbers(sumsq), numbers(first)

    def probe(self, start: Tensor, task: Task) -> Floats:
        """(k,) mean loss of `start` on the probed samples of each device."""
        count = self.bank.sizes(task.device)
        picks = [
            self.draws.probe(task.seed, task.round, int(d), int(n), task.local.probe)
            for d, n in zip(task.device, count, strict=True)
        ]
        return self._own(start, task, picks)

    def first(self, start: Tensor, task: Task) -> Floats:
        """(k,) mean loss of `start` on each device's first batch, without training."""
        count, local = self.bank.sizes(task.device), task.local
        picks = [
            self.draws.batches(task.seed, task.round, int(d), int(n), local.batch, 1)[0]
            for d, n in zip(task.device, count, strict=True)
        ]
        return self._own(start, task, picks)

    def _own(self, start: Tensor, task: Task, picks: list[Any]) -> Floats:
        """(k,) mean losses of `start` over picked own samples: one pass over all devices together."""
        rows = [self.bank.rows(int(d))[torch.from_numpy(p)] for d, p in zip(task.device, picks, strict=True)]
        owner = np.repeat(np.arange(len(picks)), [p.size for p in picks])
        losses = self._forward(start, torch.cat(rows))[0]
        return np.asarray(np.bincount(owner, losses) / np.bincount(owner), dtype=np.float64)

    def judge(self, start: Tensor, low: int, high: int) -> tuple[Floats, Floats]:
        """Loss and mark of the test samples low..high-1 (in order of the test parts), each (high - low,).

        The mark is the share of right answers (0 or 1 for classes), or, for AUROC, the log-odds of class 1.
        """
        rows = torch.from_numpy(self.bank.test[low:high]).to(self.bank.x.device)
        return self._forward(start, rows)

    @torch.no_grad()
    def _forward(self, start: Tensor, rows: Tensor) -> tuple[Floats, Floats]:
        self.flat.weights.copy_(start)
        self.flat.module.eval()
        losses, marks = [], []
        for low in range(0, rows.numel(), FORWARD):
            some = rows[low : low + FORWARD]
            y = self.bank.y.index_select(0, some)
            output = self.flat.module(self.bank.x.index_select(0, some))
            losses.append(sample_losses(output, y))
            marks.append(self._mark(output, y))
        return numbers(torch.cat(losses)), numbers(torch.cat(marks))

    def _mark(self, output: Tensor, y: Tensor) -> Tensor:
        if self.bank.auroc:
            return output[:, 1] - output[:, 0]
        right = (output.argmax(-1) == y).float()
        return right if y.dim() == 1 else right.mean(-1)


def numbers(values: Tensor) -> Floats:
    """A tensor's values as float64 on the CPU."""
    return np.asarray(values.detach().cpu().numpy(), dtype=np.float64)
