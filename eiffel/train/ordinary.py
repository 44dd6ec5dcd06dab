"""The ordinary path: one device after the other through one module, whatever the module is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from eiffel.core.model import Local
from eiffel.train import streams
from eiffel.train.bank import Bank
from eiffel.train.batches import Draws
from eiffel.train.flat import Flat
from eiffel.train.objectives import mean_loss, objective, sample_losses
from eiffel.train.task import Task


class Ordinary:
    """Plain SGD through autograd on flat buffers. `seeded`: the module may draw random numbers."""

    def __init__(self, flat: Flat, bank: Bank, seeded: bool) -> None:
        self.flat, self.bank, self.seeded = flat, bank, seeded
        self.draws = Draws()
        self.least = 1

    def block(self, start: Tensor, task: Task, sums: Tensor, full: Tensor | None) -> tuple[Tensor, Tensor]:
        """Train a block from start (P,). Overwrites sums (m, P), writes rows of full (R, P).

        Returns (k,) |u|^2 and (k,) the loss of `start` on each device's first batch.
        """
        sumsq, first, update = [], [], self.flat.weights
        self.flat.module.train()
        with self._noise():
            for k in range(task.device.size):
                first.append(self._device(start, task, k))
                sumsq.append(streams.difference(start, update))
                streams.add(sums, task.weights[:, k].tolist(), update, sumsq[-1], k == 0)
                if full is not None:
                    full[int(task.row[k])] = update
        return torch.stack(sumsq), torch.stack(first)

    def _device(self, start: Tensor, task: Task, k: int) -> Tensor:
        """Leave the trained weights of one device in the flat buffer; its first batch's loss."""
        device, local, flat = int(task.device[k]), task.local, self.flat
        rows = self.bank.rows(device)
        picks = self.draws.batches(
            task.seed, task.round, device, rows.numel(), local.batch, int(task.steps[k])
        )
        if self.seeded:
            torch.manual_seed(self.draws.noise(task.seed, task.round, device))
        flat.weights.copy_(start)
        first = torch.zeros(())
        shift = None if task.shift is None else torch.from_numpy(task.shift[k]).to(flat.learnt.device)
        for step, batch in enumerate(rows[torch.from_numpy(picks).to(rows.device)]):
            loss, goal = self._losses(batch, local)
            first = loss.detach() if step == 0 else first
            flat.step(goal, local.lr, local.mu, start)
            if shift is not None:
                flat.learnt.sub_(shift[: flat.learnt.numel()], alpha=local.lr)
        return first

    def slope(self, weights: Tensor, batch: Tensor, local: Local) -> tuple[Tensor, float]:
        """(T,) gradient of what is to be minimised at weights (P,) on one batch, and the plain mean loss there."""
        self.flat.weights.copy_(weights)
        loss, goal = self._losses(batch, local)
        slopes = torch.autograd.grad(goal, self.flat.parameters, allow_unused=True)
        parts = zip(self.flat.parameters, slopes, strict=True)
        flat = torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for p, g in parts])
        return flat.detach(), float(loss.detach())

    def _losses(self, batch: Tensor, local: Local) -> tuple[Tensor, Tensor]:
        """The plain mean loss of one batch, and what is to be minimised."""
        x, y = self.bank.x.index_select(0, batch), self.bank.y.index_select(0, batch)
        output = self.flat.module(x)
        if local.objective == "plain":
            loss = mean_loss(output, y)
            return loss, loss
        losses = sample_losses(output, y)
        share = torch.full_like(losses, 1 / losses.numel())
        return losses.mean(), objective(local.objective)(losses, share, local.options)

    @contextlib.contextmanager
    def _noise(self) -> Iterator[None]:
        """Keep torch's generator as it was, where the module may use it."""
        if not self.seeded:
            yield
            return
        with torch.random.fork_rng(devices=[self.bank.x.device] if self.bank.x.is_cuda else []):
            yield
