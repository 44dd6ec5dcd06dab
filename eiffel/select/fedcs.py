"""FedCS (Nishio and Yonetani 2019, ICC): as many devices as fit into a round, those that cost least time first.

Random devices are asked for their resources. Of those the server takes, again and again, the device
that prolongs the round least: it computes while others upload, and uploads when the channel is free,

    prolongs by   t_up + max(0, t_down + t_work - elapsed)

until the next one would end after the round's time. The equations are from memory of the paper and could not
be checked. Ours: never more than a cohort, of `candidates` times as many that are asked (the paper asks a tenth
of 1,000 devices and takes as many as fit); the upload's part of an exchange is its part of the bytes; and the
channel is the paper's (one upload at a time), though the simulated fleet lets everybody upload at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eiffel.core.model import Floats, Ints, Outcomes
from eiffel.select.candidates import LEAST, Candidates, Score, Unasking, draw, masked


@dataclass(frozen=True, slots=True)
class FedCs(Unasking):
    """candidates: asked for their resources, for each device of the cohort (their few bytes are not charged).
    round_s: seconds of a round; devices that were asked and do not fit are excluded.
    """

    candidates: float = 5.0
    round_s: float = math.inf

    def __post_init__(self) -> None:
        """Refuse fewer candidates than the cohort, and a round without time."""
        if not self.candidates >= 1 or not self.round_s > 0:
            raise ValueError(
                f"select.candidates is {self.candidates!r} and select.round_s {self.round_s!r}; "
                "there must be 1 or more candidates per chosen device, and the seconds be positive"
            )

    def init(self, devices: int) -> None:
        """No state."""

    def choose(self, state: None, among: Candidates, k: int, rng: np.random.Generator) -> tuple[Ints, Score]:
        """Greedy over the devices that were asked; the score is minus the seconds of the task."""
        everyone = masked(np.zeros(among.mask.size), among.mask)
        pool = draw(everyone, math.ceil(self.candidates * k), rng)
        seconds = np.nan_to_num(among.task_s[pool].astype(np.float64), nan=1e30, posinf=1e30)
        snapshot = among.snapshot
        part = snapshot.bytes_up / max(snapshot.bytes_down + snapshot.bytes_up, 1)
        upload = np.minimum(
            np.nan_to_num(snapshot.exchange_s[pool].astype(np.float64), nan=0) * part, seconds
        )
        picked, full = greedy(upload, seconds - upload, k, self.round_s)
        score = masked(np.full(among.mask.size, LEAST), among.mask)
        score[pool] = -np.inf if full else -seconds
        score[pool[picked]] = -seconds[picked]
        return pool[np.sort(picked)], score

    def learn(self, state: None, outcomes: Outcomes) -> None:
        """Nothing to learn."""


def greedy(upload: Floats, ready: Floats, k: int, limit: float) -> tuple[Ints, bool]:
    """Up to k devices in the order taken, and whether the limit (seconds) ended the search.

    upload, ready: (C,) seconds of the upload, and until it could begin.

    >>> greedy(np.array([1.0, 1.0, 5.0]), np.array([2.0, 4.0, 1.0]), 3, 6.0)
    (array([0, 1]), True)
    """
    picked: list[int] = []
    elapsed, left = 0.0, np.ones(upload.size, np.bool_)
    while len(picked) < min(k, upload.size):
        longer = np.where(left, upload + np.maximum(ready - elapsed, 0), np.inf)
        best = int(longer.argmin())
        if elapsed + longer[best] > limit:
            return np.array(picked, np.int64), True
        elapsed, left[best] = elapsed + float(longer[best]), False
        picked.append(best)
    return np.array(picked, np.int64), False
