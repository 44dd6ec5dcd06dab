"""The run folder: what a run leaves behind, written as it goes so that a killed run loses one round at most.

    records.jsonl                        one Record a line, in order of rounds
    clients.parquet/round-000017.parquet one row per device kept in that round; the folder reads as one table
    summary.json                         what was run, with what, and how it ended
    config.yaml                          the resolved configuration (written by whoever starts the run)

A round's rows are written before its line: the line is what makes a round count. Numbers that are not
finite become null, for NaN is not JSON.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from eiffel.core.checkpoint import write_atomically
from eiffel.core.ledger import NO_STATUS

Columns = Mapping[str, NDArray[Any]]

RECORDS, CLIENTS, SUMMARY, CONFIG = "records.jsonl", "clients.parquet", "summary.json", "config.yaml"

COLUMNS: dict[str, pa.DataType] = {
    "round": pa.int32(),
    "device": pa.int64(),
    "reason": pa.uint8(),
    "status": pa.uint8(),
    "steps": pa.int32(),
    "seconds": pa.float32(),
    "joules": pa.float32(),
    "bytes_down": pa.int64(),
    "bytes_up": pa.int64(),
    "loss": pa.float32(),
    "battery": pa.float32(),
    "score": pa.float32(),
    "accuracy": pa.float32(),
}
"""Columns that every file of clients.parquet has, null where not known. Others are kept beside them."""


class Sink(Protocol):
    """Takes what a run says: one record a round, a summary at the start and one at the end."""

    def record(self, record: Mapping[str, Any], clients: Columns | None = None) -> None:
        """Take a round: its Record, and columns over the devices kept, all of one length."""
        ...

    def summary(self, summary: Mapping[str, Any]) -> None:
        """Take the summary; `status` is "running" until the end."""
        ...

    def close(self) -> None:
        """Let go of files and connections. Safe to call twice."""
        ...


class RunFolder:
    """Writes a run's folder; made when absent, gone on with when there.

    path: the folder. A half-written last line, left by a run that was killed, is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        (self.path / CLIENTS).mkdir(parents=True, exist_ok=True)
        self._open()

    def _open(self) -> None:
        """Take up records.jsonl where its last whole line ends."""
        self._last = _drop_torn_line(self.path / RECORDS)
        self._lines = open(self.path / RECORDS, "ab")  # noqa: SIM115  (open for as long as the run lasts)

    def record(self, record: Mapping[str, Any], clients: Columns | None = None) -> None:
        """Append a round and its devices' rows; on return both are on disk.

        Raises ValueError when the round does not come after the last one written.
        """
        number = int(record["round"])
        if self._last is not None and number <= self._last:
            raise ValueError(
                f"{self.path / RECORDS}: round {number} does not come after round {self._last}, the last one "
                f"written; to go back to an earlier round call truncate() first"
            )
        if clients is not None:
            _write_rows(rows_file(self.path, number), number, clients)
        self._lines.write(_line(record))
        self._lines.flush()
        os.fsync(self._lines.fileno())
        self._last = number

    def summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json, replacing the one before in one step."""
        text = json.dumps(plain(summary), indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(self.path / SUMMARY, (text + "\n").encode())

    def truncate(self, round_: int) -> None:
        """Forget everything after round `round_`, so that the run can go on from its checkpoint."""
        path = self.path / RECORDS
        kept = [ln for i, ln in enumerate(read_lines(path), 1) if _round_of(path, i, ln) <= round_]
        self.close()
        write_atomically(path, b"".join(kept))
        for file in (self.path / CLIENTS).glob("round-*.parquet"):
            if int(file.stem.removeprefix("round-")) > round_:
                file.unlink()
        self._open()

    def close(self) -> None:
        """Close records.jsonl."""
        self._lines.close()


def rows_file(run: Path, round_: int) -> Path:
    """Where the devices' rows of a round are."""
    return Path(run) / CLIENTS / f"round-{round_:06d}.parquet"


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: numpy as Python, NaN and infinities as null, paths and enums as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):  # bool and IntEnum too
        return value if isinstance(value, bool) else int(value)
    return value if value is None or isinstance(value, str) else str(value)


def read_lines(path: Path) -> list[bytes]:
    """The whole lines of a file, with their line ends; what follows the last line end was never finished."""
    text = path.read_bytes() if path.exists() else b""
    return [line + b"\n" for line in text.split(b"\n")[:-1] if line.strip()]


def _drop_torn_line(path: Path) -> int | None:
    """Cut a half-written last line off; the round of the last whole one, None where there is none."""
    if not path.exists():
        return None
    lines = read_lines(path)
    whole = path.read_bytes().rfind(b"\n") + 1
    if whole < path.stat().st_size:
        os.truncate(path, whole)
    return _round_of(path, len(lines), lines[-1]) if lines else None


def _round_of(path: Path, number: int, line: bytes) -> int:
    """The round of a line; ValueError naming file and line where it holds none."""
    try:
        return int(json.loads(line)["round"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}, line {number}: not a record ({error}); delete that line and go on"
        ) from error


def _line(record: Mapping[str, Any]) -> bytes:
    """A record as one line of JSON."""
    text = json.dumps(plain(record), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode() + b"\n"


def _write_rows(path: Path, round_: int, clients: Columns) -> None:
    """Write one round's rows, replacing any file of that round in one step."""
    table = _table(round_, {name: np.ma.asanyarray(column) for name, column in clients.items()})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    write_atomically(path, sink.getvalue().to_pybytes())


def _table(round_: int, clients: Columns) -> pa.Table:
    """The columns as an arrow table whose types are the same in every round."""
    sizes = {name: column.shape for name, column in clients.items()}
    if len(set(sizes.values())) != 1 or "device" not in sizes or len(sizes["device"]) != 1:
        raise ValueError(
            f"clients of round {round_}: 'device' and every other column need one length: {sizes}"
        )
    known = {"round": np.full(sizes["device"], round_, dtype=np.int32)} | dict(clients)
    arrays = {
        name: _array(known[name], kind) if name in known else pa.nulls(sizes["device"][0], kind)
        for name, kind in COLUMNS.items()
    }
    others = {name: pa.array(np.asarray(column)) for name, column in clients.items() if name not in COLUMNS}
    return pa.table(arrays | others)


def _array(column: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """One column as `kind`, null where masked, not finite, or a code that stands for none."""
    unknown = np.ma.getmaskarray(column).copy()
    values = np.ma.getdata(column)
    unknown |= ~np.isfinite(values) if values.dtype.kind == "f" else False
    unknown |= values == NO_STATUS if kind == pa.uint8() else False
    filled = np.where(unknown, values.dtype.type(0), values)
    return pa.array(filled.astype(kind.to_pandas_dtype()), type=kind, mask=unknown)
