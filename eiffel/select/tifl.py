"""TiFL (Chai et al. 2020, HPDC): devices in tiers of like speed, one tier a round, the needy tiers more often.

Every `every` rounds the tiers are sorted by need and tier number r of n (0: the neediest) gets the probability
(n - r)/(n (n + 1)/2). A tier has credits, one of which a round costs, so that slow tiers cannot rule the clock.

Need is the paper's lowest test accuracy of a tier's clients; here it is their highest incoming loss, smoothed,
which devices report anyway. The paper leaves the credits to the user; here tier number s of n, counted from the
slowest, has credits x (s + 1), and 0 means no limit. A tier with too few candidates is filled from its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Floats, Ints, Outcomes, Snapshot
from eiffel.select.candidates import Candidates, Score, Unasking, draw, masked

_APART = np.float32(1000.0)
"""Between the scores of neighbouring tiers: more than random noise ever spans."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """tier: (N,) 0 is the fastest; empty before the first round. loss: (T,) smoothed, inf where unknown.
    odds: (T,) probabilities. credits: (T,) rounds left (inf: no limit).
    """

    tier: NDArray[np.int64]
    loss: Floats
    odds: Floats
    credits: Floats


@dataclass(frozen=True, slots=True)
class TiFl(Unasking):
    """tiers: how many. every: rounds between two looks at need. credits: of the slowest tier (0: no limit).
    steps: local steps of the task that devices are profiled with. smoothing: weight of the old loss.
    """

    tiers: int = 5
    every: int = 10
    credits: int = 0
    steps: int = 50
    smoothing: float = 0.5

    def __post_init__(self) -> None:
        """Refuse no tiers."""
        if self.tiers < 1 or self.every < 1 or self.credits < 0:
            raise ValueError("select.tiers and select.every must be 1 or more, select.credits 0 or more")

    def init(self, devices: int) -> Tiers:
        """All tiers alike."""
        n = self.tiers
        credits = self.credits * np.arange(n, 0, -1.0) if self.credits else np.full(n, np.inf)
        return Tiers(np.zeros(0, np.int64), np.full(n, np.inf), np.full(n, 1 / n), credits)

    def choose(self, state: Tiers, among: Candidates, k: int, rng: np.random.Generator) -> tuple[Ints, Score]:
        """Draw a tier, then k of its devices alike; neighbours only where those are too few."""
        tier = self.see(state, among.snapshot).tier
        odds = np.where(state.credits > 0, state.odds, 0)
        odds = odds / odds.sum() if odds.sum() > 0 else np.full(self.tiers, 1 / self.tiers)
        picked = int(rng.choice(self.tiers, p=odds))
        score = masked(-_APART * np.abs(tier - picked), among.mask)
        return draw(score, k, rng), score

    def see(self, state: Tiers, snapshot: Snapshot) -> Tiers:
        """Profile the fleet once: tiers of equal size by the seconds of a task."""
        if state.tier.size:
            return state
        seconds = np.nan_to_num(snapshot.step_s * np.float32(self.steps) + snapshot.exchange_s, nan=np.inf)
        tier = np.empty(seconds.size, np.int64)
        tier[np.argsort(seconds, kind="stable")] = (
            np.arange(seconds.size) * self.tiers // max(seconds.size, 1)
        )
        return replace(state, tier=tier)

    def learn(self, state: Tiers, outcomes: Outcomes) -> Tiers:
        """Losses by tier; the tier that most devices came from pays; every `every` rounds new odds."""
        loss, credits, told = state.loss.copy(), state.credits.copy(), outcomes.trained.reports
        incoming = told.incoming
        for t in np.unique(state.tier[told.device]):
            mean = incoming[state.tier[told.device] == t].mean()
            if np.isfinite(mean):
                loss[t] = (
                    mean if np.isinf(loss[t]) else self.smoothing * loss[t] + (1 - self.smoothing) * mean
                )
        if outcomes.device.size:
            credits[np.bincount(state.tier[outcomes.device], minlength=self.tiers).argmax()] -= 1
        state = replace(state, loss=loss, credits=credits)
        return replace(state, odds=self._odds(state)) if outcomes.round % self.every == 0 else state

    def _odds(self, state: Tiers) -> Floats:
        """(n - r)/(n (n + 1)/2) for the tiers with credits, r = 0 for the largest loss; 0 for the others."""
        odds, able = np.zeros(self.tiers), np.flatnonzero(state.credits > 0)
        n = able.size
        if n:
            odds[able[np.argsort(-state.loss[able], kind="stable")]] = np.arange(n, 0, -1) / (n * (n + 1) / 2)
        return odds
