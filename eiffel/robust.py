"""Robust sums of whole updates: what a server does with `Trained.full` when some devices cannot be trusted.

Pure functions of (R, P) updates, one row a device. None of them weighs by the number of samples: that is a
number an attacker would choose. They need every update, so memory grows with the cohort; work goes through
blocks of columns, so it is one more block and not one more copy.

Median and trimmed mean: Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical
Rates" (ICML 2018). Krum and multi-Krum: Blanchard et al., "Machine Learning with Adversaries: Byzantine
Tolerant Gradient Descent" (NeurIPS 2017).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Floats, Ints

Updates = NDArray[np.float32]

COLUMNS = 2**16  # numbers of each device sorted at a time


def finite(updates: Updates) -> Updates:
    """The rows without NaN or infinity. ValueError if none is left."""
    kept = updates[np.isfinite(updates).all(axis=1)]
    if kept.shape[0] == 0:
        raise ValueError(f"none of {updates.shape[0]} updates is finite; nothing can be aggregated")
    return kept


def _by_columns(updates: Updates, reduce: Callable[[Updates], NDArray[np.float32]]) -> Updates:
    """Apply an (R, c) -> (c,) reduction to blocks of columns."""
    out = np.empty(updates.shape[1], np.float32)
    for low in range(0, out.size, COLUMNS):
        out[low : low + COLUMNS] = reduce(updates[:, low : low + COLUMNS])
    return out


def median(updates: Updates) -> Updates:
    """(P,) median of every coordinate over the finite rows; the mean of the middle two for an even number."""
    kept = finite(updates)
    return _by_columns(kept, lambda block: np.median(block, axis=0).astype(np.float32))


def trimmed_mean(updates: Updates, trim: float) -> Updates:
    """(P,) mean of every coordinate without its floor(trim R) smallest and as many largest values.

    trim: share cut off at either end, in [0, 0.5). Bears as many attackers as are cut off at one end.
    """
    if not 0 <= trim < 0.5:
        raise ValueError(f"trim is {trim!r}; it must be in [0, 0.5)")
    kept = finite(updates)
    cut = int(trim * kept.shape[0])

    def reduce(block: Updates) -> NDArray[np.float32]:
        if cut:
            block = np.partition(block, (cut, block.shape[0] - cut - 1), axis=0)[cut : block.shape[0] - cut]
        return np.asarray(block.mean(axis=0, dtype=np.float64), dtype=np.float32)

    return _by_columns(kept, reduce)


def squared_distances(updates: Updates) -> Floats:
    """(R, R) squared Euclidean distances, summed in float64."""
    squared = np.zeros((updates.shape[0],) * 2)
    for low in range(0, updates.shape[1], COLUMNS):
        block = updates[:, low : low + COLUMNS].astype(np.float64)
        product = block @ block.T
        own = np.diag(product)
        squared += own[:, None] + own[None] - 2 * product
    return np.maximum(squared, 0.0)


def krum_scores(updates: Updates, attackers: int) -> Floats:
    """(R,) sum of squared distances to the R - attackers - 2 nearest others; infinite where not finite.

    Raises ValueError unless R >= 2 attackers + 3 (R counts the finite rows): the paper's condition.
    """
    fine = np.isfinite(updates).all(axis=1)
    count = int(fine.sum())
    if attackers < 0 or count < 2 * attackers + 3:
        raise ValueError(
            f"Krum against {attackers} attackers needs {2 * attackers + 3} finite updates; there are {count}"
        )
    nearest = np.sort(squared_distances(updates[fine]), axis=1)[:, 1 : count - attackers - 1]
    scores = np.full(updates.shape[0], np.inf)
    scores[fine] = nearest.sum(axis=1)
    return scores


def krum_chosen(updates: Updates, attackers: int, keep: int = 1) -> Ints:
    """(keep,) rows that multi-Krum averages, the most central first; ties go to the lower row."""
    if not 1 <= keep <= updates.shape[0] - attackers:
        raise ValueError(f"keep is {keep}; it must be in 1..{updates.shape[0] - attackers} (R - attackers)")
    return np.argsort(krum_scores(updates, attackers), kind="stable")[:keep]


def krum(updates: Updates, attackers: int, keep: int = 1) -> Updates:
    """(P,) the update nearest to its neighbours (keep = 1), or the mean of the `keep` nearest (multi-Krum)."""
    rows = updates[krum_chosen(updates, attackers, keep)]
    return _by_columns(rows, lambda block: block.mean(axis=0, dtype=np.float64).astype(np.float32))
