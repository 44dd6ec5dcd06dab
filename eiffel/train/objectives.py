"""What a device minimises on a batch: a transformation of the batch's per-sample losses.

To add one, write a function and enter it in `OBJECTIVES`; every engine then runs it, the closed forms
included, because they ask autograd for its derivative with respect to the losses and for nothing else.
The proximal term is not here: its gradient mu (w - w_global) is added on the flat buffers (`Local.mu`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

Objective = Callable[[Tensor, Tensor, Mapping[str, float]], Tensor]
"""(losses, weights, options) -> objective. losses: (..., b). weights: (..., b), each row sums to 1, 0 for
padding. The result has the shape (...): leading axes are devices trained at the same time."""


def plain(losses: Tensor, weights: Tensor, options: Mapping[str, float]) -> Tensor:
    """The mean loss of the batch."""
    del options
    return (losses * weights).sum(-1)


def propfair(losses: Tensor, weights: Tensor, options: Mapping[str, float]) -> Tensor:
    """PropFair: -log(1 - L/M) of the mean loss L, and L/M where M - L < eps (Zhang et al., 2022; the switch
    is our reading of public code). Options: M (default 3), eps (0.2)."""
    ceiling, eps = options.get("M", 3.0), options.get("eps", 0.2)
    share = (losses * weights).sum(-1) / ceiling
    near = ceiling * (1 - share) < eps
    return torch.where(near, share, -torch.log1p(-torch.where(near, torch.zeros_like(share), share)))


def tilted(losses: Tensor, weights: Tensor, options: Mapping[str, float]) -> Tensor:
    """TERM over the batch: log(mean(exp(t loss)))/t, t != 0 (Li et al., "Tilted Empirical Risk
    Minimization", ICLR 2021). Option: t (default 1)."""
    t = options.get("t", 1.0)
    return torch.logsumexp(t * losses + torch.log(weights), -1) / t


OBJECTIVES: dict[str, Objective] = {"plain": plain, "propfair": propfair, "tilted": tilted}


def objective(name: str) -> Objective:
    """Look an objective up; a ValueError names those there are."""
    if name not in OBJECTIVES:
        raise ValueError(f"local.objective is {name!r}; it must be one of {', '.join(sorted(OBJECTIVES))}")
    return OBJECTIVES[name]


def sample_losses(output: Tensor, y: Tensor) -> Tensor:
    """(b,) cross-entropy of each sample. output: (b, C), or (b, L, C) with y (b, L): the mean over tokens."""
    flat = functional.cross_entropy(output.reshape(-1, output.shape[-1]), y.reshape(-1), reduction="none")
    return flat if y.dim() == 1 else flat.view(y.shape).mean(-1)


def mean_loss(output: Tensor, y: Tensor) -> Tensor:
    """() mean cross-entropy of the batch: the fast way to `plain` for one device at a time."""
    return functional.cross_entropy(output.reshape(-1, output.shape[-1]), y.reshape(-1))
