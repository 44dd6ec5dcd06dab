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

from eiffel.core.costs import DOWN, UP, WORK, drain, probe_steps, progress, steps_done
from eiffel.core.model import (
    Bools,
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
from eiffel.worlds.devices import Fleet

_FATES = np.array([Status.DELIVERED, Status.LEFT, Status.FLAT, Status.SILENT], np.uint8)
_SILENCE = 0x511E17
_JUMPS = 1000


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
        self._exchange_s, self._exchange_j = fleet.exchange()
        self._charging = fleet.charge_w > 0 and bool(fleet.powered.any())
        self._moving = not fleet.timetable.always
        self._seen: Codes | None = None
        self._begin(0.0, fleet.battery_j.astype(np.float64), np.zeros(fleet.size, bool), 0.0)

    def _begin(self, now: float, battery: Floats, flat: Bools, charged: float) -> None:
        """Set the clock and the batteries, with nobody at work."""
        self._now, self._battery, self._flat, self._charged = now, battery, flat, charged
        self._busy: Ints = np.empty(0, np.int64)
        self._busy_until: Floats = np.empty(0)
        self._settled = np.full(battery.size if self._charging else 0, now)
        self._fixed = np.zeros(battery.size, np.uint8)
        self._refresh(slice(None))
        self._on = np.ones(battery.size if self._moving else 0, bool)
        self._change = np.full(battery.size if self._moving else 0, np.inf)
        if self._moving:
            self._look(np.arange(battery.size), np.full(battery.size, now))

    # What the ledger reads.

    @property
    def size(self) -> int:
        """N, the number of devices."""
        return self.fleet.size

    @property
    def now(self) -> float:
        """The virtual clock, seconds."""
        return self._now

    @property
    def battery(self) -> Floats:
        """(N,) joules left (inf on mains power)."""
        return self._battery.copy()

    @property
    def flat(self) -> int:
        """How many devices have ever run flat in the middle of a task."""
        return int(self._flat.sum())

    @property
    def charged(self) -> float:
        """Joules that chargers have put into batteries so far."""
        return self._charged

    # The three calls of the loop.

    def observe(self, round_: int) -> Snapshot | None:
        """The fleet as round `round_` may begin; the clock jumps to the first moment somebody is eligible.

        None when nobody ever will be again: `why` says in words what keeps them.
        """
        for _ in range(_JUMPS):
            self._advance()
            reason = self._reasons()
            if not reason.all():
                self._seen = reason
                return self._snapshot(round_, reason)
            arrival = self._next_arrival()
            if not np.isfinite(arrival):
                break
            self._now = max(arrival, float(np.nextafter(self._now, np.inf)))
        codes, counts = np.unique(self._reasons(), return_counts=True)
        held = "; ".join(f"{n} {Reason(int(c)).text}" for c, n in zip(codes, counts, strict=True))
        self.why = f"no device can take part any more: {held}"
        return None

    def run(self, plan: Plan) -> Outcomes:
        """Carry out a plan. Raises ValueError for one that chooses what the snapshot ruled out."""
        self._check(plan)
        device, steps = np.asarray(plan.chosen, np.int64), np.asarray(plan.steps, np.int64)
        probed = probe_steps(plan.local, self._examples[device])
        seconds, joules = self.fleet.phases(device, steps + probed)
        fate, ended, due = self._fates(plan.round, device, seconds, joules)
        length, status = _close(plan, fate, ended, due)
        share = progress(seconds, ended)
        self._spend(device, seconds * share, joules * share, ended, fate)
        start, self._now = self._now, self._now + (length if length > 0 else self.fleet.idle_s)
        self._occupy(device, start + ended)
        delivered = status == Status.DELIVERED
        trained = self._train(plan, device[delivered], steps[delivered])
        back = np.searchsorted(device, trained.reports.device)
        status[back[~np.isfinite(trained.sumsq)]] = Status.NON_FINITE
        return Outcomes(
            round=plan.round,
            start_s=start,
            end_s=self._now,
            device=device,
            status=status,
            steps=np.where(fate == Status.DELIVERED, steps, steps_done(share[WORK], steps, probed)),
            seconds=ended,
            joules=(joules * share).sum(axis=0),
            bytes_down=np.asarray(share[DOWN] * self.fleet.bytes_down, np.int64),
            bytes_up=np.asarray(share[UP] * self.fleet.bytes_up, np.int64),
            trained=trained,
        )

    def score(self, models: Mapping[str, Params]) -> Mapping[str, Scores]:
        """Measure models on every client's test part."""
        return {name: self.trainer.score(params) for name, params in models.items()}

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to keep; everything else follows from the card and the seed."""
        return {
            "now": self._now,
            "charged": self._charged,
            "battery": self._battery.copy(),
            "flat": self._flat.copy(),
            "settled": self._settled.copy(),
            "busy": self._busy.copy(),
            "busy_until": self._busy_until.copy(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, bit for bit. ValueError if it is of another fleet."""
        battery = np.array(state["battery"], np.float64)
        if battery.shape != self._battery.shape or np.shape(state["settled"]) != self._settled.shape:
            raise ValueError(f"the checkpoint is of {battery.size} devices; this fleet has {self.fleet.size}")
        self._begin(float(state["now"]), battery, np.array(state["flat"], bool), float(state["charged"]))
        self._settled = np.array(state["settled"], np.float64)
        self._busy = np.array(state["busy"], np.int64)
        self._busy_until = np.array(state["busy_until"], np.float64)

    def close(self) -> None:
        """Release the trainer's workers."""
        self.trainer.close()

    # Time and batteries.

    def _advance(self) -> None:
        """Bring presence and batteries up to the clock, touching only devices whose presence changed."""
        if not self._moving:
            return
        rows = np.flatnonzero(self._change <= self._now)
        while rows.size:
            when = self._change[rows]
            self._charge(rows, when)
            self._look(rows, when)
            rows = rows[self._change[rows] <= self._now]
        self._charge(slice(None), self._now)

    def _look(self, rows: Ints, when: Floats) -> None:
        """Note who is available at `when` and when that changes next (always later than `when`)."""
        table = self.fleet.timetable
        on = table.available(rows, when)
        change = np.where(on, table.until(rows, when), table.next_available(rows, when))
        self._on[rows], self._change[rows] = on, np.maximum(change, np.nextafter(when, np.inf))

    def _charge(self, rows: Ints | slice, until: Floats | float) -> None:
        """Charge the batteries of those who are available, from when they were last settled."""
        if not self._charging:
            return
        before = self._battery[rows]
        gain = self._on[rows] * np.maximum(until - self._settled[rows], 0.0) * self.fleet.charge_w
        after = np.minimum(before + gain, self.fleet.capacity_j[rows])
        self._battery[rows] = after
        self._settled[rows] = np.maximum(self._settled[rows], until)
        self._charged += float(np.subtract(after, before, out=np.zeros(after.shape), where=gain > 0).sum())
        self._refresh(rows)

    def _refresh(self, rows: Ints | slice) -> None:
        """Recompute what rules a device out whatever the hour: no data, or a battery at its floor."""
        capacity = self.fleet.capacity_j[rows]
        floor = np.multiply(
            capacity, self.fleet.floor, out=np.zeros(capacity.shape), where=np.isfinite(capacity)
        )
        low = np.where(self._battery[rows] <= floor, np.uint8(Reason.BATTERY), np.uint8(0))
        self._fixed[rows] = np.where(self._examples[rows] > 0, low, np.uint8(Reason.NO_DATA))

    def _reasons(self) -> Codes:
        """(N,) why the world rules a device out now, 0 for candidates."""
        reason = self._fixed.copy()
        if self._moving:
            reason[~self._on & (reason == 0)] = Reason.OFFLINE
        working = self._busy_until > self._now
        self._busy, self._busy_until = self._busy[working], self._busy_until[working]
        reason[self._busy[reason[self._busy] == 0]] = Reason.BUSY
        return reason

    def _next_arrival(self) -> float:
        """A moment after now before which nobody can become a candidate (inf: nobody ever will)."""
        ready = np.full(self.fleet.size, self._now)
        if self._moving:
            ready = np.where(self._on, self._now, self._change)
        ready[self._fixed == Reason.NO_DATA] = np.inf
        low = np.flatnonzero(self._fixed == Reason.BATTERY)
        if self._charging:
            # One second of charging more than it takes to reach the floor is above it.
            lacking = self.fleet.floor * self.fleet.capacity_j[low] - self._battery[low]
            ready[low] += lacking / self.fleet.charge_w + 1.0
        else:
            ready[low] = np.inf
        np.maximum.at(ready, self._busy, self._busy_until)
        return float(ready.min())

    def _snapshot(self, round_: int, reason: Codes) -> Snapshot:
        """The fleet now. The arrays of figures that never change are the world's own: read only."""
        return Snapshot(
            round=round_,
            now=self._now,
            reason=reason,
            examples=self._examples,
            step_s=self.fleet.step_s,
            step_j=self.fleet.step_j,
            exchange_s=self._exchange_s,
            exchange_j=self._exchange_j,
            battery_j=self._battery.astype(np.float32),
            capacity_j=self.fleet.capacity_j,
            bytes_down=self.fleet.bytes_down,
            bytes_up=self.fleet.bytes_up,
        )

    # A round.

    def _check(self, plan: Plan) -> None:
        """Refuse a plan that no policy may make."""
        chosen = np.asarray(plan.chosen)
        if chosen.size and (chosen.min() < 0 or chosen.max() >= self.fleet.size):
            raise ValueError(f"plan of round {plan.round}: devices must lie in 0..{self.fleet.size - 1}")
        if (np.diff(chosen) <= 0).any() or np.shape(plan.steps) != chosen.shape:
            raise ValueError(f"plan of round {plan.round}: devices must ascend, each with its local steps")
        ruled_out = np.flatnonzero(self._seen[chosen]) if self._seen is not None else chosen[:0]
        if ruled_out.size:
            device = int(chosen[ruled_out[0]])
            why = Reason(int(self._seen[device])).text if self._seen is not None else ""
            raise ValueError(f"plan of round {plan.round}: chooses device {device}, ruled out: {why}")

    def _fates(
        self, round_: int, device: Ints, seconds: Floats, joules: Floats
    ) -> tuple[Codes, Floats, Floats]:
        """(K,) what becomes of each task, (K,) seconds until it does, (K,) seconds the whole task takes."""
        due = seconds.sum(axis=0)
        leave = np.full(due.shape, np.inf)
        if self._moving:
            leave = self.fleet.timetable.until(device, self._now) - self._now
        _, flat = drain(self._battery[device], self._capacity(device), self.fleet.charge_w, seconds, joules)
        luck = chance(self._seed, round_, device, _SILENCE)
        dropout = self.fleet.dropout
        silent = np.divide(luck, dropout, out=np.full(due.shape, np.inf), where=luck < dropout) * due
        times = np.stack([due, leave, flat, silent])
        which = times.argmin(axis=0)
        return _FATES[which], times.min(axis=0), due

    def _capacity(self, device: Ints) -> Floats:
        """(K,) joules of full batteries."""
        return self.fleet.capacity_j[device].astype(np.float64)

    def _spend(self, device: Ints, seconds: Floats, joules: Floats, ended: Floats, fate: Codes) -> None:
        """Draw what the tasks took from the batteries, less what chargers gave meanwhile."""
        before, watts = self._battery[device], self.fleet.charge_w
        after, _ = drain(before, self._capacity(device), watts, seconds, joules)
        after[fate == Status.FLAT] = 0.0
        self._battery[device] = after
        self._flat[device[fate == Status.FLAT]] = True
        if self._charging:
            powered = np.isfinite(after)
            self._charged += float((after - before + joules.sum(axis=0))[powered].sum())
            self._settled[device] = self._now + ended
        self._refresh(device)

    def _occupy(self, device: Ints, until: Floats) -> None:
        """Keep those busy who are not done when the round ends."""
        late = until > self._now
        self._busy = np.concatenate([self._busy, device[late]])
        self._busy_until = np.concatenate([self._busy_until, until[late]])

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


def _nothing(params: int) -> Trained:
    """No update at all."""
    none, no = np.empty(0, np.int64), np.empty(0)
    reports = Reports(device=none, examples=none, steps=none, loss=no, first_loss=no)
    return Trained(reports, no, np.empty((1, 0)), np.zeros((1, params), np.float32))
