"""Eiffel in a Flower app, and Flower under Eiffel. The public names; each is imported when it is asked for.

Strategy      our strategies behind Flower's Message API: replaces FedAvg in an existing ServerApp
EiffelGrid    an in-process grid that runs any ClientApp
client        our ClientApp around a recipe; `own` makes a recipe's site from a module and samples
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eiffel.flower.client_app import client as client
    from eiffel.flower.grid import EiffelGrid as EiffelGrid
    from eiffel.flower.site import Site as Site
    from eiffel.flower.site import own as own
    from eiffel.flower.strategy import Strategy as Strategy

_WHERE = {
    "EiffelGrid": "eiffel.flower.grid",
    "Site": "eiffel.flower.site",
    "client": "eiffel.flower.client_app",
    "Strategy": "eiffel.flower.strategy",
    "own": "eiffel.flower.site",
}

__all__ = ["EiffelGrid", "Site", "Strategy", "client", "own"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
