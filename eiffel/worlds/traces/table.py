"""The plain CSV of this project: written by hand, or from any trace, and read.

Columns: id, arrival (s), gang, and either work (steps) with rate.TYPE (steps/s of the whole gang, 0: cannot
run there) for every device type, or duration (s). Optional: epochs, weight, model, spread.TYPE (steps/s over
several nodes).
"""

import csv
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from eiffel.core.jobs import Trace
from eiffel.worlds.traces.lengths import EPOCHS, from_lengths
from eiffel.worlds.traces.options import Options
from eiffel.worlds.traces.reading import Floats, Table, TraceError, read_table

OPTIONS = ("path", "spread")


def read(options: Options, types: Sequence[str]) -> Trace:
    """Read a plain CSV."""
    table = read_table(options.text("path"), ("id", "arrival", "gang"))
    if not table.has("work"):
        return _lasting(table, options, types)
    jobs = len(table)
    rate, epochs, weight = _rates(table, "rate", types), _epochs(table), _weight(table)
    gang = table.whole("gang", low=1)
    spread = rate * np.where(gang > 1, options.number("spread", 1.0), 1.0)[:, None]
    if any(table.has(f"spread.{name}") for name in types):
        spread = _rates(table, "spread", types)
    model = tuple(table.text("model")) if table.has("model") else ("",) * jobs
    arrival, work = table.number("arrival"), table.number("work")
    return Trace(table.unique("id"), arrival, work, gang, epochs, weight, rate, spread, tuple(types), model)


def write(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace so that `read` returns an equal one (numbers to the last bit). Atomic."""
    target = Path(path)
    with tempfile.NamedTemporaryFile(
        "w", newline="", encoding="utf-8", dir=target.parent, prefix=target.name, delete=False
    ) as stream:
        out = csv.writer(stream, lineterminator="\n")
        heads = [f"{kind}.{name}" for kind in ("rate", "spread") for name in trace.types]
        out.writerow(["id", "arrival", "work", "gang", "epochs", "weight", "model", *heads])
        columns = [trace.arrival, trace.work, trace.gang, trace.epochs, trace.weight]
        numbers = zip(*(c.tolist() for c in columns), strict=True)
        rates = np.hstack([trace.rate, trace.spread]).tolist()
        for name, row, model, speeds in zip(trace.id, numbers, trace.model, rates, strict=True):
            out.writerow([name, *map(repr, row), model, *map(repr, speeds)])
    os.replace(stream.name, target)


def _lasting(table: Table, options: Options, types: Sequence[str]) -> Trace:
    if not table.has("duration"):
        cure = "a job needs work (steps, with rate.TYPE columns) or duration (seconds)"
        raise TraceError(cure, file=table.path, line=1, field="work")
    arrival, seconds = table.number("arrival"), table.number("duration")
    model = table.text("model") if table.has("model") else None
    gang = table.whole("gang", low=1)
    plain = replace(
        from_lengths(
            [str(k) for k in range(len(table))], np.zeros(len(table)), seconds, gang, options, types, model
        ),
        epochs=_epochs(table),
        weight=_weight(table),
    )
    return replace(plain, id=table.unique("id"), arrival=arrival)


def _rates(table: Table, kind: str, types: Sequence[str]) -> Floats:
    missing = [f"{kind}.{name}" for name in types if not table.has(f"{kind}.{name}")]
    if missing:
        cure = f"add it, 0 where a job cannot run; the columns are {', '.join(table.columns)}"
        raise TraceError(cure, file=table.path, line=1, field=missing[0])
    columns = [table.number(f"{kind}.{name}") for name in types]
    return np.column_stack(columns) if columns else np.zeros((len(table), 0))


def _epochs(table: Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return table.whole("epochs", low=1, high=2**53) if table.has("epochs") else np.full(len(table), EPOCHS)


def _weight(table: Table) -> Floats:
    if not table.has("weight"):
        return np.ones(len(table))
    weight = table.number("weight")
    table.must(
        weight > 0, "weight", "is not above 0; a job that counts for nothing should not be in the trace"
    )
    return weight
