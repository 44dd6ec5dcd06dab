"""A federated method: four choices (select, pace, aggregate, local) behind one policy signature.

    decide   pace proposes tau -> predict costs -> rule out -> select -> plan
    learn    aggregate steps -> pace, selection and prices learn

FedAvg, FedProx, Eiffel and the rest differ in one or two of the four; nothing is written twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eiffel.aggregate import Aggregate, AggregateState
from eiffel.budget import Budget, Spending
from eiffel.core.costs import SCALAR_BYTES, predict, with_probe
from eiffel.core.model import (
    Bools,
    Codes,
    Floats,
    Local,
    Outcomes,
    Params,
    Plan,
    Reason,
    Reports,
    Snapshot,
    Weigh,
)
from eiffel.pace import Fixed, Pace
from eiffel.select import Candidates, Select, Tempo, Uniform


@dataclass(frozen=True, slots=True)
class Cohort:
    """How a round is filled and when it ends.

    size: K, devices whose updates are wanted. over_select: factor on K when choosing (1 = none).
    wait_for: deliveries that end the round (0: size when over-selecting, else everybody).
    deadline_s: seconds after which nobody is waited for. quorum: fewest deliveries that move the model.
    battery_reserve: fraction of its capacity that no task may take from a device.
    """

    size: int = 10
    over_select: float = 1.0
    wait_for: int = 0
    deadline_s: float = math.inf
    quorum: int = 1
    battery_reserve: float = 0.0

    def __post_init__(self) -> None:
        """Refuse rounds that cannot end or never begin."""
        for name, ok, need in (
            ("size", self.size >= 1, "at least 1"),
            ("over_select", self.over_select >= 1, "1 or more"),
            ("wait_for", 0 <= self.wait_for <= self.asked, f"between 0 and the {self.asked} devices asked"),
            ("deadline_s", self.deadline_s > 0, "positive"),
            ("quorum", 1 <= self.quorum <= self.asked, f"between 1 and the {self.asked} devices asked"),
            ("battery_reserve", 0 <= self.battery_reserve < 1, "a fraction below 1"),
        ):
            if not ok:
                raise ValueError(f"cohort.{name} is {getattr(self, name)!r}; it must be {need}")

    @property
    def asked(self) -> int:
        """How many devices are chosen."""
        return math.ceil(self.size * self.over_select)

    @property
    def enough(self) -> int:
        """Deliveries that end the round."""
        return self.wait_for or (self.size if self.over_select > 1 else self.asked)


@dataclass(frozen=True, slots=True)
class MethodState:
    """The states of the four choices and of the budgets."""

    select: Any
    pace: Any
    aggregate: AggregateState
    spending: Spending


@dataclass(frozen=True, slots=True)
class Method:
    """The policy of a federation. See `eiffel.core.loop.Policy`."""

    name: str = "fedavg"
    select: Select = field(default_factory=Uniform)
    pace: Pace = field(default_factory=Fixed)
    aggregate: Aggregate = field(default_factory=Aggregate)
    local: Local = field(default_factory=Local)
    cohort: Cohort = field(default_factory=Cohort)
    budget: Budget = field(default_factory=Budget)

    def init(self, params: Params, devices: int) -> MethodState:
        """The state before the first round, for this model and a fleet of this size."""
        return MethodState(
            self.select.init(devices),
            self.pace.init(),
            self.aggregate.init(params, devices),
            self.budget.init(),
        )

    def ask(self, state: MethodState, snapshot: Snapshot, rng: np.random.Generator) -> Plan | None:
        """A probe of the losses that the selection rule must know first; None for rules that ask nothing."""
        among, reason = self._candidates(state, snapshot)
        who = self.select.ask(state.select, among, self.cohort.asked, rng)
        if not who.size:
            return None
        return Plan(
            round=snapshot.round,
            chosen=who,
            steps=np.zeros(who.size, np.int64),
            reason=reason,
            params=state.aggregate.params,
            local=replace(self.local, probe=self.select.probe or self.local.probe or -1),
            weigh=lambda reports: np.zeros((1, reports.device.size)),
            deadline_s=self.cohort.deadline_s,
            uplink=SCALAR_BYTES / snapshot.bytes_up,
        )

    def hear(self, state: MethodState, snapshot: Snapshot, probe: Plan, answers: Outcomes) -> MethodState:
        """The selection rule takes in the answers; what they cost counts against the budgets."""
        return replace(
            state,
            select=self.select.hear(state.select, answers),
            spending=self.budget.learn(state.spending, snapshot, answers),
        )

    def decide(self, state: MethodState, snapshot: Snapshot, rng: np.random.Generator) -> Plan:
        """Choose the cohort and its local steps; give everybody else a reason."""
        among, reason = self._candidates(state, snapshot)
        chosen, score = self.select.choose(state.select, among, self.cohort.asked, rng)
        reason[among.mask] = Reason.NOT_DRAWN
        reason[among.mask & (score == -np.inf)] = Reason.EXCLUDED
        reason[chosen] = Reason.CHOSEN
        steps, patience = self.pace.share_out(state.pace, among, chosen)
        down, up = self._traffic
        held = self.select.held(state.select, snapshot.round)
        return Plan(
            round=snapshot.round,
            chosen=chosen,
            steps=steps,
            reason=reason,
            params=state.aggregate.params,
            local=self.local,
            weigh=self._weigh(state, among.tempo),
            score=score,
            full=self.aggregate.weights.full or self.select.full or self.pace.gradients,
            deadline_s=min(self.cohort.deadline_s, patience),
            # A rule that takes everybody waits for everybody.
            wait_for=min(self.cohort.enough, chosen.size)
            if chosen.size <= self.cohort.asked
            else chosen.size,
            notes=self.pace.notes(state.pace) | self.budget.notes(state.spending),
            downlink=down - 1.0 if held.size and np.isin(chosen, held).all() else down,
            uplink=up,
            gradients=self.pace.gradients,
            shift=self.aggregate.weights.shift(state.aggregate.weights, chosen),
        )

    @property
    def _traffic(self) -> tuple[float, float]:
        """Models that each device downloads and uploads: one, and what the rules send beside it."""
        carries = 1.0 + self.aggregate.weights.carries
        return carries, carries + self.pace.gradients

    def _moved(self, snapshot: Snapshot) -> float:
        """Bytes that a task moves, in exchanges of one model down and one up."""
        (down, up), one_way = self._traffic, (snapshot.bytes_down, snapshot.bytes_up)
        return (down * one_way[0] + up * one_way[1]) / max(sum(one_way), 1)

    def _candidates(self, state: MethodState, snapshot: Snapshot) -> tuple[Candidates, Codes]:
        """Who may be chosen at what cost, and why the others may not."""
        among = self._price(state, snapshot, self.pace.tempo(state.pace))
        reason = self._rule_out(state, among)
        return replace(among, mask=reason == Reason.CHOSEN), reason

    def _price(self, state: MethodState, snapshot: Snapshot, tempo: Tempo) -> Candidates:
        """The task of this round on every device: seconds and joules, at the current prices."""
        task_s, task_j = predict(snapshot, tempo.steps, self._moved(snapshot))
        prices = state.spending
        return Candidates(
            snapshot,
            snapshot.reason == Reason.CHOSEN,
            task_s,
            task_j,
            tempo,
            prices.price_s,
            prices.price_j,
            prices.price_b,
        )

    def _rule_out(self, state: MethodState, among: Candidates) -> Codes:
        """Reason codes: the world's, then battery, deadline and budget; the first that applies stays."""
        snapshot = among.snapshot
        reason = snapshot.reason.copy()
        spare = snapshot.battery_j
        if reserve := self.cohort.battery_reserve:
            powered = np.isfinite(snapshot.capacity_j)
            spare = np.subtract(
                spare, np.float32(reserve) * snapshot.capacity_j, out=spare.copy(), where=powered
            )
        # Scores leave the probe out (it is the same few forward passes for all); what a device can bear must not.
        task_s, task_j = with_probe(snapshot, self.local, among.task_s, among.task_j)
        checks: tuple[tuple[Reason, Bools], ...] = (
            (Reason.BATTERY, task_j >= spare),
            (Reason.DEADLINE, task_s > self.cohort.deadline_s),
            (Reason.BUDGET, task_j > self.budget.left_j(state.spending)),
        )
        for code, hit in checks:
            if hit.any():
                reason[(reason == Reason.CHOSEN) & hit] = code
        return reason

    def _weigh(self, state: MethodState, tempo: Tempo) -> Weigh:
        rule, rule_state, plain = self.aggregate.weights, state.aggregate.weights, self.pace.sums

        def weigh(reports: Reports) -> Floats:
            row = rule.weigh(rule_state, reports, tempo)
            # The pace wants the plain sum; where all weights are alike, row 0 is that sum but for a factor.
            return np.stack([row, np.ones_like(row)]) if plain and np.ptp(row) > 0 else row[None]

        return weigh

    def learn(self, state: MethodState, snapshot: Snapshot, plan: Plan, outcomes: Outcomes) -> MethodState:
        """All four choices and the budgets after a round."""
        enough = outcomes.delivered.sum() >= self.cohort.quorum
        return MethodState(
            self.select.learn(self.select.see(state.select, snapshot), outcomes),
            self.pace.learn(state.pace, snapshot, plan, outcomes, _plain_sum(outcomes, self.pace.sums)),
            self.aggregate.learn(state.aggregate, outcomes, self.local.lr) if enough else state.aggregate,
            self.budget.learn(state.spending, snapshot, outcomes, starved=_starved(plan)),
        )

    def stop(self, state: MethodState) -> str:
        """A budget for the whole run that is spent ends it."""
        return self.budget.spent(state.spending)

    @property
    def served(self) -> str:
        """Which model is published: `last` or `ema`."""
        return self.aggregate.serve

    def models(self, state: MethodState) -> Mapping[str, Params]:
        """The server's models by name."""
        return self.aggregate.models(state.aggregate)


def _starved(plan: Plan) -> bool:
    """Nobody was chosen, and somebody could have been but for the budget."""
    return not plan.chosen.size and bool((plan.reason == Reason.BUDGET).any())


def _plain_sum(outcomes: Outcomes, wanted: bool) -> Floats | None:
    """Sum of the counted updates with weight one each, or None when nothing counted."""
    trained = outcomes.trained
    if not wanted or not trained.weights.any():
        return None
    weights = trained.weights[-1]
    return np.asarray(trained.sums[-1], np.float64) / float(weights[weights != 0][0])
