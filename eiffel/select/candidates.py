"""What a selection rule sees, and the shape every rule has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Bools, Ints, Outcomes, Snapshot

Score = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Tempo:
    """How the federation moves, as the pace knows it: what selection and aggregation may take from it.

    steps: local steps (tau) proposed for the coming round. alignment: alpha in [0, 1), the part of the
    averaged update's energy that is common signal. grown: tau has grown beyond its start.
    """

    steps: int = 1
    alignment: float = 0.0
    grown: bool = False


@dataclass(frozen=True, slots=True)
class Candidates:
    """The devices a rule may choose from.

    snapshot: the whole fleet. mask: (N,) who may be chosen. task_s, task_j: (N,) predicted seconds and
    joules of this round's task. price_s, price_j, price_b: dual prices of seconds, joules and charge.
    """

    snapshot: Snapshot
    mask: Bools
    task_s: NDArray[np.float32]
    task_j: NDArray[np.float32]
    tempo: Tempo
    price_s: float = 0.5
    price_j: float = 0.5
    price_b: float = 0.0


class Select(Protocol):
    """A selection rule: frozen numbers, pure functions."""

    @property
    def probe(self) -> int:
        """Own samples on which an asked device measures its loss (-1: all; 0: as `local.probe` says, else all)."""
        ...

    @property
    def full(self) -> bool:
        """Whether `learn` reads every single update (`outcomes.trained.full`)."""
        ...

    def init(self, devices: int) -> Any:
        """State for a fleet of this size."""
        ...

    def ask(self, state: Any, among: Candidates, k: int, rng: np.random.Generator) -> Ints:
        """Candidates whose current loss the rule must know before it chooses, ascending; usually none."""
        ...

    def hear(self, state: Any, answers: Outcomes) -> Any:
        """The state after the answers (`answers.trained.reports.loss`)."""
        ...

    def held(self, state: Any, round_: int) -> Ints:
        """Devices that hold the model of this round already, because they were asked; usually none."""
        ...

    def choose(self, state: Any, among: Candidates, k: int, rng: np.random.Generator) -> tuple[Ints, Score]:
        """Up to k distinct candidates (all of them where fewer exist), ascending, and every device's score.

        Scores are log-weights or the rule's own measure; -inf marks who may not be chosen: a candidate with
        that score is reported as excluded by the strategy.
        """
        ...

    def see(self, state: Any, snapshot: Snapshot) -> Any:
        """The state after a look at the fleet, once a round; most rules remember nothing of it."""
        ...

    def learn(self, state: Any, outcomes: Outcomes) -> Any:
        """The state after a round."""
        ...


LEAST = np.finfo(np.float32).min
"""A score below all others that still may be chosen, when nobody better is left."""


class Unasking:
    """What most rules do: ask nothing, want no single update, remember nothing of who was reachable."""

    __slots__ = ()

    @property
    def probe(self) -> int:
        """Nothing is asked."""
        return 0

    @property
    def full(self) -> bool:
        """Sums suffice."""
        return False

    def ask(self, state: Any, among: Candidates, k: int, rng: np.random.Generator) -> Ints:
        """Nobody."""
        return np.empty(0, np.int64)

    def hear(self, state: Any, answers: Outcomes) -> Any:
        """Nothing was asked."""
        return state

    def held(self, state: Any, round_: int) -> Ints:
        """Nobody was asked."""
        return np.empty(0, np.int64)

    def see(self, state: Any, snapshot: Snapshot) -> Any:
        """Nothing is remembered."""
        return state


def draw(log_weight: Score, k: int, rng: np.random.Generator) -> Ints:
    """Up to k indices without replacement, successively proportional to exp(log_weight); ascending.

    Gumbel-top-K (Efraimidis and Spirakis 2006; Kool et al. 2019): adding Gumbel noise and taking the k
    largest is sampling without replacement in proportion to the weights. -inf (and NaN) is never drawn.
    O(N): one partition, no sort.

    >>> draw(np.array([0, -np.inf, 0], np.float32), 5, np.random.default_rng(0)).tolist()
    [0, 2]
    """
    # -log of a standard exponential is a standard Gumbel; one cheap draw and one logarithm a device.
    noise = rng.standard_exponential(log_weight.size, np.float32)
    np.log(np.maximum(noise, np.float32(1e-38), out=noise), out=noise)
    return top(log_weight - noise, k)


def top(score: Score, k: int) -> Ints:
    """The k largest scores' indices, ascending; entries that are not above -inf do not count.

    Equal scores go to the lower index, so that the answer is a function of the scores alone.
    """
    usable = np.flatnonzero(score > _floor(score, k))
    if usable.size < k:
        usable = np.flatnonzero(score > -np.inf)
    if k >= usable.size:
        return usable
    if k <= 0:
        return usable[:0]
    values = score[usable]
    threshold = np.partition(values, values.size - k)[values.size - k]
    above = np.flatnonzero(values > threshold)
    level = np.flatnonzero(values == threshold)[: k - above.size]
    return np.asarray(usable[np.sort(np.concatenate([above, level]))])


STRIDE = 64
"""Every how many-th score of a large fleet is looked at to guess where the best begin."""


def _floor(score: Score, k: int) -> float:
    """A score that very likely has k others above it: from a sample, so that few need be partitioned.

    A wrong guess costs time, never the answer.
    """
    sample = score[::STRIDE]
    wanted = 8 + 4 * k // STRIDE
    if score.size < 1 << 16 or wanted >= sample.size:
        return -np.inf
    return float(np.partition(sample, sample.size - wanted)[sample.size - wanted])


def filled(chosen: Ints, among: Candidates, k: int, rng: np.random.Generator) -> Ints:
    """`chosen` and, where those are fewer than k, other candidates in proportion to their samples; ascending."""
    if chosen.size >= k:
        return chosen
    rest = log_size(among)
    rest[chosen] = -np.inf
    return np.sort(np.concatenate([chosen, draw(rest, k - chosen.size, rng)]))


def masked(values: NDArray[np.floating[Any]], mask: Bools) -> Score:
    """(N,) values of the candidates as a score, -inf for everybody else."""
    return np.where(mask, np.asarray(values, np.float32), np.float32(-np.inf))


def log_size(among: Candidates) -> Score:
    """(N,) log of every candidate's number of samples, -inf for everybody else."""
    return masked(np.log(np.maximum(among.snapshot.examples, 1).astype(np.float32)), among.mask)
