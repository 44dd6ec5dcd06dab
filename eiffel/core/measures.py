"""What is measured: fairness over devices, cost to a target, and how sure a comparison is.

Every fairness measure takes `x`, one value per device, (N,), and weighs every device alike, whatever the
size of its data. Accuracies are fractions in [0, 1]. Values that are not finite (a device whose AUROC is
undefined) are left out; a measure of nothing is NaN. The sources named are where we read the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from eiffel.core.model import Floats, Scores

WINDOW = 3
"""Evaluations in the moving mean that has to reach a target."""


def finite(x: ArrayLike) -> Floats:
    """The finite values of `x`, flat, as float64."""
    flat = np.asarray(x, dtype=np.float64).ravel()
    return flat[np.isfinite(flat)]


def variance(x: ArrayLike) -> float:
    """Population variance x 1e4, unweighted over devices: q-FFL's fairness figure (Li et al. 2020)."""
    x = finite(x)
    return float(x.var() * 1e4) if x.size else float("nan")


def std(x: ArrayLike) -> float:
    """Population standard deviation, in the unit of `x`."""
    x = finite(x)
    return float(x.std()) if x.size else float("nan")


def mean(x: ArrayLike) -> float:
    """Mean over devices, in the unit of `x`."""
    x = finite(x)
    return float(x.mean()) if x.size else float("nan")


def worst(x: ArrayLike, share: float = 0.1) -> float:
    """Mean of the floor(share N) lowest values, at least one of them (Li et al. 2020)."""
    x = finite(x)
    count = _tail(x.size, share)
    return float(np.partition(x, count - 1)[:count].mean()) if x.size else float("nan")


def best(x: ArrayLike, share: float = 0.1) -> float:
    """Mean of the floor(share N) highest values, at least one of them (Li et al. 2020)."""
    return -worst(-np.asarray(x, dtype=np.float64), share)


def _tail(size: int, share: float) -> int:
    """How many devices are a share of `size`. The nudge makes .3 of 10 three, which floats would not."""
    if not 0 < share <= 1:
        raise ValueError(f"share is {share!r}; it must be above 0 and at most 1")
    return max(1, int(np.floor(share * size + 1e-9)))


def percentile(x: ArrayLike, rank: float) -> float:
    """Value below which `rank` per cent of the devices lie, linear between neighbours."""
    x = finite(x)
    return float(np.percentile(x, rank)) if x.size else float("nan")


def gap(x: ArrayLike) -> float:
    """Highest minus lowest value."""
    x = finite(x)
    return float(x.max() - x.min()) if x.size else float("nan")


def gini(x: ArrayLike) -> float:
    """Gini index sum_i (2i - N - 1) x_(i) / (N sum x) of values >= 0: 0 when all are equal (or all zero)."""
    x = np.sort(_nonnegative(x, "gini"))
    if not x.size:
        return float("nan")
    total = float(x.sum())
    rank = 2.0 * np.arange(1, x.size + 1) - x.size - 1
    return float(rank @ x / (x.size * total)) if total > 0 else 0.0


def snr(x: ArrayLike) -> float:
    """Mean over standard deviation; infinite when all values are equal and not zero."""
    x = finite(x)
    if not x.size:
        return float("nan")
    spread = float(x.std()) if np.ptp(x) > 0 else 0.0
    return float(x.mean() / spread) if spread > 0 else float(np.inf if x.mean() else np.nan)


def jain(x: ArrayLike) -> float:
    """Jain's index (sum x)^2 / (N sum x^2) of values >= 0: 1 when all are equal (or all zero), least 1/N."""
    x = _nonnegative(x, "jain")
    if not x.size:
        return float("nan")
    if not x.max() > 0:
        return 1.0
    scaled = x / x.max()  # so that no square underflows
    return float(scaled.sum() ** 2 / (scaled.size * (scaled @ scaled)))


def kl_uniform(x: ArrayLike) -> float:
    """Kullback-Leibler divergence, in nats, of the shares x / sum x from the uniform share 1/N."""
    x = _nonnegative(x, "kl_uniform")
    return float(np.log(x.size) - entropy(x)) if x.size else float("nan")


def entropy(x: ArrayLike) -> float:
    """Entropy, in nats, of the shares x / sum x: log N when all are equal (or all zero)."""
    x = _nonnegative(x, "entropy")
    if not x.size:
        return float("nan")
    if not x.sum() > 0:
        return float(np.log(x.size))
    share = x / x.sum()
    share = share[share > 0]
    return float(-(share @ np.log(share)))


def _nonnegative(x: ArrayLike, name: str) -> Floats:
    """The finite values; raises ValueError where one is negative, for then shares mean nothing."""
    x = finite(x)
    if x.size and x.min() < 0:
        raise ValueError(f"{name} needs values of 0 or more; got {x.min():g}")
    return x


