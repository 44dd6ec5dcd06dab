"""Device classes of a fleet card as arrays, one entry per class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eiffel.core.model import Floats

RADIO_MBPS = 10.0
"""The rate at which the cards state a radio's joules per megabyte; they go as one over the rate."""
_NEEDED = ("share", "step_s", "watts", "down_j_mb", "up_j_mb", "link_mbps", "battery_mah", "volts")


@dataclass(frozen=True, slots=True)
class Classes:
    """Figures of C device classes.

    share: (C,) of the fleet, sums to 1. step_s: (C,) seconds of one local step of the reference model.
    step_j: (C,) joules of it. down_j_mb, up_j_mb: (C,) joules per megabyte at 10 Mbit/s.
    link_mbps: (C,) median rate. capacity_j: (C,) joules of a full battery, inf on mains power.
    """

    names: tuple[str, ...]
    share: Floats
    step_s: Floats
    step_j: Floats
    down_j_mb: Floats
    up_j_mb: Floats
    link_mbps: Floats
    capacity_j: Floats


def classes(card: Mapping[str, Any], link_mbps: float) -> Classes:
    """Read the `classes` of a fleet card. ValueError names the class and the field that is wrong.

    `link_mbps` stands in for classes that name no rate of their own.
    """
    if not card:
        raise ValueError("fleet.classes is empty: a fleet needs at least one device class, or a file")
    table = {key: np.array([_number(card, name, key) for name in card]) for key in _NEEDED}
    if not table["share"].sum() > 0:
        raise ValueError("fleet.classes: every share is 0; give at least one class a positive share")
    mah, rate = table["battery_mah"], table["link_mbps"]
    return Classes(
        names=tuple(str(name) for name in card),
        share=table["share"] / table["share"].sum(),
        step_s=table["step_s"],
        step_j=table["step_s"] * table["watts"],
        down_j_mb=table["down_j_mb"],
        up_j_mb=table["up_j_mb"],
        link_mbps=np.where(np.isnan(rate), link_mbps, rate),
        capacity_j=np.where(np.isnan(mah), np.inf, mah * 3.6 * table["volts"]),
    )


def _number(card: Mapping[str, Any], name: str, key: str) -> float:
    """One figure of one class; null becomes NaN where that has a meaning."""
    field = f"fleet.classes.{name}.{key}"
    if key not in card[name]:
        raise ValueError(f"{field} is missing")
    value = card[name][key]
    if value is None and key in ("link_mbps", "battery_mah"):
        return np.nan
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not (np.isfinite(number) and (number > 0 or (key == "share" and number == 0))):
        raise ValueError(f"{field} is {value!r}; it must be a positive number")
    return number
