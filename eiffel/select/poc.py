"""Power-of-Choice (Cho, Wang and Joshi 2022, "Towards Understanding Biased Client Selection"): of d candidates,
drawn in proportion to their samples, the k with the largest loss train.

    pow-d    the d candidates are asked for the loss of the current model on all their samples
    cpow-d   ... on a minibatch of them (probe: b)
    rpow-d   nobody is asked: the last loss a device reported counts, and one that never did comes first

The probe costs d downloads, d forward passes and d scalars; those who then train hold the model already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Ints, Outcomes
from eiffel.select.candidates import LEAST, Candidates, Score, Unasking, draw, filled, log_size, top

_NOBODY = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class ChoiceState:
    """loss: (N,) last known loss, NaN before the first. asked: who answered the last probe. round: its round."""

    loss: NDArray[np.float32]
    asked: Ints
    round: int = 0


@dataclass(frozen=True, slots=True)
class PowerOfChoice(Unasking):
    """d: candidates for each device of the cohort. loss: `fresh` (asked for) or `stale` (as last reported).
    probe: own samples on which those who are asked measure it (-1: all).
    """

    d: float = 3.0
    loss: Literal["fresh", "stale"] = "fresh"
    probe: int = -1

    def __post_init__(self) -> None:
        """Refuse a candidate set smaller than the cohort."""
        if not self.d >= 1:
            raise ValueError(f"select.d is {self.d!r}; it must be 1 or more (candidates per chosen device)")

    def init(self, devices: int) -> ChoiceState:
        """Nothing is known."""
        return ChoiceState(np.full(devices, np.nan, np.float32), _NOBODY)

    def ask(self, state: ChoiceState, among: Candidates, k: int, rng: np.random.Generator) -> Ints:
        """d candidates in proportion to their samples."""
        return self._candidates(among, k, rng) if self.loss == "fresh" else _NOBODY

    def _candidates(self, among: Candidates, k: int, rng: np.random.Generator) -> Ints:
        return draw(log_size(among), math.ceil(self.d * k), rng)

    def hear(self, state: ChoiceState, answers: Outcomes) -> ChoiceState:
        """Who answered, and what."""
        told = answers.trained.reports
        return ChoiceState(_put(state.loss, told.device, told.loss), told.device, answers.round)

    def held(self, state: ChoiceState, round_: int) -> Ints:
        """Those who answered this round's probe."""
        return state.asked if state.round == round_ else _NOBODY

    def choose(
        self, state: ChoiceState, among: Candidates, k: int, rng: np.random.Generator
    ) -> tuple[Ints, Score]:
        """The k largest losses among the d; if fewer answered, others in proportion to their samples."""
        if self.loss == "fresh":
            pool, unknown = self.held(state, among.snapshot.round), LEAST
            pool = pool[among.mask[pool]]
        else:
            pool, unknown = self._candidates(among, k, rng), -LEAST
        score = np.where(among.mask, LEAST, np.float32(-np.inf))
        known = state.loss[pool]
        score[pool] = np.clip(np.where(np.isnan(known), unknown, known), LEAST, -LEAST)
        best = np.full(score.size, -np.inf, np.float32)
        best[pool] = score[pool]
        return filled(top(best, k), among, k, rng), score

    def learn(self, state: ChoiceState, outcomes: Outcomes) -> ChoiceState:
        """What the cohort reported of the model it was given."""
        told = outcomes.trained.reports
        known = np.isfinite(told.incoming)
        return replace(state, loss=_put(state.loss, told.device[known], told.incoming[known]))


def _put(loss: NDArray[np.float32], device: Ints, new: NDArray[np.float64]) -> NDArray[np.float32]:
    loss = loss.copy()
    loss[device] = new
    return loss