_OF_ACCURACY: dict[str, Callable[[ArrayLike], float]] = {
    "accuracy": mean,
    "variance": variance,
    "worst10": worst,
    "best10": best,
    "p10": lambda x: percentile(x, 10),
    "p20": lambda x: percentile(x, 20),
    "std": std,
    "gini": gini,
    "jain": jain,
    "snr": snr,
    "gap": gap,
}


def fairness(scores: Scores) -> dict[str, float]:
    """Every figure of one evaluation, from what each device measured on its own test part.

    `accuracy` and `loss` in the answer are means over devices; `accuracy_weighted` and `loss_weighted`
    weigh by test samples; `loss_variance` is not scaled.
    """
    figures = {name: measure(scores.accuracy) for name, measure in _OF_ACCURACY.items()}
    loss = finite(scores.loss)
    return figures | {
        "accuracy_weighted": weighted(scores.accuracy, scores.examples),
        "loss": mean(loss),
        "loss_weighted": weighted(scores.loss, scores.examples),
        "loss_variance": float(loss.var()) if loss.size else float("nan"),
        "clients": int(finite(scores.accuracy).size),
    }


def weighted(x: ArrayLike, weight: ArrayLike) -> float:
    """Mean weighed by `weight` (N,) over the devices whose value is finite and whose weight is positive."""
    x, weight = np.asarray(x, dtype=np.float64), np.asarray(weight, dtype=np.float64)
    counts = np.isfinite(x) & (weight > 0)
    return float(np.average(x[counts], weights=weight[counts])) if counts.any() else float("nan")


def moving_mean(x: ArrayLike, window: int = WINDOW) -> Floats:
    """(E,) mean of each value and the `window` - 1 before it; NaN until so many have been seen."""
    x = np.asarray(x, dtype=np.float64)
    out = np.full(x.size, np.nan)
    if x.size >= window:
        out[window - 1 :] = np.lib.stride_tricks.sliding_window_view(x, window).mean(axis=1)
    return out


def reached(accuracy: ArrayLike, target: float, window: int = WINDOW) -> int | None:
    """Index of the first evaluation whose moving mean is at least `target`, or None."""
    hit = np.flatnonzero(moving_mean(accuracy, window) >= target)
    return int(hit[0]) if hit.size else None


def to_target(
    accuracy: ArrayLike, target: float, costs: Mapping[str, ArrayLike], window: int = WINDOW
) -> dict[str, float] | None:
    """What it had cost when the target was reached, or None when it never was.

    accuracy: (E,) at each evaluation. costs: name to (E,) running total at the same evaluations.
    """
    at = reached(accuracy, target, window)
    if at is None:
        return None
    return {"accuracy": float(target)} | {name: float(np.asarray(c)[at]) for name, c in costs.items()}


def improvement(ours: float, base: float) -> float:
    """Share by which `ours` lies below `base`: 1 - ours/base (.57 is 57 % better where less is better)."""
    return 1.0 - ours / base if base else float("nan")


def ratio_interval(
    base: Sequence[float] | Floats,
    ours: Sequence[float] | Floats,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Ratio mean(base) / mean(ours) with a paired bootstrap interval over seeds: (ratio, low, high).

    base, ours: (S,) one figure per seed, the same seed at the same place. Seeds are drawn with replacement,
    both figures of a seed together. With one seed there is no interval (NaN, NaN); a seed that never
    reached its target (NaN or infinite) makes all three NaN, for a mean over the others would flatter it.
    """
    b, o = np.asarray(base, dtype=np.float64), np.asarray(ours, dtype=np.float64)
    if b.shape != o.shape or b.ndim != 1:
        raise ValueError(f"a paired ratio needs as many figures on both sides; got {b.shape} and {o.shape}")
    if not b.size or not np.isfinite(b).all() or not np.isfinite(o).all() or o.sum() == 0:
        return (float("nan"),) * 3
    ratio = float(b.sum() / o.sum())
    if b.size == 1:
        return ratio, float("nan"), float("nan")
    drawn = np.random.default_rng(seed).integers(b.size, size=(draws, b.size))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = b[drawn].sum(axis=1) / o[drawn].sum(axis=1)
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    return ratio, float(low), float(high)


def last_mean(rows: Sequence[Mapping[str, Any]], count: int = 5) -> dict[str, float]:
    """Mean of each figure over the last `count` evaluations; keys as in the newest of them."""
    tail = rows[-count:]
    return {key: mean([float(_number(row.get(key))) for row in tail]) for key in (tail[-1] if tail else ())}


def _number(value: Any) -> float:
    """A figure of a record, where null stands for not known."""
    return float("nan") if value is None else float(value)
