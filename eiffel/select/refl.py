"""REFL's selection (Abdelmoniem et al. 2023, EuroSys): those first who will soon not be there.

A device that is reachable now but seldom is comes before one that always is; among devices alike chance decides.
Who took part pauses for `pause` rounds (5 in the authors' code), unless nobody else is there.

The authors predict the next round's availability with a model that is right nine times in ten; here it is the
smoothed share of rounds in which the device was seen reachable. The second half of REFL, weights for updates that
arrive after their round, has no place here: a late update is lost (status late), so that none is ever stale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Ints, Outcomes, Reason, Snapshot
from eiffel.select.candidates import Candidates, Score, Unasking, masked, top


@dataclass(frozen=True, slots=True)
class Presence:
    """reach: (N,) smoothed share of rounds in which a device was reachable. last: (N,) round it took part, or 0."""

    reach: NDArray[np.float32]
    last: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Refl(Unasking):
    """pause: rounds without being chosen after taking part. levels: of reachability that are told apart.
    smoothing: weight of the past in a device's reachability.
    """

    pause: int = 5
    levels: int = 10
    smoothing: float = 0.9

    def __post_init__(self) -> None:
        """Refuse numbers without a meaning."""
        if self.pause < 0 or self.levels < 1 or not 0 <= self.smoothing < 1:
            raise ValueError("select.pause must be 0 or more, levels 1 or more, smoothing a fraction below 1")

    def init(self, devices: int) -> Presence:
        """Everybody is thought to be there."""
        return Presence(np.ones(devices, np.float32), np.zeros(devices, np.int32))

    def choose(
        self, state: Presence, among: Candidates, k: int, rng: np.random.Generator
    ) -> tuple[Ints, Score]:
        """The least reachable of the rested, chance within a level; then those who should pause."""
        level = np.floor(state.reach * np.float32(self.levels))
        tired = (state.last > 0) & (among.snapshot.round - state.last <= self.pause)
        order = rng.random(level.size, np.float32) - level
        order[tired] -= np.float32(self.levels + 2)
        score = masked(order, among.mask)
        return top(score, k), score

    def see(self, state: Presence, snapshot: Snapshot) -> Presence:
        """Who is reachable now."""
        there = (snapshot.reason != Reason.OFFLINE).astype(np.float32)
        keep = np.float32(self.smoothing)
        return replace(state, reach=keep * state.reach + (np.float32(1) - keep) * there)

    def learn(self, state: Presence, outcomes: Outcomes) -> Presence:
        """Who took part pauses."""
        last = state.last.copy()
        last[outcomes.device] = outcomes.round
        return replace(state, last=last)
