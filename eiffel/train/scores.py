"""From judged test samples to one figure per client."""

from __future__ import annotations

import itertools

import numpy as np

from eiffel.core.model import Floats, Ints, Scores


def auroc(margin: Floats, positive: Ints) -> float:
    """Chance that a positive sample ranks above a negative one, ties counting half (Mann-Whitney U).

    margin: (M,) higher means more positive. positive: (M,) 0 or 1. NaN where one of the classes is absent.
    """
    ones = int(positive.sum())
    zeros = positive.size - ones
    if ones == 0 or zeros == 0:
        return float("nan")
    from scipy.stats import rankdata  # takes longer to import than a small run to train

    ranks = float(rankdata(margin)[positive == 1].sum())
    return (ranks - ones * (ones + 1) / 2) / (ones * zeros)


def scores(loss: Floats, mark: Floats, start: Ints, positive: Ints | None) -> Scores:
    """Fold (M,) losses and marks of test samples into clients. start: (N + 1,) offsets of their parts.

    positive: (M,) the classes, where the mark is a margin to be ranked; None: accuracy is the mean mark.
    """
    count = np.diff(start)
    owner = np.repeat(np.arange(count.size), count)
    held = np.where(count > 0, count, np.nan)
    mean_loss = np.bincount(owner, loss, count.size) / held
    if positive is None:
        return Scores(np.bincount(owner, mark, count.size) / held, mean_loss, count)
    parts = [slice(low, high) for low, high in itertools.pairwise(start)]
    return Scores(np.array([auroc(mark[p], positive[p]) for p in parts]), mean_loss, count)
