"""A module whose parameters and gradients are views of two flat buffers.

A local step is then one in-place addition and a download one copy: no optimizer object, no state dict, no
new module for each device. Floating-point buffers (running statistics) ride behind the parameters: they
are averaged like them and see no gradient.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn


class Flat:
    """`weights`: (P,) parameters, then floating-point buffers. `slope`: (T,) gradient of the T parameters."""

    def __init__(self, module: nn.Module, device: str = "cpu") -> None:
        self.module = module.to(device)
        learnt = [p for p in module.parameters() if p.requires_grad]
        carried = [b for b in module.buffers() if b.is_floating_point()]
        for tensor in itertools.chain(learnt, carried):
            if tensor.dtype != torch.float32:
                raise ValueError(
                    f"the model holds {tensor.dtype}; Eiffel trains float32: call .float() on it"
                )
        if not learnt:
            raise ValueError("the model has nothing to learn: no parameter requires a gradient")
        self.weights = torch.cat([t.detach().reshape(-1) for t in (*learnt, *carried)])
        self.slope = torch.zeros(sum(p.numel() for p in learnt), device=self.weights.device)
        self.learnt = self.weights[: self.slope.numel()]
        self._point(learnt, carried)

    def _point(self, learnt: list[nn.Parameter], carried: list[Tensor]) -> None:
        """Make every parameter, its gradient and every buffer a view of the flat tensors."""
        start = 0
        for tensor in (*learnt, *carried):
            stop = start + tensor.numel()
            shape = tensor.shape
            tensor.data = self.weights[start:stop].view(shape)
            if isinstance(tensor, nn.Parameter):
                tensor.grad = self.slope[start:stop].view(shape)
            start = stop

    @property
    def size(self) -> int:
        """P."""
        return self.weights.numel()

    def step(self, lr: float, mu: float, start: Tensor) -> None:
        """w -= lr (slope + mu (w - w_start)): plain SGD, pulled back by the proximal term."""
        if mu:
            self.learnt.lerp_(start[: self.slope.numel()], lr * mu)
        self.learnt.add_(self.slope, alpha=-lr)
