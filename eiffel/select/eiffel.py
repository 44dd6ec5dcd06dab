"""Eiffel's selection, our reconstruction: need, age and size against what a task costs.

    log P_i = q log R_i + s log p_i + a log(t - l_i) - gamma_t log D_i
    D_i     = lambda_T T_i / mean(T) + lambda_J J_i / mean(J)       (lambda = 1/2, 1/2 without budgets)
    gamma_t = gamma_min + gamma_span alpha_{t-1}

R_i: rank of the smoothed loss of the global model on the device's own data (1/N .. 1, never reported = 1);
p_i: share of the samples; l_i: last round it delivered; T_i, J_i: predicted seconds and joules of its task;
alpha: alignment of the last updates. K devices are drawn in proportion to P without replacement.

Ranks instead of raw losses bound the largest to the smallest weight, so that no outlier captures the cohort.
The age is unbounded, so that every device that can take part does so again and again. Where devices agree
(alpha near 1) the cheap ones are taken; where they disagree, need and age decide. The abstract of the TPDS
2022 paper fixes none of this: the form, exponents and defaults are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Ints, Outcomes
from eiffel.select.candidates import Candidates, Score, Unasking, draw, top
from eiffel.select.rank import LossRank


@dataclass(frozen=True, slots=True)
class EiffelState:
    """loss: (N,) smoothed loss of the global model, NaN until the first report. last: (N,) round of the last
    delivery. rank: their histogram. round: rounds seen.
    """

    loss: NDArray[np.float32]
    last: NDArray[np.int32]
    rank: LossRank
    round: int = 0


@dataclass(frozen=True, slots=True)
class EiffelSelect(Unasking):
    """Eiffel's selection (our reconstruction). Every part can be switched off for an ablation.

    q: exponent of the loss rank (0: losses do not count). size: exponent of the data share. age: exponent of
    rounds since the last delivery. gamma_min, gamma_span: exponent of the cost (both 0: cost does not
    count). battery: exponent of the charge (0: charge only rules out). smoothing: weight of the old loss.
    need: `rank` of the loss, or the `raw` loss. pick: `sample` (in proportion) or `top` (the best k).
    """

    q: float = 2.0
    size: float = 0.5
    age: float = 1.0
    gamma_min: float = 0.5
    gamma_span: float = 1.5
    battery: float = 0.0
    smoothing: float = 0.5
    need: Literal["rank", "raw"] = "rank"
    pick: Literal["sample", "top"] = "sample"

    def init(self, devices: int) -> EiffelState:
        """Nobody has reported, nobody has delivered."""
        loss = np.full(devices, np.nan, np.float32)
        return EiffelState(loss, np.zeros(devices, np.int32), LossRank.of(loss))

    def choose(
        self, state: EiffelState, among: Candidates, k: int, rng: np.random.Generator
    ) -> tuple[Ints, Score]:
        """Draw up to k candidates in proportion to P."""
        score = self._score(state, among)
        if not among.mask.all():
            score[~among.mask] = -np.inf
        # A score that is NaN (a cost that is not a number) rules a device out instead of poisoning the draw.
        np.copyto(score, np.float32(-np.inf), where=np.isnan(score))
        return (draw(score, k, rng) if self.pick == "sample" else top(score, k)), score

    def _score(self, state: EiffelState, among: Candidates) -> Score:
        snapshot = among.snapshot
        score = self._need(state)
        if self.size:
            score += np.float32(self.size) * np.log(np.maximum(snapshot.examples, 1).astype(np.float32))
        if self.age:
            age = np.maximum(snapshot.round - state.last, 1).astype(np.float32)
            score += np.float32(self.age) * np.log(age, out=age)
        gamma = self.gamma_min + self.gamma_span * among.tempo.alignment
        if gamma:
            score -= np.float32(gamma) * log_cost(among)
        if self.battery:
            charge = np.where(np.isfinite(snapshot.capacity_j), snapshot.battery_j / snapshot.capacity_j, 1.0)
            score += np.float32(self.battery) * np.log(np.maximum(charge, 1e-6).astype(np.float32))
        return score

    def _need(self, state: EiffelState) -> Score:
        if not self.q:
            return np.zeros(state.loss.size, np.float32)
        if self.need == "rank":
            return np.float32(self.q) * state.rank.log_rank()
        known = state.loss[np.isfinite(state.loss)]
        optimistic = np.float32(known.max()) if known.size else np.float32(1.0)
        loss = np.where(np.isfinite(state.loss), state.loss, optimistic)
        return np.float32(self.q) * np.log(np.maximum(loss, np.float32(1e-12)))

    def learn(self, state: EiffelState, outcomes: Outcomes) -> EiffelState:
        """Take in the losses that came back (the probe's, else the first minibatch's) and who delivered."""
        reports = outcomes.trained.reports
        loss, last = state.loss.copy(), state.last.copy()
        delivered = outcomes.device[outcomes.delivered]
        last[delivered] = outcomes.round
        reported = np.where(np.isfinite(reports.loss), reports.loss, reports.first_loss).astype(np.float32)
        known = np.isfinite(reported)
        who, new = reports.device[known], reported[known]
        old = loss[who]
        keep = np.float32(self.smoothing)
        loss[who] = np.where(np.isnan(old), new, keep * old + (1 - keep) * new)
        return replace(
            state, loss=loss, last=last, rank=state.rank.changed(who, loss[who]), round=outcomes.round
        )


def log_cost(among: Candidates) -> Score:
    """log D: each candidate's seconds and joules against the candidates' mean, at the current prices.

    With prices that sum to less than one the rest is a cost that everybody shares, so that prices of zero
    make cost indifferent; beyond one the price also steepens the exponent, so that a budget that stays
    overspent ends with the cheapest devices. Without budgets (1/2 and 1/2) this is log D as written above.
    """
    mask, snapshot = among.mask, among.snapshot
    total = among.price_s + among.price_j + among.price_b
    cost = np.full(mask.size, max(0.0, 1.0 - total), np.float32)
    for price, task in ((among.price_s, among.task_s), (among.price_j, among.task_j)):
        if price:
            cost += np.float32(price / mean_over(task, mask)) * task
    if among.price_b:
        left = np.maximum(snapshot.battery_j, np.float32(1e-9))
        drain = np.asarray(among.task_j / left, np.float32)
        cost += np.float32(among.price_b / mean_over(drain, mask)) * drain
    np.log(np.maximum(cost, np.float32(1e-12)), out=cost)
    return cost if total <= 1 else cost * np.float32(total)


def mean_over(values: NDArray[np.float32], mask: NDArray[np.bool_]) -> float:
    """Mean over the candidates, never zero (so that it can divide)."""
    known = values if mask.all() else values[mask]
    mean = float(known.mean(dtype=np.float64)) if known.size else 1.0
    return mean if mean > 0 and np.isfinite(mean) else 1.0
