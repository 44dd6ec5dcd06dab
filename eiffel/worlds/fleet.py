"""A simulated fleet on a virtual clock: what a plan costs every device, who answers, and who is lost.

The world decides by physics first who would deliver, then has only those trained. A task runs through its
phases (core/costs.py) until the first of: it is done, its device leaves, its battery is empty, it falls
silent. The server notices a device that leaves or runs flat when that happens; for a silent one it waits
until the deadline or, without one, until the answer was due. The round ends when every fate is known, when
`wait_for` answers are in, or at the deadline. The others learn nothing of it: they work on, spend, and are
busy until they are done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.core.costs import DOWN, UP, WORK, probe_steps, progress, steps_done
from eiffel.core.model import (
    Codes,
    Floats,
    Ints,
    Outcomes,
    Params,
    Plan,
    Reason,
    Reports,
    Scores,
    Snapshot,
    Status,
    Trained,
    Trainer,
)
from eiffel.worlds.chance import chance
from eiffel.worlds.condition import Condition
from eiffel.worlds.devices import Fleet

_FATES = np.array([Status.DELIVERED, Status.LEFT, Status.FLAT, Status.SILENT], np.uint8)
_SILENCE = 0x511E17
_JUMPS = 1000
_PATIENCE = 10
"""Rounds in which nobody is chosen, after which a fleet that cannot change by itself ends the run."""


class FleetWorld:
    """N simulated devices that train with `trainer`, device i on `examples[i]` (N,) samples.

    seed: the run's; a round's chances are a function of (seed, round, device). why: in words, why `observe`
    returned None. Raises ValueError where examples do not fit the fleet.
    """

    def __init__(self, fleet: Fleet, trainer: Trainer, examples: NDArray[np.integer], *, seed: int) -> None:
        if examples.shape != (fleet.size,):
            raise ValueError(f"examples has shape {examples.shape}; the fleet has {fleet.size} devices")
        self.fleet, self.trainer, self.why = fleet, trainer, ""
        self._seed = seed
        self._examples = np.asarray(examples, np.int32)
        seconds, joules = fleet.exchange()
        self._figures = {
            "examples": _locked(self._examples),
            "step_s": _locked(fleet.step_s),
            "step_j": _locked(fleet.step_j),
            "exchange_s": _locked(seconds),
            "exchange_j": _locked(joules),
            "capacity_j": _locked(fleet.capacity_j),
        }
        self._condition = Condition(fleet, self._examples)
        self._seen: Codes | None = None
        self._idle = 0

    # What the ledger reads.

    @property
    def size(self) -> int:
        """N, the number of devices."""
        return self.fleet.size

    @property
    def now(self) -> float:
        """The virtual clock, seconds."""
        return self._condition.now

    @property
    def battery(self) -> Floats:
        """(N,) joules left (inf on mains power)."""
        return self._condition.battery.copy()

    @property
    def flat(self) -> int:
        """How many devices have ever run flat in the middle of a task."""
        return int(self._condition.flat.sum())

    @property
    def charged(self) -> float:
        """Joules that chargers have put into batteries so far."""
        return self._condition.charged

    # The three calls of the loop.

    def observe(self, round_: int) -> Snapshot | None:
        """The fleet as round `round_` may begin; the clock jumps to the first moment somebody is eligible.

        None when nobody ever will be again: `why` says in words what keeps them.
        """
        condition, end = self._condition, f"no device was ready after {_JUMPS} jumps of the clock"
        for _ in range(_JUMPS):
            condition.advance()
            reason = condition.reasons()
            if self._idle >= _PATIENCE and condition.still:
                end = f"nobody was chosen in {self._idle} rounds, and the fleet will not change"
                break
            if not reason.all():
                self._seen = reason
                return self._snapshot(round_, reason)
            arrival = condition.next_arrival()
            if not np.isfinite(arrival):
                end = "no device can take part any more"
                break
            condition.now = max(arrival, float(np.nextafter(condition.now, np.inf)))
        codes, counts = np.unique(condition.reasons(), return_counts=True)
        held = [f"{n} {Reason(int(c)).text}" for c, n in zip(codes, counts, strict=True) if c]
        self.why = "; ".join([end, *held])
        return None

    def run(self, plan: Plan) -> Outcomes:
        """Carry out a plan. Raises ValueError for one that chooses what the snapshot ruled out."""
        self._check(plan)
        device, steps = np.asarray(plan.chosen, np.int64), np.asarray(plan.steps, np.int64)
        probed = probe_steps(plan.local, self._examples[device]) + float(plan.gradients)
        seconds, joules = self.fleet.phases(device, steps + probed)
        moved = {DOWN: plan.downlink, UP: plan.uplink}
        for phase, models in moved.items():
            seconds[phase], joules[phase] = seconds[phase] * models, joules[phase] * models
        fate, ended, due = self._fates(plan, seconds, joules)
        length, status = _close(plan, fate, ended, due)
        share = progress(seconds, ended)
        self._idle = 0 if device.size else self._idle + 1
        start = self._condition.now
        self._condition.spend(device, seconds * share, joules * share, fate)
        self._condition.now = start + (length if length > 0 else self.fleet.idle_s)
        self._condition.occupy(device, start + ended)
        delivered = status == Status.DELIVERED
        trained = self._train(plan, device[delivered], steps[delivered])
        back = np.searchsorted(device, trained.reports.device)
        status[back[~np.isfinite(trained.sumsq)]] = Status.NON_FINITE
        return Outcomes(
            round=plan.round,
            start_s=start,
            end_s=self._condition.now,
            device=device,
            status=status,
            steps=np.where(fate == Status.DELIVERED, steps, steps_done(share[WORK], steps, probed)),
            seconds=ended,
            joules=(joules * share).sum(axis=0),
            bytes_down=np.asarray(share[DOWN] * moved[DOWN] * self.fleet.bytes_down, np.int64),
            bytes_up=np.asarray(share[UP] * moved[UP] * self.fleet.bytes_up, np.int64),
            trained=trained,
        )

    def score(self, models: Mapping[str, Params]) -> Mapping[str, Scores]:
        """Measure models on every client's test part."""
        return {name: self.trainer.score(params) for name, params in models.items()}

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to keep; everything else follows from the card and the seed."""
        return {"idle": self._idle, **self._condition.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, bit for bit. ValueError if it is of another fleet."""
        self._condition.restore(state)
        self._idle, self._seen = int(state["idle"]), None

    def close(self) -> None:
        """Release the trainer's workers."""
        self.trainer.close()

    def _snapshot(self, round_: int, reason: Codes) -> Snapshot:
        """The fleet now. Figures that never change are shared by all snapshots, read-only."""
        return Snapshot(
            round=round_,
            now=self._condition.now,
            reason=reason.copy(),
            battery_j=self._condition.battery.astype(np.float32),
            bytes_down=self.fleet.bytes_down,
            bytes_up=self.fleet.bytes_up,
            **self._figures,
        )

    # A round.

    def _check(self, plan: Plan) -> None:
        """Refuse a plan that no policy may make; every plan needs its own snapshot."""
        seen, self._seen = self._seen, None
        if seen is None:
            raise ValueError(f"plan of round {plan.round}: observe the fleet before every plan")
        chosen = np.asarray(plan.chosen)
        if chosen.size and (chosen.min() < 0 or chosen.max() >= self.fleet.size):
            raise ValueError(f"plan of round {plan.round}: devices must lie in 0..{self.fleet.size - 1}")
        if (np.diff(chosen) <= 0).any() or np.shape(plan.steps) != chosen.shape:
            raise ValueError(f"plan of round {plan.round}: devices must ascend, each with its local steps")
        if (ruled_out := chosen[seen[chosen] != Reason.CHOSEN]).size:
            why = Reason(int(seen[ruled_out[0]])).text
            raise ValueError(f"plan of round {plan.round}: chooses device {ruled_out[0]}, which is {why}")

    def _fates(self, plan: Plan, seconds: Floats, joules: Floats) -> tuple[Codes, Floats, Floats]:
        """(K,) what becomes of each task, (K,) seconds until it does, (K,) seconds the whole task takes."""
        due = np.cumsum(seconds, axis=0)[-1]
        leave = self._condition.leaves(plan.chosen)
        _, flat = self._condition.drain(plan.chosen, seconds, joules)
        luck = chance(self._seed, plan.round, plan.chosen, _SILENCE + plan.probing)
        fallen, dropout = luck < self.fleet.dropout, self.fleet.dropout
        silent = np.divide(luck, dropout, out=np.full(due.shape, np.inf), where=fallen) * due
        times = np.stack([due, leave, flat, silent])
        return _FATES[times.argmin(axis=0)], times.min(axis=0), due

    def _train(self, plan: Plan, device: Ints, steps: Ints) -> Trained:
        """What training yields on the devices that deliver."""
        if not device.size:
            return _nothing(self.trainer.size)
        return self.trainer.train(plan, device, steps, self._seed)


