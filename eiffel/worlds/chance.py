"""Chances that belong to a device and a round, whoever else was chosen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Floats, Ints


def chance(seed: int, round_: int, device: Ints, purpose: int) -> Floats:
    """(K,) numbers, even on [0, 1): a function of (seed, round, device, purpose) and of nothing else.

    So two strategies compared on one seed meet the same misfortunes. SplitMix64 (Steele, Lea and Flood,
    OOPSLA 2014), fed with one word after the other.
    """
    word = np.zeros(device.shape, np.uint64)
    for part in (seed, round_, purpose):
        word = _mix(word + np.uint64(part & 0xFFFFFFFFFFFFFFFF))
    return np.asarray((_mix(word + device.astype(np.uint64)) >> np.uint64(11)) * 2.0**-53)


def _mix(word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One output of SplitMix64 from each state; overflow wraps, as it is meant to."""
    word = word + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
