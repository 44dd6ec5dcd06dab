"""What every pace has, the pace that never changes, and the small arithmetic that paces share."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from eiffel.core.model import Floats, Ints, Outcomes, Plan, Snapshot
from eiffel.select.candidates import Candidates, Tempo


class Pace(Protocol):
    """A rule for local steps: frozen numbers, pure functions.

    sums: the rule reads the plain sum of the updates (a row of `Weigh`). gradients: it needs the devices'
    gradients (an upload of the model's size more, charged as such).
    """

    @property
    def sums(self) -> bool:
        """Whether `learn` reads the plain sum of the updates."""
        ...

    @property
    def gradients(self) -> bool:
        """Whether devices must report the gradient of the incoming model."""
        ...

    def init(self) -> Any:
        """The state before the first round."""
        ...

    def tempo(self, state: Any) -> Tempo:
        """tau proposed for the coming round, and what selection and aggregation may know of the pace."""
        ...

    def share_out(self, state: Any, among: Candidates, chosen: Ints) -> tuple[Ints, float]:
        """(K,) local steps of each chosen device, and seconds after which nobody is waited for (inf: no limit)."""
        ...

    def learn(
        self, state: Any, snapshot: Snapshot, plan: Plan, outcomes: Outcomes, total: Floats | None
    ) -> Any:
        """The state after a round. total: (P,) plain sum of the counted updates, where `sums` asks for it."""
        ...

    def notes(self, state: Any) -> dict[str, float]:
        """Figures of the state that belong in the record."""
        ...


class Together:
    """For paces that give every chosen device the same local steps and no deadline."""

    __slots__ = ()

    def share_out(self, state: Any, among: Candidates, chosen: Ints) -> tuple[Ints, float]:
        """tau for everybody."""
        return np.full(chosen.size, among.tempo.steps, np.int64), math.inf


@dataclass(frozen=True, slots=True)
class Fixed(Together):
    """The same number of local steps in every round: FedAvg (McMahan et al. 2017)."""

    steps: int = 5
    sums: bool = field(default=False, init=False)
    gradients: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Refuse what no device can do."""
        if self.steps < 1:
            raise ValueError(f"pace.steps is {self.steps}; a device does at least 1 local step")

    def init(self) -> None:
        """No state."""

    def tempo(self, state: None) -> Tempo:
        """tau as configured."""
        return Tempo(self.steps)

    def learn(
        self, state: None, snapshot: Snapshot, plan: Plan, outcomes: Outcomes, total: Floats | None
    ) -> None:
        """Nothing to learn."""

    def notes(self, state: None) -> dict[str, float]:
        """tau."""
        return {"tau": float(self.steps)}


def smooth(old: float, new: float, keep: float) -> float:
    """Exponential moving average whose first value is taken as it is; unknown values change nothing."""
    if not math.isfinite(new):
        return old
    return new if math.isnan(old) else keep * old + (1 - keep) * new


def mean(values: Floats) -> float:
    """Mean of the known values; NaN where none is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan
