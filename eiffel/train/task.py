"""The pieces of work that engines deal out; small enough to be pickled in microseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Floats, Ints, Local


@dataclass(frozen=True, slots=True)
class Task:
    """A block of a round's devices, trained by one worker in this order.

    device, steps: (k,). weights: (m, k). row: (k,) the device's row in the cohort. gradients, shift: as in
    `Plan`, shift with this block's rows, (k, P).
    """

    round: int
    seed: int
    local: Local
    device: Ints
    steps: Ints
    row: Ints
    weights: Floats
    gradients: bool = False
    shift: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Cohort:
    """A round's devices, ascending, and how they are cut into blocks. device, steps: (R,)."""

    device: Ints
    steps: Ints
    blocks: tuple[Ints, ...]

    @classmethod
    def of(cls, device: Ints, steps: Ints, cost: Floats, most: int) -> Cohort:
        """Sort by device, deal the costliest first into at most `most` blocks like cards.

        cost: (R,) predicted. The cut depends on the cohort alone, so sums, which are taken block by
        block, do not depend on how many workers there are or on the order in which devices were named.
        """
        ascending = np.argsort(device, kind="stable")
        device, steps, cost = device[ascending], steps[ascending], cost[ascending]
        if np.any(device[1:] == device[:-1]):
            raise ValueError("a device was named twice in one cohort; name each once")
        costliest = np.lexsort((device, -cost))
        count = min(most, device.size)
        return cls(device, steps, tuple(costliest[j::count] for j in range(count)))
