"""Many small models at once through torch.func: any module without state, randomness or recurrence."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from eiffel.core.model import Local
from eiffel.train.bank import Bank
from eiffel.train.flat import Flat
from eiffel.train.objectives import objective, sample_losses
from eiffel.train.stacked import Stacked, Step

FRIENDLY = (
    nn.Linear, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.ELU, nn.Softplus, nn.Flatten,
    nn.Unflatten, nn.Identity, nn.LayerNorm, nn.GroupNorm, nn.Embedding, nn.Sequential, nn.Bilinear,
)  # fmt: skip


def obstacle(module: nn.Module) -> str:
    """Why a module cannot be trained by vmap, or does not gain from it; empty if it can and does.

    Modules of a user's own class may be composed of friendly layers; what their forward does beyond calling
    them must be pure (no random numbers, no state): if vmap refuses it, training says so.
    """
    if any(True for _ in module.buffers()):
        return "it keeps buffers (running statistics)"
    leaves = [m for m in module.modules() if next(m.children(), None) is None]
    strange = sorted({type(m).__name__ for m in leaves if not isinstance(m, FRIENDLY)})
    return f"{', '.join(strange)} cannot be batched over devices to advantage" if strange else ""


class Many(Stacked):
    """Blocks of devices through vmap(grad(functional_call))."""

    def __init__(self, flat: Flat, bank: Bank, chunk: int) -> None:
        super().__init__(flat, bank, chunk)
        self.module = flat.module
        self.shapes = {n: p.shape for n, p in flat.module.named_parameters() if p.requires_grad}

    def stepper(self, stack: Tensor, local: Local, start: Tensor) -> Step:
        """See `Stacked.stepper`."""
        slopes = vmap(self._slope(local))
        self.module.train()

        def step(x: Tensor, y: Tensor, share: Tensor, told: bool) -> Tensor:
            del told
            now = stack[: x.shape[0]]
            slope, losses = slopes(now, x, y, share)
            if local.mu:
                now.lerp_(start, local.lr * local.mu)
            now.sub_(slope, alpha=local.lr)
            out: Tensor = losses
            return out

        return step

    def _slope(self, local: Local) -> Callable[..., tuple[Tensor, Tensor]]:
        """Gradient and plain mean loss of one device: f(weights (P,), x, y, share)."""
        goal = objective(local.objective)

        def loss(weights: Tensor, x: Tensor, y: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
            parts = torch.split_with_sizes(weights, [s.numel() for s in self.shapes.values()])
            named = {n: p.view(s) for (n, s), p in zip(self.shapes.items(), parts, strict=True)}
            losses = sample_losses(functional_call(self.module, named, (x,)), y)
            return goal(losses, share, local.options), (losses * share).sum()

        def both(weights: Tensor, x: Tensor, y: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
            slope, (_, plain) = grad_and_value(loss, has_aux=True)(weights, x, y, share)
            return slope, plain

        return both
