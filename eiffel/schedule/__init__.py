"""Cluster scheduling policies, one file each, and the table that names them."""

from collections.abc import Callable, Mapping
from typing import Any

from eiffel.core.jobs import Policy
from eiffel.schedule.elas import Elas
from eiffel.schedule.fifo import Fifo, YarnCS
from eiffel.schedule.gavel import Gavel
from eiffel.schedule.hadar import Hadar
from eiffel.schedule.hadare import HadarE
from eiffel.schedule.market import Market
from eiffel.schedule.srtf import Srtf
from eiffel.schedule.tiresias import Tiresias

POLICIES: Mapping[str, Callable[..., Policy]] = {
    "yarn_cs": YarnCS,
    "fifo": Fifo,
    "srtf": Srtf,
    "tiresias": Tiresias,
    "elas": Elas,
    "gavel": Gavel,
    "hadar": Hadar,
    "hadare": HadarE,
    "market": Market,
}


def policy(kind: str, **options: Any) -> Policy:
    """Make a policy by name; `options` are the fields of its class. `hadare` takes `inner`: {kind: ..., ...}.

    Raises ValueError for a name or an option that does not exist.
    """
    if kind not in POLICIES:
        raise ValueError(f"no policy {kind!r}; there are {', '.join(POLICIES)}")
    if isinstance(options.get("inner"), Mapping):
        options["inner"] = policy(**options["inner"])
    made = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    try:
        return POLICIES[kind](**made)
    except TypeError as error:
        raise ValueError(f"policy {kind!r}: {error}") from error


__all__ = ["POLICIES", "policy"]
