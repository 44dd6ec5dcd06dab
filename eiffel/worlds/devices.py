"""A fleet: N simulated devices as arrays, drawn from the classes of a card, from a trace, or from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.core.costs import model_bytes, radio_joules, radio_seconds
from eiffel.core.model import Bools, Codes, Floats, Ints, generator
from eiffel.worlds.availability import Timetable, always, nightly
from eiffel.worlds.card import check_card
from eiffel.worlds.catalogue import RADIO_MBPS, Classes, classes
from eiffel.worlds.fedscale import read_availability, read_capacity
from eiffel.worlds.roster import Roster, read_roster

ROUND_STEPS = 50
"""Local steps of the round that `battery.rounds` counts in."""
_STREAM = 0xF1EE7


@dataclass(frozen=True, slots=True)
class Fleet:
    """N devices and the model they will carry.

    kind: (N,) index into `kinds`. step_s, step_j: (N,) seconds and joules of a local step of this model.
    down_mbps, up_mbps: (N,) megabits a second. down_j_mb, up_j_mb: (N,) joules per megabyte at that rate.
    capacity_j, battery_j: (N,) joules when full and at the start (inf on mains power).
    charge_w: watts into a battery while its device is available (0: batteries are never charged).
    floor: share of capacity at or below which a device is no candidate. dropout: probability that a chosen
    device falls silent. overhead_s, overhead_j: of every exchange. idle_s: length of an empty round.
    bytes_down, bytes_up: of one download and one upload.
    """

    name: str
    kinds: tuple[str, ...]
    kind: Codes
    step_s: NDArray[np.float32]
    step_j: NDArray[np.float32]
    down_mbps: NDArray[np.float32]
    up_mbps: NDArray[np.float32]
    down_j_mb: NDArray[np.float32]
    up_j_mb: NDArray[np.float32]
    capacity_j: NDArray[np.float32]
    battery_j: NDArray[np.float32]
    timetable: Timetable
    bytes_down: int
    bytes_up: int
    charge_w: float = 0.0
    floor: float = 0.0
    dropout: float = 0.0
    overhead_s: float = 0.0
    overhead_j: float = 0.0
    idle_s: float = 60.0

    @property
    def size(self) -> int:
        """N, the number of devices."""
        return int(self.kind.size)

    @property
    def powered(self) -> Bools:
        """(N,) whether a device runs on a battery."""
        return np.isfinite(self.capacity_j)

    def phases(self, device: Ints, work: Floats) -> tuple[Floats, Floats]:
        """(4, K) seconds and joules of the phases of a task of `work` (K,) local steps on `device` (K,)."""
        seconds = (
            np.full(work.shape, self.overhead_s),
            radio_seconds(self.bytes_down, self.down_mbps[device]),
            work * self.step_s[device],
            radio_seconds(self.bytes_up, self.up_mbps[device]),
        )
        joules = (
            np.full(work.shape, self.overhead_j),
            radio_joules(self.bytes_down, self.down_j_mb[device]),
            work * self.step_j[device],
            radio_joules(self.bytes_up, self.up_j_mb[device]),
        )
        return np.stack(seconds), np.stack(joules)

    def exchange(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(N,) seconds and joules of one download and one upload."""
        seconds = radio_seconds(self.bytes_down, self.down_mbps)
        seconds += radio_seconds(self.bytes_up, self.up_mbps) + self.overhead_s
        joules = radio_joules(self.bytes_down, self.down_j_mb)
        joules += radio_joules(self.bytes_up, self.up_j_mb) + self.overhead_j
        return seconds.astype(np.float32), joules.astype(np.float32)

    def take(self, order: Ints) -> Fleet:
        """The fleet of the devices `order`, in that order."""
        names = ("kind", "step_s", "step_j", "down_mbps", "up_mbps", "down_j_mb", "up_j_mb")
        moved = {name: getattr(self, name)[order] for name in (*names, "capacity_j", "battery_j")}
        return replace(self, timetable=self.timetable.take(order), **moved)