def _close(plan: Plan, fate: Codes, ended: Floats, due: Floats) -> tuple[float, Codes]:
    """Seconds after which the round ends, and (K,) statuses as the server sees them then.

    Among answers that come at the same moment, the device with the smaller index is first.
    """
    if not fate.size:
        return 0.0, fate
    answers = fate == Status.DELIVERED
    arrival = np.where(answers, ended, np.inf)
    order = np.argsort(arrival, kind="stable")
    enough = arrival[order[plan.wait_for - 1]] if 0 < plan.wait_for <= fate.size else np.inf
    given_up = plan.deadline_s if np.isfinite(plan.deadline_s) else due
    known = np.where(fate == Status.SILENT, given_up, ended)
    length = float(min(enough, plan.deadline_s, known.max()))
    rank = np.empty(fate.size, np.int64)
    rank[order] = np.arange(fate.size)
    in_time = answers & (ended <= length) & ((rank < plan.wait_for) | (plan.wait_for <= 0))
    lost = ~answers & (ended <= length)
    rest = Status.SURPLUS if enough <= plan.deadline_s else Status.LATE
    return length, np.where(in_time | lost, fate, np.uint8(rest))


def _locked(figures: NDArray[Any]) -> NDArray[Any]:
    """The same memory, but read-only."""
    view = figures.view()
    view.flags.writeable = False
    return view


def _nothing(params: int) -> Trained:
    """No update at all."""
    none, no = np.empty(0, np.int64), np.empty(0)
    reports = Reports(device=none, examples=none, steps=none, loss=no, first_loss=no)
    return Trained(reports, no, np.empty((1, 0)), np.zeros((1, params), np.float32))
