"""Many devices side by side: their weights are the rows of one buffer, a step moves all of them.

Devices are sorted by their number of steps, so those still at work are always the first rows: unequal steps
cost nothing. Devices with less than a full batch are padded with samples of weight 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eiffel.core.model import Ints, Local
from eiffel.train.bank import Bank
from eiffel.train.batches import Draws
from eiffel.train.flat import Flat
from eiffel.train.task import Task

Step = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
"""step(x (A, b, ...), y (A, b), share (A, b), told) -> (A,) mean losses before the step, wanted if `told`."""


class Stacked:
    """Blocks of devices in chunks of at most `least`, their weights the rows of one buffer."""

    def __init__(self, flat: Flat, bank: Bank, chunk: int) -> None:
        self.bank, self.least = bank, chunk
        self.draws = Draws()
        padded = -(-flat.size // 16) * 16  # every row starts on a cache line
        self.stack = torch.zeros(chunk, padded, device=flat.weights.device)[:, : flat.size]

    @torch.no_grad()
    def block(self, start: Tensor, task: Task, sums: Tensor, full: Tensor | None) -> tuple[Tensor, Tensor]:
        """As `Ordinary.block`."""
        order = np.argsort(-task.steps, kind="stable")
        parts = [order[low : low + self.least] for low in range(0, order.size, self.least)]
        done = [self._chunk(start, task, part, sums, full, part is parts[0]) for part in parts]
        back = torch.from_numpy(np.argsort(order)).to(sums.device)
        return torch.cat([d[0] for d in done])[back], torch.cat([d[1] for d in done])[back]

    def _chunk(
        self, start: Tensor, task: Task, part: Ints, sums: Tensor, full: Tensor | None, fresh: bool
    ) -> tuple[Tensor, Tensor]:
        stack = self.stack[: part.size]
        first = self.descend(stack.copy_(start), start, task, part)
        torch.sub(start, stack, out=stack)
        sumsq = torch.linalg.vecdot(stack, stack)
        if full is not None:
            full[torch.from_numpy(task.row[part])] = stack.to(full.device)
        fine = torch.isfinite(sumsq)
        if sums.is_cuda or not bool(fine.all()):
            stack = torch.where(fine[:, None], stack, 0.0)
        weights = torch.from_numpy(task.weights[:, part].astype(np.float32)).to(sums.device)
        sums.addmm_(weights, stack, beta=0 if fresh else 1)
        return sumsq, first

    def descend(self, stack: Tensor, start: Tensor, task: Task, part: Ints) -> Tensor:
        """Train the rows of stack, which are copies of start, in place; their first batches' losses."""
        rows, share = padded_batches(self.bank, self.draws, task, part)
        picks, shares = torch.from_numpy(rows).to(stack.device), torch.from_numpy(share).to(stack.device)
        active = (task.steps[part][None] > np.arange(rows.shape[0])[:, None]).sum(1)
        step = self.stepper(stack, task.local, start)
        shift = None if task.shift is None else torch.from_numpy(task.shift[part]).to(stack.device)
        first = torch.zeros(0)
        labels, inside = self.bank.y[picks], self.bank.x.shape[1:]
        for k, count in enumerate(active.tolist()):
            x = self.bank.x.index_select(0, picks[k, :count].reshape(-1))
            losses = step(x.view(count, -1, *inside), labels[k, :count], shares[:count], k == 0)
            if shift is not None:
                stack[:count].sub_(shift[:count], alpha=task.local.lr)
            first = losses if k == 0 else first
        return first

    def stepper(self, stack: Tensor, local: Local, start: Tensor) -> Step:
        """A function that moves the first A rows of stack by one step and returns their losses before it."""
        raise NotImplementedError


def padded_batches(bank: Bank, draws: Draws, task: Task, part: Ints) -> tuple[Ints, NDArray[np.float32]]:
    """Rows (S, C, b) of the samples of every step of the devices of `part`, and their shares (C, b) float32.

    S: most steps, b: widest batch of these devices. Padding repeats a device's first sample with share 0.
    """
    device = task.device[part]
    sizes = bank.sizes(device)
    widths = np.minimum(sizes, task.local.batch)
    rows = np.empty((int(task.steps[part].max()), part.size, int(widths.max())), np.int64)
    for k, (d, n, w) in enumerate(zip(device.tolist(), sizes.tolist(), widths.tolist(), strict=True)):
        steps = int(task.steps[part[k]])
        picks = draws.batches(task.seed, task.round, d, n, task.local.batch, steps)
        rows[:steps, k, :w] = picks
        rows[:, k, w:] = 0
        rows[steps:, k] = 0
    begin = bank.train_start[device % bank.clients]
    share = (np.arange(rows.shape[2])[None] < widths[:, None]) / widths[:, None]
    return bank.train[rows + begin[:, None]], share.astype(np.float32)
