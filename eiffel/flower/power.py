"""The battery of the machine this runs on, as Linux (and so Android) shows it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SUPPLIES = Path("/sys/class/power_supply")


@dataclass(frozen=True, slots=True)
class Battery:
    """charge: fraction of capacity. charging: on a charger, or full. capacity_j: joules when full, NaN if unknown."""

    charge: float
    charging: bool
    capacity_j: float = float("nan")


def read_battery(supplies: Path = SUPPLIES) -> Battery | None:
    """The first battery there is; None on mains power, or where the system does not tell."""
    for supply in sorted(supplies.glob("*")):
        if _text(supply / "type") == "Battery" and (charge := _number(supply / "capacity")) is not None:
            charging = _text(supply / "status") in ("Charging", "Full", "Not charging")
            return Battery(charge / 100.0, charging, _capacity(supply))
    return None


def _capacity(supply: Path) -> float:
    """Joules: energy_full is in microwatt-hours; charge_full in microampere-hours, at voltage_now microvolts."""
    if (energy := _number(supply / "energy_full")) is not None:
        return energy * 3600e-6
    charge, volts = _number(supply / "charge_full"), _number(supply / "voltage_now")
    return float("nan") if charge is None or volts is None else charge * volts * 3600e-12


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> float | None:
    try:
        return float(_text(path))
    except ValueError:
        return None
