"""How a block of devices is trained: chosen from the model and the configuration, never from the clock.

A choice by measured time could differ between two machines, or before and after a resume, and with it the
last bits of a result. So the limits below were measured once (benchmarks/engines.py) and are rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor

from eiffel.train.bank import Bank
from eiffel.train.closed import Closed, dense
from eiffel.train.flat import Flat
from eiffel.train.many import Many, obstacle
from eiffel.train.ordinary import Ordinary
from eiffel.train.task import Task

DENSE = 250_000  # parameters up to which the closed form wins on a CPU
SMALL = 30_000  # parameters up to which vmap wins on a CPU
CACHE = 2**20  # parameters of all devices of a chunk together: more fall out of the cache


class Path(Protocol):
    """Trains blocks. `least`: devices below which a block is too small to be worth cutting off."""

    @property
    def least(self) -> int:
        """Devices trained at the same time."""
        ...

    def block(self, start: Tensor, task: Task, sums: Tensor, full: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `Ordinary.block`."""
        ...


def choose(flat: Flat, bank: Bank, own: bool, settings: Mapping[str, Any]) -> tuple[Path, str]:
    """The path for this model and why, in a line. `own`: a user's module. Keys: path, chunk, device.

    Raises ValueError for a path that does not exist or cannot train this model.
    """
    asked, gpu = str(settings.get("path") or "auto"), flat.weights.is_cuda
    chunk = int(settings.get("chunk") or 25)
    chunk = chunk if gpu else max(1, min(chunk, CACHE // flat.size))
    layers, why_not = dense(flat.module), obstacle(flat.module)
    makers: dict[str, Callable[[], Path]] = {
        "ordinary": lambda: Ordinary(flat, bank, own),
        "closed": lambda: Closed(flat, bank, layers or [], chunk),
        "vmap": lambda: Many(flat, bank, chunk),
    }
    if asked not in (*makers, "auto"):
        raise ValueError(f"engine.path is {asked!r}; it must be auto, {', '.join(makers)}")
    if (asked == "closed" and layers is None) or (asked == "vmap" and why_not):
        why = why_not if asked == "vmap" else "it is no stack of linear layers with ReLU between"
        raise ValueError(f"engine.path {asked} cannot train this model: {why}; take auto")
    name, reason = asked, "as asked"
    if asked == "auto":
        name, reason = _rule(flat.size, layers is not None, why_not, gpu)
    many = "" if name == "ordinary" else f", {chunk} devices at once"
    return makers[name](), f"{name} path{many}: {reason}"


def _rule(size: int, is_dense: bool, why_not: str, gpu: bool) -> tuple[str, str]:
    """Name and reason for `auto`."""
    if is_dense and (gpu or size <= DENSE):
        return "closed", f"{size:,} parameters in linear layers"
    if why_not:
        return "ordinary", why_not
    if gpu or size <= SMALL:
        return "vmap", f"{size:,} parameters"
    return "ordinary", f"{size:,} parameters are too many for the cache"
