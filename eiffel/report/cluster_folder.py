"""The folder of a cluster run, written and read back.

    config.yaml       the resolved configuration
    summary.json      what was run, with what, how it ended, its measures and the limits beside them
    jobs.parquet      one row per job: what it was, what became of it, how long it waited for what
    timeline.parquet  one row per decision, which holds until the next
    sittings.parquet  who sat where when
    waits.parquet     a row whenever the reason for which a job waits changed

Times are s of the trace. A damaged or unfinished run is read as one with a `problem`, not an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from eiffel.core.checkpoint import write_atomically
from eiffel.core.jobs import Floats, Nodes, Refusal
from eiffel.report.folder import CONFIG, SUMMARY, plain
from eiffel.report.read import Json, flat, number, read_config, read_summary, section
from eiffel.worlds.cluster_run import ClusterRun
from eiffel.worlds.watch import Waits

JOBS, TIMELINE, SITTINGS, WAITS = "jobs.parquet", "timeline.parquet", "sittings.parquet", "waits.parquet"
REASONS = tuple(reason.name.lower() for reason in Refusal)

Columns = Mapping[str, NDArray[Any]]

__all__ = ["CONFIG", "Saved", "load", "node_groups", "summary", "waited_hours", "write_tables", "write_text"]


def write_text(file: Path, text: str) -> None:
    """Write a text file in one step."""
    write_atomically(file, text.encode())


def summary(path: Path, said: Mapping[str, Any]) -> None:
    """Write summary.json, replacing the one before in one step; figures that are not finite become null."""
    text = json.dumps(plain(said), indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path / SUMMARY, text + "\n")


def write_tables(path: Path, run: ClusterRun, waits: Waits, fair: Floats) -> None:
    """Write the four tables of a run. fair: (J,) s, completion times in isolation."""
    _write(path / JOBS, _jobs(run, fair))
    kinds, line = run.nodes.types, run.timeline
    per_type = {
        f"{name}.{kind}": getattr(line, name)[:, r].astype(np.float32)
        for name in ("busy", "useful", "service")
        for r, kind in enumerate(kinds)
    }
    plain_columns = {
        name: getattr(line, name) for name in ("time", "seconds", "running", "waiting", "decision")
    }
    _write(path / TIMELINE, plain_columns | per_type)
    _write(path / SITTINGS, {f.name: getattr(run.sittings, f.name) for f in fields(run.sittings)})
    small = {"job": np.int32, "why": np.uint8, "limit": np.int16, "free": np.int32}
    _write(
        path / WAITS,
        {f.name: getattr(waits, f.name).astype(small.get(f.name, np.float64)) for f in fields(waits)},
    )


def _jobs(run: ClusterRun, fair: Floats) -> dict[str, Any]:
    """The columns of jobs.parquet."""
    trace, last = run.trace, run.last
    return {
        "job": np.arange(len(trace)),
        "id": np.array(trace.id, dtype=object),
        "model": np.array(trace.model, dtype=object),
        **{name: getattr(trace, name) for name in ("arrival", "work", "gang", "weight")},
        **{name: getattr(run, name) for name in ("start", "finish", "ran", "busy", "done", "lost")},
        **{name: getattr(run, name) for name in ("moves", "preemptions", "refused")},
        "isolated_s": fair,
        **{f"waited.{reason}": run.waited[:, code] for code, reason in enumerate(REASONS)},
        **{f"last.{f.name}": getattr(last, f.name) for f in fields(last)},
    }


def _write(file: Path, columns: Mapping[str, Any]) -> None:
    """One table, in one step; NaN stays NaN, for Parquet knows it."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({name: pa.array(column) for name, column in columns.items()}), sink, compression="zstd"
    )
    write_atomically(file, sink.getvalue().to_pybytes())


def node_groups(nodes: Nodes) -> list[dict[str, Any]]:
    """Runs of alike nodes in their order, as a cluster file lists them."""
    out: list[dict[str, Any]] = []
    for kind, size in zip(nodes.type.tolist(), nodes.devices.tolist(), strict=True):
        name = nodes.types[kind]
        if out and (out[-1]["type"], out[-1]["devices"]) == (name, size):
            out[-1]["nodes"] += 1
        else:
            out.append({"type": name, "nodes": 1, "devices": size})
    return out


