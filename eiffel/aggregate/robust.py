"""Robust aggregation as a weight rule: median, trimmed mean or Krum of whole updates (`eiffel.robust`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from eiffel import robust
from eiffel.aggregate.weights import Mean
from eiffel.core.model import Outcomes, Params


@dataclass(frozen=True, slots=True)
class Robust(Mean):
    """What the server makes of updates it cannot trust; every update must be at hand, so memory grows with K.

    reduce: `median` or `trimmed` of every coordinate (Yin et al. 2018), `krum` (Blanchard et al. 2017).
    trim: share that `trimmed` cuts off at either end. attackers: how many bad updates `krum` must bear (it needs
    2 attackers + 3). keep: how many central updates `krum` averages. With too few updates the model stays.
    """

    by: Literal["samples", "equal"] = "equal"
    reduce: Literal["median", "trimmed", "krum"] = "median"
    trim: float = 0.1
    attackers: int = 1
    keep: int = 1
    full: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        """Refuse numbers that no cohort can satisfy."""
        if not 0 <= self.trim < 0.5 or self.attackers < 0 or self.keep < 1:
            raise ValueError("trim must lie in [0, 0.5), attackers be 0 or more, keep 1 or more")

    def step(self, state: Any, outcomes: Outcomes, lr: float = 1.0) -> tuple[Any, Params]:
        """The reduction of every finite update, whatever weight it came with."""
        updates = outcomes.trained.full
        if updates is None:
            raise ValueError("a robust rule needs every update, and this world returned only sums")
        sound = robust.finite(updates)
        if self.reduce == "median":
            return state, robust.median(sound)
        if self.reduce == "trimmed":
            return state, robust.trimmed_mean(sound, self.trim)
        if sound.shape[0] < max(2 * self.attackers + 3, self.keep + self.attackers):
            return state, np.zeros(sound.shape[1], np.float32)
        return state, robust.krum(sound, self.attackers, self.keep)
