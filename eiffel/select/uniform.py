"""Selection without memory: uniformly, in proportion to the number of training samples, or everybody."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eiffel.core.model import Ints, Outcomes
from eiffel.select.candidates import Candidates, Score, Unasking, draw


@dataclass(frozen=True, slots=True)
class Uniform(Unasking):
    """Every candidate is equally likely: the selection of FedAvg (McMahan et al. 2017, algorithm 1)."""

    def init(self, devices: int) -> None:
        """No state."""

    def choose(self, state: None, among: Candidates, k: int, rng: np.random.Generator) -> tuple[Ints, Score]:
        """Draw k of the candidates uniformly without replacement."""
        score = np.where(among.mask, np.float32(0.0), np.float32(-np.inf))
        return draw(score, k, rng), score

    def learn(self, state: None, outcomes: Outcomes) -> None:
        """Nothing to learn."""


@dataclass(frozen=True, slots=True)
class SizeWeighted(Uniform):
    """Candidates in proportion to their number of training samples, without replacement.

    With a plain mean of the updates this is the sampling scheme of Li et al. (2020, "Fair resource
    allocation in federated learning") for its tables.
    """

    def choose(self, state: None, among: Candidates, k: int, rng: np.random.Generator) -> tuple[Ints, Score]:
        """Draw k of the candidates in proportion to their samples."""
        samples = np.maximum(among.snapshot.examples, 1).astype(np.float32)
        score = np.where(among.mask, np.log(samples), np.float32(-np.inf))
        return draw(score, k, rng), score


@dataclass(frozen=True, slots=True)
class Everybody(Uniform):
    """Every candidate, whatever the cohort's size: full participation."""

    def choose(self, state: None, among: Candidates, k: int, rng: np.random.Generator) -> tuple[Ints, Score]:
        """All candidates."""
        score = np.where(among.mask, np.float32(0.0), np.float32(-np.inf))
        return np.flatnonzero(among.mask), score
