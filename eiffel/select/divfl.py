"""DivFL (Balakrishnan et al. 2022, ICLR): a cohort whose gradients stand for everybody's.

    choose S, |S| = k, that makes  sum over i of min over j in S of |g_i - g_j|  small, greedily (facility location)

Only the chosen devices' gradients are refreshed. Differences from the paper and its code, all ours:

- a gradient is a device's last update divided by its local steps, kept as a seeded count sketch of `size` numbers
  (each entry of the update is added, with a random sign, to a random place), which preserves distances to about
  1/sqrt(size);
- the code asks all devices for their gradient before the first round. Here they are met round by round: up to
  `explore` of a cohort is new, all of it until two cohorts are known;
- above `pool` known devices, candidates and those to be represented are random samples of that size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Floats, Ints, Outcomes
from eiffel.select.candidates import LEAST, Candidates, Score, Unasking, draw, filled, masked


@dataclass(frozen=True, slots=True)
class Sketches:
    """device: (M,) devices whose gradient is known, ascending. sketch: (M, size) of it."""

    device: Ints
    sketch: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DivFl(Unasking):
    """size: of a sketch. explore: share of a cohort that may be new. pool: most devices compared at a time.
    seed: of the sketch.
    """

    size: int = 256
    explore: float = 0.5
    pool: int = 1000
    seed: int = 0
    full: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be compared."""
        if self.size < 1 or self.pool < 1 or not 0 <= self.explore <= 1:
            raise ValueError("select.size and select.pool must be 1 or more, select.explore a fraction")

    def init(self, devices: int) -> Sketches:
        """No gradient is known."""
        return Sketches(np.zeros(0, np.int64), np.zeros((0, self.size), np.float32))

    def choose(
        self, state: Sketches, among: Candidates, k: int, rng: np.random.Generator
    ) -> tuple[Ints, Score]:
        """New devices first, then the facility location of the known; its marginal gain is their score."""
        everyone = masked(np.zeros(among.mask.size), among.mask)
        fresh = everyone.copy()
        fresh[state.device] = -np.inf
        able = np.flatnonzero(among.mask[state.device])
        new = draw(fresh, k if able.size < 2 * k else math.ceil(self.explore * k), rng)
        of, ground = self._some(able, rng), self._some(np.arange(state.device.size), rng)
        picked, gain = facilities(distances(state.sketch[ground], state.sketch[of]), k - new.size)
        best = state.device[of[picked]]
        score = np.maximum(everyone, LEAST, out=np.full_like(everyone, -np.inf), where=among.mask)
        score[best] = gain
        return filled(np.sort(np.concatenate([new, best])), among, k, rng), score

    def _some(self, of: Ints, rng: np.random.Generator) -> Ints:
        return of if of.size <= self.pool else np.sort(rng.choice(of, self.pool, replace=False))

    def learn(self, state: Sketches, outcomes: Outcomes) -> Sketches:
        """Sketches of the updates that came back. ValueError where the world returned only their sum."""
        trained = outcomes.trained
        if trained.full is None:
            raise ValueError("DivFL needs every single update; this world returned only their sum")
        fine = np.flatnonzero(np.isfinite(trained.sumsq) & (trained.reports.steps > 0))
        who, steps = trained.reports.device[fine], trained.reports.steps[fine]
        new = count_sketch(trained.full[fine], self.size, self.seed) / steps[:, None].astype(np.float32)
        device = np.union1d(state.device, who)
        sketch = np.zeros((device.size, self.size), np.float32)
        sketch[np.searchsorted(device, state.device)] = state.sketch
        sketch[np.searchsorted(device, who)] = new
        return replace(state, device=device, sketch=sketch)


def count_sketch(rows: NDArray[np.float32], size: int, seed: int) -> NDArray[np.float32]:
    """(R, size) of (R, P): every entry, with a random sign, added to a random place (Charikar et al. 2002)."""
    random = np.random.default_rng([seed, rows.shape[1]])
    place = random.integers(0, size, rows.shape[1])
    sign = random.integers(0, 2, rows.shape[1]) * 2.0 - 1.0
    sums = [np.bincount(place, row * sign, minlength=size) for row in rows]
    return np.array(sums, np.float32).reshape(-1, size)


def distances(a: NDArray[np.float32], b: NDArray[np.float32]) -> Floats:
    """(A, B) Euclidean distances."""
    # In double precision: the difference of squares below would lose half the digits of small distances.
    left, right = a.astype(np.float64), b.astype(np.float64)
    square = np.square(left).sum(1)[:, None] + np.square(right).sum(1)[None]
    return np.asarray(np.sqrt(np.maximum(square - 2 * (left @ right.T), 0)))


def facilities(far: Floats, k: int) -> tuple[Ints, Floats]:
    """Up to k columns of far (G, C), greedily: each time the one that brings the rows nearest; and their gains.

    The first gain is counted from twice the largest distance. Equal gains go to the lower column.

    >>> facilities(np.array([[0.0, 1.0, 9.0], [1.0, 0.0, 8.0], [9.0, 8.0, 0.0]]), 2)
    (array([1, 2]), array([45.,  8.]))
    """
    near = np.full(far.shape[0], 2.0 * far.max(initial=0.0))
    left, picked, gains = np.ones(far.shape[1], np.bool_), list[int](), list[float]()
    while len(picked) < min(k, far.shape[1]):
        total = np.where(left, np.minimum(near[:, None], far).sum(0), np.inf)
        best = int(total.argmin())
        gains.append(float(near.sum() - total[best]))
        near, left[best] = np.minimum(near, far[:, best]), False
        picked.append(best)
    return np.array(picked, np.int64), np.array(gains)
