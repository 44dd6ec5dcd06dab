"""Run folders read back. A missing, unfinished or damaged run is a Run with a `problem`, not an error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray

from eiffel.core.measures import last_mean
from eiffel.core.model import Floats
from eiffel.report.folder import CONFIG, RECORDS, SUMMARY, rows_file

Json = Mapping[str, Any]
NOTHING: Json = {}


@dataclass(frozen=True)
class Run:
    """A run as its folder tells it.

    records: those before the first damaged line. problem: why the run is not whole, in words, or None.
    config: the resolved configuration, empty where none was kept.
    """

    path: Path
    summary: Json
    records: tuple[Json, ...]
    problem: str | None = None
    config: Json = field(default_factory=dict)

    @property
    def strategy(self) -> str:
        """Name of the strategy."""
        return str(section(self.summary, "strategy").get("name") or "unknown")

    @property
    def data(self) -> str:
        """Name of the data set."""
        return str(section(self.summary, "data").get("name") or "unknown data")

    @property
    def metric(self) -> str:
        """What `accuracy` in the records is."""
        return str(section(self.summary, "data").get("metric") or "accuracy")

    @property
    def seed(self) -> str:
        """The seed as text, "?" where not known."""
        return str(self.summary.get("seed", "?"))

    @cached_property
    def settings(self) -> dict[str, str]:
        """What was set: every key of the configuration, dotted; without one, what the command line said."""
        if self.config:
            return flat(self.config)
        overrides = self.summary.get("overrides")
        said = (
            str(o).lstrip("+~").partition("=") for o in (overrides if isinstance(overrides, list) else ())
        )
        return {key: value for key, _, value in said}

    @property
    def devices(self) -> int:
        """N: devices of the fleet, else clients of the data, else what the records counted; 0 unknown."""
        fleet, data = section(self.summary, "fleet"), section(self.summary, "data")
        seen = max((int(r.get("participants") or 0) for r in self.records), default=0)
        said = (fleet.get("devices"), fleet.get("size"), data.get("clients"), seen)
        return next((int(n) for n in said if _is_number(n) and n), 0)

    @property
    def ended(self) -> bool:
        """Whether the run came to an end of its own, so that its figures may be compared."""
        return self.problem is None

    def column(self, key: str) -> Floats:
        """(R,) one figure of every record, NaN where null or absent; `key` may be dotted: notes.tau."""
        return np.array([number(dig(record, key)) for record in self.records])

    @cached_property
    def evaluations(self) -> tuple[Json, ...]:
        """The records in which the served model's accuracy was measured."""
        return tuple(record for record in self.records if np.isfinite(_accuracy(record)))

    @property
    def served(self) -> str:
        """Which model the strategy serves: last or ema."""
        return _served(self.evaluations[-1]) if self.evaluations else "last"

    def scored(self, model: str = "served") -> list[Json]:
        """The figures of a model (served, last, ema) at every evaluation; empty where it was not scored."""
        name = self.served if model == "served" else model
        rows = [e["scores"].get(name) for e in self.evaluations]
        return [row for row in rows if row] if all(rows) else []

    def score(self, key: str, model: str = "served") -> Floats:
        """(E,) one figure of a model at every evaluation."""
        return np.array([number(row.get(key)) for row in self.scored(model)])

    def at_evaluations(self, key: str) -> Floats:
        """(E,) one figure of the records in which models were scored."""
        return np.array([number(dig(record, key)) for record in self.evaluations])

    def final(self, model: str = "served") -> dict[str, float]:
        """Means of the last five evaluations of a model."""
        return last_mean(self.scored(model))

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(N,) how often each device was chosen; empty where the rows of devices are not there."""
        table = self._rows(["device", "reason", "status"])
        if table is None:
            return np.zeros(0, dtype=np.int64)
        device = table["device"].to_numpy()[chosen(table)]
        return np.bincount(device, minlength=max(self.devices, 0))

    @cached_property
    def per_device(self) -> Floats:
        """(n,) accuracy of each device's test part at the last evaluation, unsorted; empty if not kept."""
        for record in reversed(self.evaluations):
            file = rows_file(self.path, int(record["round"]))
            table = _table(file, ["accuracy"]) if file.exists() else None
            if table is not None and table["accuracy"].null_count < table.num_rows:
                return np.asarray(table["accuracy"].drop_null().to_numpy(), dtype=np.float64)
        return np.zeros(0)

    def _rows(self, columns: list[str]) -> pa.Table | None:
        """These columns of all rounds that count, or None."""
        files = [rows_file(self.path, int(r["round"])) for r in self.records]
        tables = [table for file in files if file.exists() and (table := _table(file, columns)) is not None]
        return pa.concat_tables(tables) if tables else None


def chosen(table: pa.Table) -> NDArray[np.bool_]:
    """Which rows are of devices that were chosen: reason 0, or, where no reason was kept, any status."""
    reason = table["reason"].fill_null(255).to_numpy()
    return np.asarray((reason == 0) | ((reason == 255) & (table["status"].fill_null(255).to_numpy() != 255)))


def _table(file: Path, columns: list[str]) -> pa.Table | None:
    """One round's rows, or None where the file is damaged (the page says how many rounds it counted)."""
    try:
        return pq.ParquetFile(file).read(columns=columns)
    except (OSError, pa.ArrowException, KeyError):
        return None


