"""Streaming aggregation on flat float32 tensors: every update is checked and added in place, none is kept.

The check is the dot product u.u: not finite exactly if an entry is not (or if |u| overflows: refused as
well). It reads an update once more than adding it does, because nothing may be added before all is checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def difference(start: Tensor, end: Tensor) -> Tensor:
    """end = start - end, in place; returns its |u|^2 as a 0-d tensor, so that a GPU need not be waited for."""
    torch.sub(start, end, out=end)
    return torch.dot(end, end)


def add(sums: Tensor, weights: Sequence[float], update: Tensor, sumsq: Tensor, fresh: bool = False) -> None:
    """sums[row] += weights[row] * update for every row of (m, P), unless sumsq is not finite.

    fresh: what sums held is overwritten (with zeros, if sumsq is not finite).
    """
    if sums.is_cuda:
        update = torch.where(torch.isfinite(sumsq), update, torch.zeros_like(update))
    elif not math.isfinite(float(sumsq)):
        weights = [0.0] * len(weights)
    for row, weight in zip(sums, weights, strict=True):
        if fresh and weight:
            torch.mul(update, weight, out=row)
        elif fresh:
            row.zero_()
        elif weight:
            row.add_(update, alpha=weight)


def accumulate(total: Tensor, update: Tensor, weight: float) -> float:
    """total += weight * update in place; returns |update|^2. A non-finite update changes nothing.

    total, update: (P,) float32. Memory: these two and nothing else. Raises ValueError on another shape or
    type, for which torch would broadcast or promote without a word.
    """
    if total.shape != update.shape or update.dtype != total.dtype:
        raise ValueError(
            f"update is {update.dtype} of shape {tuple(update.shape)}; "
            f"the sum is {total.dtype} of shape {tuple(total.shape)}"
        )
    sumsq = torch.dot(update, update)
    add(total[None], (weight,), update, sumsq)
    return float(sumsq)
