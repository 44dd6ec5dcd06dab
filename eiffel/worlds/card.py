"""What a fleet card must hold: every key, and which numbers make sense."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Rule = tuple[Callable[[float], bool], str]
_ANY: Rule = (lambda value: True, "a number")
_POSITIVE: Rule = (lambda value: value > 0, "a positive number")
_NOT_NEGATIVE: Rule = (lambda value: value >= 0, "0 or more")
_SHARE: Rule = (lambda value: 0 <= value <= 1, "between 0 and 1")
_BELOW_ONE: Rule = (lambda value: 0 <= value < 1, "0 or more and below 1")
_WHOLE: Rule = (lambda value: value >= 0 and value == int(value), "a whole number, 0 or more")
_COUNT: Rule = (lambda value: value >= 1 and value == int(value), "a whole number, at least 1")

NUMBERS: dict[str, Rule] = {
    "size": _COUNT,
    "seed": _WHOLE,
    "reference_params": _POSITIVE,
    "speed.sigma": _NOT_NEGATIVE,
    "speed.exponent": _ANY,
    "speed.sigma_j": _NOT_NEGATIVE,
    "link.mbps": _POSITIVE,
    "link.sigma": _NOT_NEGATIVE,
    "link.low": _POSITIVE,
    "link.high": _POSITIVE,
    "link.up_share": _POSITIVE,
    "overhead_s": _NOT_NEGATIVE,
    "overhead_j": _NOT_NEGATIVE,
    "dropout": _SHARE,
    "idle_s": _POSITIVE,
    "battery.capacity_j": _POSITIVE,
    "battery.rounds": _POSITIVE,
    "battery.floor": _BELOW_ONE,
    "availability.charge_w": _NOT_NEGATIVE,
    "availability.plug_h": _ANY,
    "availability.plug_sd_h": _NOT_NEGATIVE,
    "availability.hours": _POSITIVE,
    "availability.hours_sd": _NOT_NEGATIVE,
    "availability.night_sd_h": _NOT_NEGATIVE,
    "availability.skip": _SHARE,
    "availability.days": _COUNT,
}
NULLABLE = ("size", "seed", "reference_params", "battery.capacity_j", "battery.rounds")
OTHER = (
    "name",
    "file",
    "capacity_trace",
    "battery.initial",
    "availability.kind",
    "availability.path",
    "classes",
)


def check_card(card: Mapping[str, Any]) -> None:
    """Raise ValueError, naming the key, for a card that lacks one, has one too many, or a wrong number."""
    found = dict(_flat(card, ""))
    known = {*NUMBERS, *OTHER}
    if missing := sorted(known - set(found)):
        raise ValueError(f"fleet.{missing[0]} is missing; conf/fleet/phones.yaml lists every key")
    if unknown := sorted(set(found) - known):
        raise ValueError(f"fleet.{unknown[0]} is not known; the keys are {', '.join(sorted(known))}")
    for key, rule in NUMBERS.items():
        if not (found[key] is None and key in NULLABLE):
            _number(f"fleet.{key}", found[key], rule)
    _order("fleet.battery.initial", found["battery.initial"], _SHARE)
    _order("fleet.link: [low, high]", (found["link.low"], found["link.high"]), _POSITIVE)


def _flat(card: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Dotted keys of a card; the classes are left to the catalogue."""
    for key, value in card.items():
        if isinstance(value, Mapping) and key != "classes":
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _number(name: str, value: Any, rule: Rule) -> None:
    """Refuse what is no finite number, or none that the rule allows."""
    test, need = rule
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (is_number and test(value)):
        raise ValueError(f"{name} is {value!r}; it must be {need}")


def _order(name: str, pair: Any, rule: Rule) -> None:
    """Refuse what is not two numbers, the smaller first."""
    if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
        raise ValueError(f"{name} is {pair!r}; it must be two numbers, such as [0.2, 1.0]")
    for value in pair:
        _number(name, value, rule)
    if pair[0] > pair[1]:
        raise ValueError(f"{name} is {list(pair)!r}; the smaller number comes first")