def waited_hours(run: ClusterRun) -> dict[str, float]:
    """Hours that all jobs together waited, by reason."""
    return dict(zip(REASONS, (run.waited.sum(axis=0) / 3600).tolist(), strict=True))


@dataclass(frozen=True)
class Saved:
    """A cluster run as its folder tells it. problem: why it is not whole, in words, or None."""

    path: Path
    summary: Json
    config: Json
    problem: str | None = None

    @property
    def strategy(self) -> str:
        """Name of the policy's card."""
        return str(section(self.summary, "strategy").get("name") or "unknown")

    @property
    def where(self) -> str:
        """Trace and cluster by name."""
        names = [str(section(self.summary, part).get("name") or "unknown") for part in ("trace", "cluster")]
        return " on ".join(names)

    @property
    def seed(self) -> str:
        """The seed; with that of the trace where it is another."""
        own, trace = self.summary.get("seed", "?"), section(self.config, "trace").get("seed")
        return str(own) if trace in (None, own) else f"{own} (trace {trace})"

    @property
    def jobs_count(self) -> int:
        """J."""
        return int(number(section(self.summary, "trace").get("jobs", 0)))

    @cached_property
    def settings(self) -> dict[str, str]:
        """Every key of the configuration, dotted."""
        return flat(self.config)

    def measure(self, name: str) -> float:
        """A figure of `measures`, NaN where there is none."""
        return number(section(self.summary, "measures").get(name))

    def bound(self, name: str) -> float:
        """The physical limit of a figure, NaN where there is none."""
        return number(section(self.summary, "bounds").get(name))

    def ratio(self, name: str) -> float:
        """A figure over its limit, NaN where there is none."""
        return number(section(self.summary, "ratios").get(name))

    @cached_property
    def nodes(self) -> list[tuple[str, int]]:
        """Device type and devices of every node, in the order of their numbers."""
        groups = section(self.summary, "cluster").get("nodes") or []
        return [(str(g["type"]), int(g["devices"])) for g in groups for _ in range(int(g["nodes"]))]

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Names of the device types, in the order of their numbers."""
        return tuple(dict.fromkeys(kind for kind, _ in self.nodes))

    @cached_property
    def jobs(self) -> Columns:
        """jobs.parquet."""
        return table(self.path / JOBS)

    @cached_property
    def timeline(self) -> Columns:
        """timeline.parquet."""
        return table(self.path / TIMELINE)

    @cached_property
    def sittings(self) -> Columns:
        """sittings.parquet."""
        return table(self.path / SITTINGS)

    @cached_property
    def waits(self) -> Columns:
        """waits.parquet."""
        return table(self.path / WAITS)


def load(path: Path) -> Saved:
    """Read a run folder; its tables are read when they are asked for, but damage is found at once."""
    said, trouble = read_summary(path / SUMMARY)
    problem = trouble or _unfinished(said)
    for name in (JOBS, TIMELINE, SITTINGS, WAITS):
        if problem is None:
            problem = _damage(path / name)
    return Saved(path, said, read_config(path / CONFIG), problem)


def table(file: Path) -> Columns:
    """The columns of a table. Raises ValueError naming the file where it is missing or damaged."""
    if trouble := _damage(file):
        raise ValueError(trouble)
    read = pq.ParquetFile(file).read()
    return {name: read[name].to_numpy() for name in read.column_names}


def _damage(file: Path) -> str | None:
    """Why a table cannot be read, or None."""
    if not file.exists():
        return f"{file}: missing; run again, or restore it"
    try:
        pq.read_metadata(file)
    except (OSError, pa.ArrowException) as error:
        return f"{file}: damaged ({error}); run again, or restore it"
    return None


def _unfinished(said: Json) -> str | None:
    """Why a run that reads well is not whole, or None."""
    status, why = said.get("status"), said.get("why") or "no reason given"
    if status in ("finished", "stopped"):
        return (
            None
            if section(said, "measures") and section(said, "cluster")
            else "its summary lacks its measures"
        )
    if status == "failed":
        return f"failed: {why}"
    return "unfinished: the run was killed or is still going"
