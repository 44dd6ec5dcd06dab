"""Which keys `eiffel cluster` has: misspelt ones are errors, and the options of every trace format are known."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from typing import Any

from hydra.core.config_store import ConfigStore

from eiffel.worlds.traces import FORMATS, nodes, shape


@dataclass
class EstimatesConfig:
    """The keys of `estimates`."""

    kind: str = "known"
    error: float = 0.3
    prior: list[float] | None = None


@dataclass
class OutageConfig:
    """The keys of an entry of `outages`."""

    node: int = 0
    down: float = 0.0
    up: float = 0.0


@dataclass
class ClusterConfig:
    """The keys of conf/cluster.yaml; its groups are checked by their own schemas and by what is built of them."""

    strategies: Any = None
    trace: Any = None
    cluster: Any = None
    seed: int = 0
    mode: str = "slot"
    slot_s: float = 360.0
    restart_s: float = 10.0
    efficiency: float | None = None
    consolidate_s: float | None = None
    until_s: float | None = None
    stop_early: float = 0.0
    estimates: EstimatesConfig = field(default_factory=EstimatesConfig)
    outages: list[OutageConfig] = field(default_factory=list)
    bounds: bool = True
    progress: str = "auto"


def register() -> None:
    """Register the schemas with Hydra; may be called more than once.

    A trace may be given any option that some format takes; what its own format does not take is refused when
    the trace is read.
    """
    store = ConfigStore.instance()
    own = {key for _, options in FORMATS.values() for key in options}
    traces = ("name", "format", *sorted(own | set(shape.OPTIONS)))
    schemas = {
        "cluster": ClusterConfig,
        "trace": _optional("TraceConfig", traces),
        "nodes": _optional("NodesConfig", nodes.OPTIONS),
    }
    for name, schema in schemas.items():
        store.store(name=name, node=schema, group="_schema")


def _optional(name: str, keys: tuple[str, ...]) -> type[Any]:
    """A schema of keys that may all be left out."""
    return make_dataclass(name, [(key, Any, field(default=None)) for key in keys])