def load(path: Path) -> Run:
    """Read a run folder."""
    path = Path(path)
    if not path.is_dir():
        return Run(path, NOTHING, (), f"{path}: no such run folder")
    summary, trouble = read_summary(path / SUMMARY)
    records, damage = _records(path / RECORDS)
    problem = damage or trouble or _unfinished(summary, len(records))
    return Run(path, summary, records, problem, read_config(path / CONFIG))


def find(paths: Sequence[Path]) -> list[Path]:
    """The run folders among `paths` and, where one is a sweep, below it, in order; none twice.

    A path that holds no run is kept, so that it is reported as missing rather than passed over.
    """
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        below = sorted({p.parent for name in (SUMMARY, RECORDS) for p in path.rglob(name)}, key=_natural)
        found |= dict.fromkeys([path] if (path / RECORDS).exists() or not below else below)
    return list(found)


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """A key that sorts job 10 after job 9."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in path.parts]


def read_summary(file: Path) -> tuple[Json, str | None]:
    """The summary and what is wrong with it."""
    if not file.exists():
        return NOTHING, f"{file}: missing; the run never began, or this is not a run folder"
    try:
        summary = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        return NOTHING, f"{file}, line {line}: not JSON ({error}); restore the file or run again"
    if not isinstance(summary, dict):
        return NOTHING, f"{file}, line 1: holds {type(summary).__name__}, not an object of figures"
    return summary, None


def read_config(file: Path) -> Json:
    """The configuration that the run wrote, or nothing where it is absent or damaged: it only tells runs apart."""
    try:
        config = yaml.safe_load(file.read_bytes())
    except (OSError, yaml.YAMLError):
        return NOTHING
    return {str(k): v for k, v in config.items()} if isinstance(config, dict) else NOTHING


def flat(config: Json, prefix: str = "") -> dict[str, str]:
    """Every leaf of a nested mapping as text, under its dotted name."""
    out: dict[str, str] = {}
    for key, value in config.items():
        out |= (
            flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": str(value)}
        )
    return out


def _records(file: Path) -> tuple[tuple[Json, ...], str | None]:
    """The records up to the first damaged line, and what is wrong there."""
    if not file.exists():
        return (), f"{file}: missing; no round was recorded"
    records: list[Json] = []
    lines = file.read_bytes().split(b"\n")
    for number_, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = _checked(json.loads(line))
        except (ValueError, TypeError, KeyError) as error:
            return tuple(records), _damage(file, number_, number_ == len(lines), error)
        records.append(record)
    return tuple(records), None if records else f"{file}: empty; no round was recorded"


_NUMBERS = ("chosen", "delivered", "candidates", "participants", "participation_jain", "steps_mean",
            "battery_min", "battery_mean", "total_bytes", "total_joules", "total_joules_wasted", "total_s")  # fmt: skip
_COUNTS = ("refused", "lost")


def _checked(record: Any) -> Json:
    """The record, if what is read of it is of the right kind; ValueError naming the field where not."""
    if not isinstance(record, dict) or not _is_number(record.get("round")):
        raise ValueError("there is no round in it")
    for name in _NUMBERS:
        if not _is_number(record.get(name, 0), or_null=True):
            raise ValueError(f"{name} is {record[name]!r}, not a number")
    scores = record.get("scores") or {}
    parts = {name: record.get(name) or {} for name in _COUNTS} | {"scores": scores}
    parts |= {f"scores.{m}": scores.get(m) or {} for m in ("last", "ema")} if isinstance(scores, dict) else {}
    for name, part in parts.items():
        if not isinstance(part, dict):
            raise ValueError(f"{name} is {part!r}, not an object of figures")
        for key, value in part.items():
            if name != "scores" and not _is_number(value, or_null=name.startswith("scores.")):
                raise ValueError(f"{name}.{key} is {value!r}, not a number")
    return record | {"round": int(record["round"])}


def _is_number(value: Any, or_null: bool = False) -> bool:
    """Whether JSON held a number there, or, where that is allowed, null."""
    return (isinstance(value, (int, float)) and not isinstance(value, bool)) or (or_null and value is None)


def _served(record: Json) -> str:
    """Which model a record says is served."""
    return "ema" if dig(record, "scores.served") == "ema" else "last"


def _accuracy(record: Json) -> float:
    """Accuracy of the served model, NaN where it was not measured."""
    return number(dig(record, f"scores.{_served(record)}.accuracy"))


def _damage(file: Path, line: int, last: bool, error: Exception) -> str:
    """A damaged line in words."""
    if last:
        return f"{file}, line {line}: half written; the run was killed or is still going (eiffel resume)"
    return f"{file}, line {line}: not a record ({error}); the rounds from there on are left out"


def _unfinished(summary: Json, rounds: int) -> str | None:
    """Why a run that reads well is not whole, or None."""
    status, why = summary.get("status"), summary.get("why") or "no reason given"
    if status in ("finished", "stopped"):
        return None
    if status == "failed":
        return f"failed after {rounds} rounds: {why}"
    return f"unfinished: {rounds} rounds so far; the run was killed or is still going (eiffel resume)"


def section(summary: Json, name: str) -> Json:
    """A part of the summary; empty where it is absent or no object."""
    part = summary.get(name)
    return part if isinstance(part, Mapping) else {"name": part} if isinstance(part, str) else NOTHING


def dig(record: Json, key: str) -> Any:
    """`record["a"]["b"]` for the key "a.b"; None where there is none."""
    value: Any = record
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def number(value: Any) -> float:
    """A figure as float, NaN where null or no number."""
    return float(value) if isinstance(value, (int, float)) else float("nan")