def build_fleet(card: Mapping[str, Any], size: int, params: int, seed: int) -> Fleet:
    """The fleet that a card describes: `size` devices that train a model of `params` parameters.

    Draws come from streams of their own (the card's seed, else `seed`), one for each figure, so that
    changing one part of a card leaves the others as they were. Raises ValueError naming the key.
    """
    check_card(card)
    if size < 1:
        raise ValueError(f"a fleet of {size} devices: it needs at least one")
    own = int(seed if card["seed"] is None else card["seed"])
    rows = _roster(card, size, own)
    scale = 1.0 if card["reference_params"] is None else params / float(card["reference_params"])
    down, up = model_bytes(params)
    fleet = Fleet(
        name=str(card["name"]),
        kinds=rows.kinds,
        kind=rows.kind,
        step_s=np.asarray(rows.step_s * scale, np.float32),
        step_j=np.asarray(rows.step_j * scale, np.float32),
        down_mbps=rows.down_mbps,
        up_mbps=rows.up_mbps,
        down_j_mb=rows.down_j_mb,
        up_j_mb=rows.up_j_mb,
        capacity_j=rows.capacity_j,
        battery_j=rows.battery_j,
        timetable=_timetable(card["availability"], size, generator(own, 4, _STREAM)),
        bytes_down=down,
        bytes_up=up,
        charge_w=0.0 if card["availability"]["kind"] == "always" else float(card["availability"]["charge_w"]),
        floor=float(card["battery"]["floor"]),
        **{key: float(card[key]) for key in ("dropout", "overhead_s", "overhead_j", "idle_s")},
    )
    return _charged(fleet, card["battery"], generator(own, 3, _STREAM))


def _roster(card: Mapping[str, Any], size: int, seed: int) -> Roster:
    """What every device can do, for the reference model: from a file, or drawn from classes."""
    if card["file"] is not None:
        return read_roster(str(card["file"]), size)
    table = classes(card["classes"], float(card["link"]["mbps"]))
    kind = generator(seed, 0, _STREAM).choice(len(table.names), size=size, p=table.share)
    slower = generator(seed, 1, _STREAM).lognormal(0.0, card["speed"]["sigma"], size)
    mbps = table.link_mbps[kind] * generator(seed, 2, _STREAM).lognormal(0.0, card["link"]["sigma"], size)
    if card["capacity_trace"] is not None:
        pace, traced = read_capacity(str(card["capacity_trace"]), size, generator(seed, 6, _STREAM))
        slower, mbps = pace, traced
    hungry = generator(seed, 5, _STREAM).lognormal(0.0, card["speed"]["sigma_j"], size)
    return _drawn(table, card, kind, slower, hungry, mbps)


def _drawn(
    table: Classes, card: Mapping[str, Any], kind: Ints, slower: Floats, hungry: Floats, mbps: Floats
) -> Roster:
    """Devices of class `kind`, `slower` times slower and, beyond that, `hungry` times hungrier than it."""
    down = np.clip(mbps, card["link"]["low"], card["link"]["high"]).astype(np.float32)
    share = float(card["link"]["up_share"])
    up = down if share == 1.0 else down * np.float32(share)
    down_j = (table.down_j_mb[kind] * RADIO_MBPS / down).astype(np.float32)
    alike = share == 1.0 and bool((table.down_j_mb == table.up_j_mb).all())
    capacity = table.capacity_j[kind].astype(np.float32)
    return Roster(
        kinds=table.names,
        kind=kind.astype(np.uint8),
        step_s=(table.step_s[kind] * slower).astype(np.float32),
        step_j=(table.step_j[kind] * slower ** float(card["speed"]["exponent"]) * hungry).astype(np.float32),
        down_mbps=down,
        up_mbps=up,
        down_j_mb=down_j,
        up_j_mb=down_j if alike else (table.up_j_mb[kind] * RADIO_MBPS / up).astype(np.float32),
        capacity_j=capacity,
        battery_j=np.full(0, np.nan, np.float32),
    )


def _charged(fleet: Fleet, card: Mapping[str, Any], rng: np.random.Generator) -> Fleet:
    """Size the batteries as the card says, and charge those that have no charge of their own."""
    capacity = np.array(fleet.capacity_j)
    if card["rounds"] is not None:
        _, joules = fleet.phases(np.arange(fleet.size), np.full(fleet.size, float(ROUND_STEPS)))
        capacity[fleet.powered] = float(card["rounds"]) * np.median(joules.sum(axis=0))
    elif card["capacity_j"] is not None:
        capacity[fleet.powered] = float(card["capacity_j"])
    low, high = card["initial"]
    drawn = rng.uniform(low, high, fleet.size).astype(np.float32)
    own = fleet.battery_j if fleet.battery_j.size else np.full(fleet.size, np.nan, np.float32)
    level = np.where(
        np.isnan(own), np.where(fleet.powered, drawn * np.where(fleet.powered, capacity, 0), np.inf), own
    )
    return replace(fleet, capacity_j=capacity, battery_j=np.minimum(level, capacity).astype(np.float32))


def _timetable(card: Mapping[str, Any], size: int, rng: np.random.Generator) -> Timetable:
    """When the devices are available."""
    kinds = {
        "always": lambda: always(size),
        "nightly": lambda: nightly(card, size, rng),
        "fedscale": lambda: read_availability(card["path"], size, rng),
    }
    if card["kind"] not in kinds:
        raise ValueError(f"fleet.availability.kind is {card['kind']!r}; it must be one of {', '.join(kinds)}")
    return kinds[card["kind"]]()
