"""Clusters: a list of groups of alike nodes, in a config, in a YAML file, or in the tables that come with
traces.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from eiffel.core.jobs import Nodes
from eiffel.worlds.traces.options import Options
from eiffel.worlds.traces.reading import TraceError, find, first_line, read_table

OPTIONS = ("name", "nodes", "path", "type")


def load_nodes(spec: Mapping[str, Any]) -> Nodes:
    """Return the cluster that `spec` describes. Raises TraceError naming the entry and what it may be.

    nodes  groups of alike nodes: [{type: v100, nodes: 5, devices: 4}, ...]; types are numbered as they
    first occur
    path   instead of nodes: a .yaml file with such a list, Alibaba's openb_node_list_*.csv (sn, gpu,
    model), or a
           cluster file of Tiresias' simulator (num_switch, num_node_p_switch, num_gpu_p_node; its GPUs are
           of `type`)
    """
    options = Options(spec, "cluster")
    options.known(OPTIONS)
    if options.given("nodes") == options.given("path"):
        raise options.fault(
            "nodes", "give either nodes (a list of groups) or path (a file), not both or neither"
        )
    if options.given("nodes"):
        return _groups(spec["nodes"], None)
    file = find(options.text("path"))
    return _table(file, options.text("type", "gpu")) if file.suffix == ".csv" else _yaml(file)


def _yaml(file: Path) -> Nodes:
    try:
        spec = OmegaConf.to_container(OmegaConf.load(file), resolve=True)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise TraceError(f"not YAML: {error}", file=file, line=mark.line + 1 if mark else None) from None
    except (OmegaConfBaseException, OSError, UnicodeDecodeError) as error:
        raise TraceError(f"cannot be read: {error}", file=file) from None
    if not isinstance(spec, dict) or "nodes" not in spec:
        example = "nodes: [{type: v100, nodes: 5, devices: 4}]"
        raise TraceError(
            f"a cluster file needs a list of groups, such as {example}", file=file, field="nodes"
        )
    unknown = sorted(str(key) for key in spec if key not in ("name", "nodes"))
    if unknown:
        raise TraceError("no such entry; there are name and nodes", file=file, field=unknown[0])
    return _groups(spec["nodes"], file)


def _groups(groups: Any, file: Path | None) -> Nodes:
    if not isinstance(groups, list) and not hasattr(groups, "_content"):
        raise TraceError(f"{groups!r} is not a list of groups", file=file, field="cluster.nodes")
    kinds: list[str] = []
    type_: list[int] = []
    devices: list[int] = []
    for k, group in enumerate(groups):
        name, count, size = _group(group, f"cluster.nodes[{k}]", file)
        kinds += [name] if name not in kinds else []
        type_ += [kinds.index(name)] * count
        devices += [size] * count
    return Nodes(np.array(type_, np.int64), np.array(devices, np.int64), tuple(kinds))


def _group(group: Any, where: str, file: Path | None) -> tuple[str, int, int]:
    if not isinstance(group, Mapping):
        raise TraceError(f"{group!r} is not a group {{type, nodes, devices}}", file=file, field=where)
    options = Options(group, where)
    try:
        options.known(("type", "nodes", "devices"))
        for key in ("type", "nodes", "devices"):
            options.text(key)
        return options.text("type"), options.whole("nodes", 1), options.whole("devices", 1, low=1)
    except TraceError as error:
        problem = str(error).partition(": ")[2]
        raise TraceError(problem, file=file, field=error.field) from None


def _table(file: Path, type_name: str) -> Nodes:
    columns = first_line(file)
    if "num_node_p_switch" in columns:
        table = read_table(file, ("num_switch", "num_node_p_switch", "num_gpu_p_node"))
        nodes = table.whole("num_switch") * table.whole("num_node_p_switch")
        devices = np.repeat(table.whole("num_gpu_p_node", low=1), nodes)
        return Nodes(np.zeros(len(devices), np.int64), devices, (type_name,))
    table = read_table(file, ("sn", "gpu", "model"))
    table = table.keep(table.whole("gpu") > 0)
    names = table.text("model")
    kinds = tuple(dict.fromkeys(name.lower() for name in names))
    index = {name: k for k, name in enumerate(kinds)}
    return Nodes(np.array([index[name.lower()] for name in names], np.int64), table.whole("gpu"), kinds)
