"""Many small models at once, gradients written out by hand: logistic regression and ReLU MLPs.

C devices' weights are the rows of one (C, P) buffer; a step of all of them is a handful of batched matrix
products, and the weight update is fused into the last one (W -= lr delta^T h, no gradient is ever stored).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from eiffel.core.model import Local
from eiffel.train.bank import Bank
from eiffel.train.flat import Flat
from eiffel.train.objectives import objective
from eiffel.train.stacked import Stacked, Step


def dense(module: nn.Module) -> list[nn.Linear] | None:
    """The linear layers of [Flatten], Linear, (ReLU, Linear)*; None for any other module."""
    layers = list(module) if isinstance(module, nn.Sequential) else [module]
    if layers and isinstance(layers[0], nn.Flatten):
        layers = layers[1:]
    linear, between = layers[::2], layers[1::2]
    if len(layers) % 2 == 0 or not all(isinstance(r, nn.ReLU) for r in between):
        return None
    right = all(isinstance(n, nn.Linear) and n.bias is not None for n in linear)
    return [n for n in linear if isinstance(n, nn.Linear)] if right else None


class Chunk:
    """C devices side by side. stack: (C, P). weights, biases: views of it, (C, out, in) and (C, 1, out)."""

    def __init__(self, stack: Tensor, layers: list[nn.Linear]) -> None:
        self.stack = stack
        self.weights: list[Tensor] = []
        self.biases: list[Tensor] = []
        low = 0
        for layer in layers:
            out, into = layer.weight.shape
            high = low + out * into
            self.weights.append(stack[:, low:high].view(-1, out, into))
            self.biases.append(stack[:, high : high + out].view(-1, 1, out))
            low = high + out

    def step(self, x: Tensor, y: Tensor, share: Tensor, local: Local, start: Tensor, told: bool) -> Tensor:
        """One step of the first A devices. x: (A, b, d). y, share: (A, b). (A,) mean losses, if `told`."""
        active = x.shape[0]
        weights, biases = [w[:active] for w in self.weights], [b[:active] for b in self.biases]
        states = [x]
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            states.append(torch.baddbmm(bias, states[-1], weight.transpose(1, 2)).relu_())
        output = torch.baddbmm(biases[-1], states[-1], weights[-1].transpose(1, 2))
        losses, delta = slope(output, y, share, local, told)
        deltas = [delta]
        for weight, state in zip(weights[:0:-1], states[:0:-1], strict=True):
            deltas.append(torch.bmm(deltas[-1], weight).mul_(state > 0))
        if local.mu:
            self.stack[:active].lerp_(start, local.lr * local.mu)
        for weight, bias, state, delta in zip(weights, biases, states, reversed(deltas), strict=True):
            weight.baddbmm_(delta.transpose(1, 2), state, alpha=-local.lr)
            bias.sub_(delta.sum(1, keepdim=True), alpha=local.lr)
        return losses


def slope(output: Tensor, y: Tensor, share: Tensor, local: Local, told: bool) -> tuple[Tensor, Tensor]:
    """(A,) mean losses (if `told`), and the objective's derivative by the logits. output: (A, b, C).

    d loss / d logits = softmax - onehot, times d objective / d loss, which is `share` for the plain mean.
    """
    labels, pull, losses = y[..., None], share[..., None], share
    if told or local.objective != "plain":
        losses = -functional.log_softmax(output, -1).gather(2, labels).squeeze(2)
    if local.objective != "plain":
        with torch.enable_grad():
            free = losses.detach().requires_grad_()
            goal = objective(local.objective)(free, share, local.options).sum()
            pull = torch.autograd.grad(goal, free)[0][..., None]
    delta = torch.softmax(output, -1)
    delta.scatter_add_(2, labels, delta.new_full((), -1.0).expand_as(labels))
    return (losses * share).sum(1) if told else losses, delta.mul_(pull)


class Closed(Stacked):
    """Blocks of devices through the hand-written gradients of `Chunk`."""

    def __init__(self, flat: Flat, bank: Bank, layers: list[nn.Linear], chunk: int) -> None:
        super().__init__(flat, bank, chunk)
        self.layers = layers

    def stepper(self, stack: Tensor, local: Local, start: Tensor) -> Step:
        """See `Stacked.stepper`."""
        chunk = Chunk(stack, self.layers)
        return lambda x, y, share, told: chunk.step(x.flatten(2), y, share, local, start, told)
