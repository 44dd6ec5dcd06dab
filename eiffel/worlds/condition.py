"""The condition of a fleet at a moment: clock, batteries, who is there, who is at work, and how it changes.

Presence is followed, not recomputed: every device has a moment at which it next comes or goes, and advancing
the clock touches only those whose moment has passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.core.costs import drain
from eiffel.core.model import Bools, Codes, Floats, Ints, Reason, Status
from eiffel.worlds.devices import Fleet

_STRETCHES = 1000
"""Of charging, after which a battery that is still low counts as never charged."""


class Condition:
    """N devices with `examples` (N,) training samples each.

    now: virtual seconds. battery: (N,) joules (inf on mains power). flat: (N,) ever ran flat at work.
    charged: joules that chargers have given so far.
    """

    def __init__(self, fleet: Fleet, examples: NDArray[np.integer]) -> None:
        self._fleet, self._examples = fleet, examples
        self._charging = fleet.charge_w > 0 and bool(fleet.powered.any())
        self._moving = not fleet.timetable.always
        self._begin(0.0, fleet.battery_j.astype(np.float64), np.zeros(fleet.size, bool), 0.0)

    def _begin(self, now: float, battery: Floats, flat: Bools, charged: float) -> None:
        """Set the clock, who is there then, and the batteries, with nobody at work."""
        self._followed = now
        self.now, self.battery, self.flat, self.charged = now, battery, flat, charged
        self._busy: Ints = np.empty(0, np.int64)
        self._busy_until: Floats = np.empty(0)
        self._settled = np.full(battery.size if self._charging else 0, now)
        self._fixed = np.zeros(battery.size, np.uint8)
        self._refresh(slice(None))
        self._on = np.ones(battery.size if self._moving else 0, bool)
        self._change = np.full(battery.size if self._moving else 0, np.inf)
        if self._moving:
            self._look(np.arange(battery.size), np.full(battery.size, now))

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to keep; presence follows from the moment up to which it was followed."""
        return {
            "now": self.now,
            "followed": self._followed,
            "charged": self.charged,
            "battery": self.battery.copy(),
            "flat": self.flat.copy(),
            "settled": self._settled.copy(),
            "busy": self._busy.copy(),
            "busy_until": self._busy_until.copy(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, bit for bit. ValueError if it is of another fleet."""
        battery = np.array(state["battery"], np.float64)
        if battery.shape != self.battery.shape or np.shape(state["settled"]) != self._settled.shape:
            raise ValueError(
                f"the checkpoint is of {battery.size} devices; this fleet has {self._fleet.size}"
            )
        self._begin(float(state["followed"]), battery, np.array(state["flat"], bool), float(state["charged"]))
        self.now = float(state["now"])
        self._settled = np.array(state["settled"], np.float64)
        self._busy = np.array(state["busy"], np.int64)
        self._busy_until = np.array(state["busy_until"], np.float64)

    def advance(self) -> None:
        """Bring presence and batteries up to the clock, touching only devices whose presence changed."""
        self._followed = self.now
        if not self._moving:
            return
        rows = np.flatnonzero(self._change <= self.now)
        while rows.size:
            when = self._change[rows]
            self._charge(rows, when)
            self._look(rows, when)
            rows = rows[self._change[rows] <= self.now]
        self._charge(slice(None), self.now)

    def _look(self, rows: Ints, when: Floats) -> None:
        """Note who is available at `when` and when that changes next."""
        self._on[rows], self._change[rows] = self._presence(rows, when)

    def _presence(self, rows: Ints, when: Floats) -> tuple[Bools, Floats]:
        """(K,) who is available at `when`, and when that changes next, which is always later."""
        table = self._fleet.timetable
        on = table.available(rows, when)
        change = np.where(on, table.until(rows, when), table.next_available(rows, when))
        return on, np.maximum(change, np.nextafter(when, np.inf))

    def _charge(self, rows: Ints | slice, until: Floats | float) -> None:
        """Charge the batteries of those who are available, from when they were last settled."""
        if not self._charging:
            return
        before = self.battery[rows]
        gain = self._on[rows] * np.maximum(until - self._settled[rows], 0.0) * self._fleet.charge_w
        after = np.minimum(before + gain, self._fleet.capacity_j[rows])
        powered = np.isfinite(before)
        self.charged += float(np.subtract(after, before, out=gain, where=powered).sum(where=powered))
        self.battery[rows] = after
        self._settled[rows] = np.maximum(self._settled[rows], until)
        self._refresh(rows)

    def _refresh(self, rows: Ints | slice) -> None:
        """Recompute what rules a device out whatever the hour: no data, or a battery at its floor."""
        capacity = self._fleet.capacity_j[rows]
        floor = np.multiply(
            capacity, self._fleet.floor, out=np.zeros(capacity.shape), where=np.isfinite(capacity)
        )
        low = np.where(self.battery[rows] <= floor, np.uint8(Reason.BATTERY), np.uint8(0))
        self._fixed[rows] = np.where(self._examples[rows] > 0, low, np.uint8(Reason.NO_DATA))

    def reasons(self) -> Codes:
        """(N,) why the world rules a device out now, 0 for candidates."""
        reason = self._fixed.copy()
        if self._moving:
            reason[~self._on & (reason == 0)] = Reason.OFFLINE
        working = self._busy_until > self.now
        self._busy, self._busy_until = self._busy[working], self._busy_until[working]
        reason[self._busy[reason[self._busy] == 0]] = Reason.BUSY
        return reason

    @property
    def still(self) -> bool:
        """Whether nothing changes by itself: nobody comes or goes, charges, or is at work."""
        return not (self._moving or (self._busy_until > self.now).any())

    def next_arrival(self) -> float:
        """The first moment after now at which somebody may become a candidate (inf: nobody ever will)."""
        ready = (
            np.where(self._on, self.now, self._change)
            if self._moving
            else np.full(self._fixed.size, self.now)
        )
        ready[self._fixed == Reason.NO_DATA] = np.inf
        low = np.flatnonzero(self._fixed == Reason.BATTERY)
        ready[low] = self._recharged(low) if self._charging else np.inf
        np.maximum.at(ready, self._busy, self._busy_until)
        return float(ready.min())

    def _recharged(self, rows: Ints) -> Floats:
        """(K,) when the batteries of `rows` will be above their floor: charging now, then stretch by stretch."""
        lacking = self._fleet.floor * self._fleet.capacity_j[rows] - self.battery[rows]
        need = lacking / self._fleet.charge_w + 1.0  # a second more than it takes to reach the floor
        ready = np.full(rows.size, np.inf)
        at, on, change = np.full(rows.size, self.now), self._on[rows], self._change[rows]
        open_ = np.arange(rows.size)
        for _ in range(_STRETCHES):
            done = on & (at + need <= change)
            ready[open_[done]] = (at + need)[done]
            going = ~done & np.isfinite(change)
            need = (need - np.where(on, change - at, 0.0))[going]
            open_, at = open_[going], change[going]
            if not open_.size:
                break
            on, change = self._presence(rows[open_], at)
        return ready

    def leaves(self, device: Ints) -> Floats:
        """(K,) seconds for which each device will still be there (inf: for ever)."""
        if not self._moving:
            return np.full(device.shape, np.inf)
        return self._fleet.timetable.until(device, self.now) - self.now

    def drain(self, device: Ints, seconds: Floats, joules: Floats) -> tuple[Floats, Floats]:
        """(K,) joules left after (4, K) phases, and (K,) seconds until a battery is flat (inf: never)."""
        capacity = self._fleet.capacity_j[device].astype(np.float64)
        return drain(self.battery[device], capacity, self._fleet.charge_w, seconds, joules)

    def spend(self, device: Ints, seconds: Floats, joules: Floats, fate: Codes) -> None:
        """Draw from the batteries what (4, K) phases took, less what chargers gave meanwhile."""
        before = self.battery[device]
        after, _ = self.drain(device, seconds, joules)
        after[fate == Status.FLAT] = 0.0
        self.battery[device] = after
        self.flat[device[fate == Status.FLAT]] = True
        if self._charging:
            powered = np.isfinite(after)
            self.charged += float((after[powered] - before[powered] + joules.sum(axis=0)[powered]).sum())
            self._settled[device] = self.now + seconds.sum(axis=0)
        self._refresh(device)

    def occupy(self, device: Ints, until: Floats) -> None:
        """Keep those busy who are not done when the round ends."""
        late = until > self.now
        self._busy = np.concatenate([self._busy, device[late]])
        self._busy_until = np.concatenate([self._busy_until, until[late]])
