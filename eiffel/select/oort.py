"""Oort (Lai, Zhu, Madhyastha and Chowdhury 2021, OSDI) and its energy-aware descendant EAFL.

    U_i     = |B_i| sqrt(mean of the squared losses)             statistical utility, |B_i| = min(n_i, tau B)
    score_i = (min(U_i, clip) - U_min)/range + sqrt(0.1 ln R / l_i)          l_i: last round it took part
              times (T/t_i)^alpha where its task takes t_i > T, the preferred duration
    T       = a percentile of all durations, which a pacer raises while the cohort's utility stays flat

A part of the cohort, which shrinks from round to round, explores devices that never took part: those with
many samples and short tasks first. Constants and corner cases follow the authors' code (SymbioticLab/Oort,
FedScale thirdparty/oort), and are repaired where it fails:

- it samples from its last explored devices for ever once all are explored;
- it fails when as many are exploited as there are;
- it normalises by utilities of devices that have none yet. Here by those of devices that took part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Bools, Floats, Ints, Outcomes
from eiffel.select.candidates import Candidates, Score, Unasking, draw, filled, top

_TINY = np.float32(1e-12)
_LONG = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class OortState:
    """reward: (N,) utility U, 0 before the first. last: (N,) round of the last delivery, 0 before the first.
    percentile: of durations, the preferred one. past: (2 step,) mean utilities of exploited devices.
    """

    reward: NDArray[np.float32]
    last: NDArray[np.int32]
    percentile: float
    past: Floats


@dataclass(frozen=True, slots=True)
class Oort(Unasking):
    """explore, decay, explore_min: share of the cohort that explores, its factor a round, its floor.
    alpha: exponent of the penalty for slow devices. percentile, pacer_delta, pacer_step: of the pacer.
    clip: quantile at which utilities are clipped. cut: devices below cut x the k-th score are left out, once
    ten times the cohort is in. window: exploration draws from the best window x as many. batch: samples a
    step (null on a card: the devices' own; 0: |B_i| = n_i, as in the paper).
    """

    explore: float = 0.9
    decay: float = 0.98
    explore_min: float = 0.3
    alpha: float = 2.0
    percentile: float = 30.0
    pacer_delta: float = 5.0
    pacer_step: int = 20
    clip: float = 0.9
    cut: float = 0.05
    window: float = 5.0
    batch: int = 0

    def __post_init__(self) -> None:
        """Refuse shares that are none, and a pacer without steps."""
        for name in ("explore", "decay", "explore_min", "clip", "cut"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"select.{name} is {getattr(self, name)!r}; it must lie between 0 and 1")
        if self.pacer_step < 1 or self.window < 1:
            raise ValueError("select.pacer_step and select.window must be 1 or more")

    def init(self, devices: int) -> OortState:
        """Nobody took part."""
        zeros = np.zeros(devices, np.float32)
        return OortState(zeros, zeros.astype(np.int32), self.percentile, np.zeros(2 * self.pacer_step))

    def choose(
        self, state: OortState, among: Candidates, k: int, rng: np.random.Generator
    ) -> tuple[Ints, Score]:
        """Exploit and explore; whichever has too few is filled up by the other."""
        took_part = state.last > 0
        known, fresh = among.mask & took_part, among.mask & ~took_part
        explore = int(k * self._exploring(among.snapshot.round))
        exploit = min(k - explore, int(np.count_nonzero(known)))
        explore = min(k - exploit, int(np.count_nonzero(fresh)))
        exploit = min(k - explore, int(np.count_nonzero(known)))
        worth = self._worth(state, among, known, fresh)
        score = np.where(among.mask, worth, np.float32(-np.inf))
        best = self._exploitable(np.where(known, score, -np.inf), exploit)
        newest = top(np.where(fresh, score, -np.inf), int(self.window * explore))
        chosen = [_draw(score, pool, n, rng) for pool, n in ((best, exploit), (newest, explore))]
        return filled(np.sort(np.concatenate(chosen)), among, k, rng), score

    def _exploring(self, round_: int) -> float:
        return max(self.explore * self.decay**round_, self.explore_min)

    def _worth(self, state: OortState, among: Candidates, known: Bools, fresh: Bools) -> Score:
        """(N,) scores of devices that took part, and first rewards (samples) of those that never did."""
        worth = self._reward(among)
        worth[known] = self._utility(state, known, among.snapshot.round)
        worth *= self._haste(state, among)
        return self.blend(worth, among, (known, fresh))

    def _reward(self, among: Candidates) -> Score:
        """(N,) |B_i|: samples that a device would train on."""
        most = among.tempo.steps * self.batch if self.batch else np.iinfo(np.int32).max
        return np.minimum(np.maximum(among.snapshot.examples, 1), most).astype(np.float32)

    def _utility(self, state: OortState, known: Bools, round_: int) -> Score:
        """Clipped and normalised utilities of known devices, plus how long ago each took part."""
        reward, last = state.reward[known], state.last[known]
        if not reward.size:
            return reward
        place = min(int(reward.size * self.clip), reward.size - 1)
        clip = np.partition(reward, place)[place]
        low = reward.min() * np.float32(0.999)
        scale = max(float(reward.max() - low), 1e-4)
        waiting = np.sqrt(0.1 * math.log(max(round_, 1)) / np.maximum(last, 1))
        return np.asarray((np.minimum(reward, clip) - low) / np.float32(scale) + waiting, np.float32)

    def _haste(self, state: OortState, among: Candidates) -> Score:
        """(N,) factor at most 1: (T/t_i)^alpha for tasks longer than the preferred duration T."""
        if state.percentile >= 100:
            return np.ones(among.mask.size, np.float32)
        seconds = np.nan_to_num(among.task_s, nan=_LONG, posinf=_LONG)
        place = min(int(seconds.size * state.percentile / 100), seconds.size - 1)
        prefer = np.partition(seconds, place)[place]
        ratio = prefer / np.maximum(seconds, np.float32(1e-4))
        return np.asarray(np.minimum(ratio, np.float32(1)) ** self.alpha, np.float32)

    def blend(self, worth: Score, among: Candidates, groups: tuple[Bools, Bools]) -> Score:
        """(N,) What else counts for devices that took part, and for those that never did; nothing in Oort."""
        return worth

    def _exploitable(self, score: Score, exploit: int) -> Ints:
        """Devices to exploit: scores above the cut-off, and in any case the best 10 exploit + 1."""
        best = top(score, 10 * exploit + 1)
        if not best.size:
            return best
        edge = np.sort(score[best])[::-1][min(exploit, best.size - 1)]
        keep = score >= max(edge * self.cut, _TINY)
        keep[best] = True
        return np.flatnonzero(keep)

    def learn(self, state: OortState, outcomes: Outcomes) -> OortState:
        """Utilities of those who delivered, and the pacer."""
        told, who = outcomes.trained.reports, outcomes.device[outcomes.delivered]
        loss = told.incoming if told.rms is None else np.where(np.isfinite(told.rms), told.rms, told.incoming)
        size = np.minimum(told.examples, told.steps * self.batch) if self.batch else told.examples
        reward, last = state.reward.copy(), state.last.copy()
        reward[told.device] = np.where(np.isfinite(loss), np.maximum(loss, 0) * size, 0)
        exploited = who[state.last[who] > 0]
        last[who] = outcomes.round
        utility = float(reward[exploited].mean()) if exploited.size else 0.0
        state = replace(state, reward=reward, last=last, past=np.append(state.past[1:], utility))
        return replace(state, percentile=self._pace(state, outcomes.round + 1))

    def _pace(self, state: OortState, round_: int) -> float:
        """The percentile after a look at the last two windows of `pacer_step` rounds."""
        step, delta = self.pacer_step, self.pacer_delta
        if round_ < 2 * step or round_ % step:
            return state.percentile
        before, now = float(state.past[:step].sum()), float(state.past[step:].sum())
        if abs(now - before) <= 0.1 * before:
            return min(100.0, state.percentile + delta)
        if abs(now - before) >= 5 * before:
            return max(delta, state.percentile - delta)
        return state.percentile


@dataclass(frozen=True, slots=True)
class Eafl(Oort):
    """EAFL (Arouj and Abdelmoniem 2022): reward = f Oort's + (1 - f) power, both between 0 and 1.

    power: charge after the task as a share of the capacity (mains: 1). The formula and f = 0.25 are from
    memory of the paper and could not be checked; its code is not public.
    """

    f: float = 0.25

    def blend(self, worth: Score, among: Candidates, groups: tuple[Bools, Bools]) -> Score:
        """f x worth, normalised within its group, + (1 - f) x charge that would be left."""
        snapshot, power = among.snapshot, np.ones_like(worth)
        capacity = snapshot.capacity_j
        with np.errstate(invalid="ignore"):
            left = snapshot.battery_j - among.task_j
            np.divide(left, capacity, out=power, where=np.isfinite(capacity) & (capacity > 0))
        mixed = np.float32(1 - self.f) * np.clip(np.nan_to_num(power, nan=0.0), 0, 1)
        for group in groups:
            level = worth[group]
            if level.size:
                low, high = level.min(), level.max()
                mixed[group] += np.float32(self.f) * (level - low) / np.maximum(high - low, _TINY)
        return mixed


def _draw(score: Score, pool: Ints, n: int, rng: np.random.Generator) -> Ints:
    """n of a pool in proportion to their scores. No weight is zero: that would make a device impossible."""
    return pool[draw(np.log(np.maximum(score[pool], _TINY)), n, rng)]
