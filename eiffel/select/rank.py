"""The rank of every device's loss in the fleet, kept by a histogram that follows the devices that changed.

Ranks by sorting cost O(N log N) a round, though only K losses change. Here a loss falls into the bin of its
upper 16 bits as a float32 (order-preserving; bins are 0.4 to 0.8 % wide), and a rank is the cumulative count
of the bins up to its own. NaN (a device that never reported) has the largest bit pattern of all, so that
such devices share the largest rank without a special case.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 1 << 16


def bins(loss: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bin of each loss: ascending with the loss, NaN last.

    >>> b = bins(np.array([-1.0, 0.0, 0.5, 2.0, np.inf, np.nan], np.float32))
    >>> bool((np.diff(b.astype(int)) > 0).all())
    True
    """
    bits = np.ascontiguousarray(loss, np.float32).view(np.uint32)
    # Two's-complement order for floats: negative ones reversed below the positive ones.
    flip = np.where(
        np.isnan(loss), np.uint32(0x80000000), np.where(bits >> 31 == 1, np.uint32(0xFFFFFFFF), 0x80000000)
    )
    ordered = np.where(np.isnan(loss), np.uint32(0xFFFFFFFF), bits ^ flip.astype(np.uint32))
    return (ordered >> 16).astype(np.uint16)


@dataclass(frozen=True, slots=True)
class LossRank:
    """bin: (N,) of each device's loss. count: (BINS,) devices in each bin; empty where the fleet has fewer
    devices than there are bins, for sorting those is cheaper than summing over all bins.
    """

    bin: NDArray[np.uint16]
    count: NDArray[np.int32]

    @staticmethod
    def of(loss: NDArray[np.float32]) -> LossRank:
        """The histogram of these losses, (N,)."""
        b = bins(loss)
        count = np.bincount(b, minlength=BINS) if b.size >= BINS else np.empty(0)
        return LossRank(b, count.astype(np.int32))

    def changed(self, device: NDArray[np.int64], loss: NDArray[np.float32]) -> LossRank:
        """The histogram after these (distinct) devices' losses changed: O(K) beside two copies."""
        b, count, new = self.bin.copy(), self.count.copy(), bins(loss)
        if count.size:
            np.subtract.at(count, b[device], 1)
            np.add.at(count, new, 1)
        b[device] = new
        return LossRank(b, count)

    def widened(self, fresh: LossRank) -> LossRank:
        """The ranks of a fleet that newcomers joined: `fresh` is one of that size in which nobody reported."""
        b = np.concatenate([self.bin, fresh.bin[self.bin.size :]])
        count = np.bincount(b, minlength=BINS) if fresh.count.size else fresh.count
        return LossRank(b, count.astype(np.int32))

    def log_rank(self) -> NDArray[np.float32]:
        """(N,) log of rank/N in (0, 1]; equal losses share the larger rank. One look-up a device."""
        n = max(self.bin.size, 1)
        if not self.count.size:
            upto = np.searchsorted(np.sort(self.bin), self.bin, "right")
            return np.log(upto / n).astype(np.float32)
        share = np.maximum(np.cumsum(self.count), 1) / n
        return np.log(share).astype(np.float32)[self.bin]
