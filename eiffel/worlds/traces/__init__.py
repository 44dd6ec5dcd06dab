"""Workloads and clusters from files or generators, behind two functions: `load_trace` and `load_nodes`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eiffel.core.jobs import Nodes, Trace
from eiffel.worlds.traces import (
    alibaba,
    gavel,
    gavel_generator,
    helios,
    lengths,
    philly,
    shape,
    synthetic,
    table,
    tiresias,
)
from eiffel.worlds.traces.nodes import load_nodes
from eiffel.worlds.traces.options import Options
from eiffel.worlds.traces.reading import TraceError
from eiffel.worlds.traces.shape import stop_early
from eiffel.worlds.traces.table import write

__all__ = ["FORMATS", "TraceError", "load_nodes", "load_trace", "stop_early", "write"]

Read = Callable[[Options, Sequence[str]], Trace]
FORMATS: Mapping[str, tuple[Read, tuple[str, ...]]] = {
    "alibaba": (alibaba.read, alibaba.OPTIONS + lengths.OPTIONS),
    "csv": (table.read, table.OPTIONS + lengths.OPTIONS),
    "gavel": (gavel.read, gavel.OPTIONS),
    "gavel_generator": (gavel_generator.read, gavel_generator.OPTIONS),
    "helios": (helios.read, helios.OPTIONS + lengths.OPTIONS),
    "philly": (philly.read, philly.OPTIONS + lengths.OPTIONS),
    "synthetic": (synthetic.read, synthetic.OPTIONS + lengths.OPTIONS),
    "tiresias": (tiresias.read, tiresias.OPTIONS + lengths.OPTIONS),
}


def load_trace(spec: Mapping[str, Any], types: Sequence[str], nodes: Nodes | None = None) -> Trace:
    """Return the workload that `spec` describes, with rates on the device types `types`.

    spec: `format` (a key of FORMATS), `path` for those that are files, the format's own options (see the
    modules) and those of `shape`. `nodes` is needed only for `load`. Raises TraceError.
    """
    options = Options(spec, "trace")
    read, own = FORMATS[options.choice("format", tuple(FORMATS), "")]
    options.known(("name", "format", *own, *shape.OPTIONS))
    if not types:
        raise TraceError("the cluster has no device types; give it nodes", field="cluster.nodes")
    return shape.shape(read(options, types), options, nodes)
