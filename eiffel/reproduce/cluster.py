"""Files of kind cluster: worked out by the cluster world, and kept so that a broken-off command goes on."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict
from pathlib import Path

from eiffel import __version__
from eiffel.core.checkpoint import write_atomically
from eiffel.reproduce import results
from eiffel.reproduce.results import Result
from eiffel.reproduce.sims import Cluster
from eiffel.worlds.cluster_sims import Figure, evaluate


def evaluated(sim: Cluster, out: Path, fresh: bool = False) -> Result:
    """The figures of a file, from `out` where the same file was worked out before."""
    key = hashlib.sha256(
        json.dumps([__version__, sim.spec], sort_keys=True, default=str).encode()
    ).hexdigest()
    kept = out / "cluster" / f"{sim.name}-{key[:12]}.json"
    if kept.exists() and not fresh:
        return results.cluster(sim, [_figure(entry) for entry in json.loads(kept.read_text())])
    began = time.process_time()
    data = Path(os.environ.get("EIFFEL_DATA", "data"))
    if "${data}" in json.dumps(sim.spec, default=str) and not (data / "cluster").is_dir():
        where = (
            f"no folder {data / 'cluster'}: set EIFFEL_DATA to the folder that holds cluster/ with the traces"
        )
        return results.without_traces(sim, where)
    figures = evaluate(sim.spec, data)
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(kept, json.dumps([asdict(f) for f in figures]).encode())
    result = results.cluster(sim, figures)
    result.processor = time.process_time() - began
    return result


def _figure(entry: dict[str, object]) -> Figure:
    """A figure as it was kept."""
    return Figure(**(entry | {"measured": tuple(entry["measured"])}))  # type: ignore[arg-type]
