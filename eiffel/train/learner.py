"""What one process does with a task: measure the incoming loss, train a block, judge test samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eiffel.core.model import Floats, Local, Slopes
from eiffel.train import models
from eiffel.train.bank import Bank, Source
from eiffel.train.batches import Draws
from eiffel.train.flat import Flat
from eiffel.train.objectives import sample_losses
from eiffel.train.ordinary import Ordinary
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

    def warm(self) -> None:
        """Train a device or two for one step: what torch loads and compiles at first use, it then has."""
        device = np.arange(min(2, self.bank.clients), dtype=np.int64)
        ones = np.ones_like(device)
        task = Task(0, 0, Local(), device, ones, device, np.ones((1, device.size)))
        self.train(self.flat.weights.clone(), task, torch.zeros(1, self.flat.size), None)

    def train(
        self, start: Tensor, task: Task, sums: Tensor, full: Tensor | None
    ) -> tuple[Floats, Floats, Slopes | None]:
        """Train a block, overwriting sums (m, P); (k,) |u|^2, (k,) first-batch losses, slopes if asked for."""
        sumsq, first = self.path.block(start, task, sums, full)
        slopes = self._slopes(start, task, full) if task.gradients and full is not None else None
        return numbers(sumsq), numbers(first), slopes

    def _slopes(self, start: Tensor, task: Task, full: Tensor) -> Slopes:
        """Gradients on each device's first batch, at `start` and at the end of its training."""
        ends = start - full[torch.from_numpy(task.row)].to(start.device)
        told = [
            self._surface(start, end, rows, task.local)
            for end, rows in zip(ends, self._firsts(task), strict=True)
        ]
        gradient = np.zeros((len(told), start.numel()), np.float32)
        for row, (slope, _, _) in zip(gradient, told, strict=True):
            row[: slope.numel()] = slope.cpu().numpy()
        return Slopes(gradient, np.array([t[1] for t in told]), np.array([t[2] for t in told]))

    def _surface(self, start: Tensor, end: Tensor, rows: Tensor, local: Local) -> tuple[Tensor, float, float]:
        """The gradient of `start` on these rows, and how fast gradient and loss change on the way to `end`."""
        ordinary = Ordinary(self.flat, self.bank, False)
        self.flat.module.eval()
        (slope, loss), (end_slope, end_loss) = (ordinary.slope(w, rows, local) for w in (start, end))
        way = float(torch.linalg.vector_norm(end - start))
        if way <= 1e-10:
            return slope, 0.0, 0.0
        return slope, float(torch.linalg.vector_norm(end_slope - slope)) / way, abs(end_loss - loss) / way

    def probe(self, start: Tensor, task: Task) -> Floats:
        """(k, 2) mean and root-mean-square loss of `start` over the probed samples of each device."""
        count = self.bank.sizes(task.device)
        picks = [
            self.draws.probe(task.seed, task.round, int(d), int(n), task.local.probe)
            for d, n in zip(task.device, count, strict=True)
        ]
        return self._measure(start, self._own(task, picks))

    def first(self, start: Tensor, task: Task) -> Floats:
        """(k, 2) likewise over each device's first batch, without training."""
        return self._measure(start, self._firsts(task))

    def _firsts(self, task: Task) -> list[Tensor]:
        """Row numbers of each device's first batch."""
        count, local = self.bank.sizes(task.device), task.local
        picks = [
            self.draws.batches(task.seed, task.round, int(d), int(n), local.batch, 1)[0]
            for d, n in zip(task.device, count, strict=True)
        ]
        return self._own(task, picks)

    def _own(self, task: Task, picks: list[Any]) -> list[Tensor]:
        """Row numbers of picked own samples."""
        return [self.bank.rows(int(d))[torch.from_numpy(p)] for d, p in zip(task.device, picks, strict=True)]

    def _measure(self, start: Tensor, rows: list[Tensor]) -> Floats:
        """(k, 2) mean and root-mean-square losses of `start`: one pass over all devices together."""
        owner = np.repeat(np.arange(len(rows)), [r.numel() for r in rows])
        losses, count = self._forward(start, torch.cat(rows))[0], np.bincount(owner)
        mean, square = np.bincount(owner, losses) / count, np.bincount(owner, losses**2) / count
        return np.stack([mean, np.sqrt(square)], axis=1)

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
