"""Budgets of a federation and their dual prices, by the same ascent that prices a cluster's GPUs.

Without budgets seconds and joules weigh one half each, for ever. With a budget the resource's price rises
while it is overspent and falls while it is not (dual ascent, `eiffel.core.market.ascend`), and takes the
place of the one half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from eiffel.core.market import ascend
from eiffel.core.model import Outcomes, Snapshot

FREE = 0.5
"""Weight of seconds and of joules where no budget is set: the half-and-half of the rule."""


@dataclass(frozen=True, slots=True)
class Spending:
    """Spent so far, rounds done, whether what is left buys nobody's task, and the prices."""

    joules: float = 0.0
    seconds: float = 0.0
    rounds: int = 0
    exhausted: bool = False
    price_s: float = FREE
    price_j: float = FREE
    price_b: float = 0.0


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may spend; inf and 0 mean no limit.

    joules_round, seconds_round: per round. joules, seconds: in all (spread evenly over the rounds that are
    left; the run ends when one is spent). battery_floor: mean charge of the chosen devices (fraction) below
    which charge gets a price. rounds: how many rounds `joules` and `seconds` must last. step: of the ascent.
    """

    joules_round: float = math.inf
    seconds_round: float = math.inf
    joules: float = math.inf
    seconds: float = math.inf
    battery_floor: float = 0.0
    rounds: int = 0
    step: float = 0.1

    def __post_init__(self) -> None:
        """Refuse budgets that nothing can meet."""
        for name in ("joules_round", "seconds_round", "joules", "seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"budget.{name} is {getattr(self, name)!r}; it must be positive (inf: no limit)"
                )
        if not 0 <= self.battery_floor < 1:
            raise ValueError(f"budget.battery_floor is {self.battery_floor!r}; it must be a fraction below 1")

    def init(self) -> Spending:
        """Nothing spent."""
        return Spending()

    def learn(
        self, spending: Spending, snapshot: Snapshot, outcomes: Outcomes, starved: bool = False
    ) -> Spending:
        """Add a round's spending and let the prices follow. starved: the budget ruled everybody out."""
        joules, seconds = float(outcomes.joules.sum()), outcomes.end_s - outcomes.start_s
        allowed_j = self._allowance(self.joules_round, self.joules - spending.joules, spending.rounds)
        allowed_s = self._allowance(self.seconds_round, self.seconds - spending.seconds, spending.rounds)
        return replace(
            spending,
            joules=spending.joules + joules,
            seconds=spending.seconds + seconds,
            rounds=spending.rounds + 1,
            exhausted=starved,
            price_j=_follow(spending.price_j, joules, allowed_j, self.step),
            price_s=_follow(spending.price_s, seconds, allowed_s, self.step),
            price_b=self._charge_price(spending.price_b, snapshot, outcomes),
        )

    def _allowance(self, per_round: float, left: float, done: int) -> float:
        ahead = max(1, self.rounds - done)
        return min(per_round, max(left, 0.0) / ahead if math.isfinite(left) else math.inf)

    def _charge_price(self, price: float, snapshot: Snapshot, outcomes: Outcomes) -> float:
        who = outcomes.device[np.isfinite(snapshot.capacity_j[outcomes.device])]
        if not self.battery_floor or not who.size:
            return price
        charge = float((snapshot.battery_j[who] / snapshot.capacity_j[who]).mean())
        return float(ascend(price, self.battery_floor, max(charge, 1e-6), self.step))

    def left_j(self, spending: Spending) -> float:
        """Joules that the whole run may still spend."""
        return self.joules - spending.joules

    def spent(self, spending: Spending) -> str:
        """Which budget of the whole run is spent, in words, or ''."""
        if spending.joules >= self.joules or spending.exhausted:
            return f"the energy budget is spent: {spending.joules:.4g} of {self.joules:.4g} J"
        if spending.seconds >= self.seconds:
            return f"the time budget is spent: {spending.seconds:.4g} of {self.seconds:.4g} s"
        return ""

    def notes(self, spending: Spending) -> dict[str, float]:
        """The prices, where a budget sets them."""
        limited = {
            "price_seconds": (min(self.seconds_round, self.seconds) < math.inf, spending.price_s),
            "price_joules": (min(self.joules_round, self.joules) < math.inf, spending.price_j),
            "price_charge": (self.battery_floor > 0, spending.price_b),
        }
        return {name: price for name, (on, price) in limited.items() if on}


def _follow(price: float, used: float, allowed: float, step: float) -> float:
    """Without a limit the price stays what the rule says."""
    return price if math.isinf(allowed) else float(ascend(price, used, max(allowed, 1e-9), step))
