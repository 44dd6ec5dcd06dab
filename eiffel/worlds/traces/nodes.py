"""Clusters: groups of alike nodes, in a config or a YAML file, or the node tables that come with traces."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from eiffel.core.jobs import Nodes
from eiffel.worlds.traces.options import Options
from eiffel.worlds.traces.reading import TraceError, find, first_line, read_table

OPTIONS = ("name", "nodes", "path", "type")
EXAMPLE = "nodes: [{type: v100, nodes: 5, devices: 4}]"


def load_nodes(spec: Mapping[str, Any]) -> Nodes:
    """Return the cluster that `spec` describes. Raises TraceError naming the entry and what it may be.

    nodes  groups of alike nodes: [{type: v100, nodes: 5, devices: 4}, ...]; types are numbered as they occur
    path   instead of nodes, a file: .yaml with such a list, Alibaba's openb_node_list_*.csv (sn, gpu, model),
           or a cluster of Tiresias' simulator (num_switch, num_node_p_switch, num_gpu_p_node; of `type`)
    """
    options = Options(spec, "cluster")
    options.known(OPTIONS)
    if options.given("nodes") == options.given("path"):
        raise options.fault("nodes", f"give either path (a file) or a list of groups, such as {EXAMPLE}")
    if options.given("nodes"):
        return _groups(spec["nodes"], None, ())
    file = find(options.text("path"))
    return _table(file, options.text("type", "gpu")) if file.suffix == ".csv" else _yaml(file)


def _yaml(file: Path) -> Nodes:
    try:
        text = file.read_text(encoding="utf-8")
        spec, tree = yaml.safe_load(text), yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else None
        raise TraceError(f"not YAML: {error}", file=file, line=line) from None
    if not isinstance(spec, dict) or "nodes" not in spec:
        raise TraceError(f"a cluster needs a list of groups, such as {EXAMPLE}", file=file, field="nodes")
    unknown = [str(key) for key in spec if key not in ("name", "nodes")]
    if unknown:
        raise TraceError("no such entry; there are name and nodes", file=file, field=unknown[0])
    listed = next(value for key, value in tree.value if key.value == "nodes")
    lines = [entry.start_mark.line + 1 for entry in listed.value] if isinstance(spec["nodes"], list) else []
    return _groups(spec["nodes"], file, lines)


def _groups(groups: Any, file: Path | None, lines: Sequence[int]) -> Nodes:
    """Make the nodes; `lines` says where in the file each group is."""
    if isinstance(groups, str | Mapping) or not isinstance(groups, Sequence):
        problem = f"{groups!r} is not a list of groups, such as {EXAMPLE}"
        raise TraceError(problem, file=file, field="cluster.nodes")
    index: dict[str, int] = {}
    kind: list[int] = []
    devices: list[int] = []
    for k, group in enumerate(groups):
        try:
            name, count, size = _group(group, f"cluster.nodes[{k}]")
        except TraceError as error:
            line = lines[k] if lines else None
            raise TraceError(error.problem, file=file, line=line, field=error.field) from None
        kind += [index.setdefault(name, len(index))] * count
        devices += [size] * count
    return Nodes(np.array(kind, np.int64), np.array(devices, np.int64), tuple(index))


def _group(group: Any, where: str) -> tuple[str, int, int]:
    if not isinstance(group, Mapping):
        raise TraceError(f"{group!r} is not a group, such as {EXAMPLE}", field=where)
    options = Options(group, where)
    options.known(("type", "nodes", "devices"))
    for key in ("type", "nodes", "devices"):
        options.text(key)
    return options.text("type"), options.whole("nodes", 1), options.whole("devices", 1, low=1)


def _table(file: Path, kind: str) -> Nodes:
    if "num_node_p_switch" in first_line(file):
        table = read_table(file, ("num_switch", "num_node_p_switch", "num_gpu_p_node"))
        count = table.whole("num_switch") * table.whole("num_node_p_switch")
        devices = np.repeat(table.whole("num_gpu_p_node", low=1), count)
        return Nodes(np.zeros(len(devices), np.int64), devices, (kind,))
    table = read_table(file, ("sn", "gpu", "model"))
    table = table.keep(table.whole("gpu") > 0)
    names = [name.lower() for name in table.text("model")]
    index = {name: k for k, name in enumerate(dict.fromkeys(names))}
    return Nodes(np.array([index[name] for name in names], np.int64), table.whole("gpu"), tuple(index))
