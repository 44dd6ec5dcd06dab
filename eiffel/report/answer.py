"""Why a device was, or was not, chosen in a round, from what the run recorded: `eiffel explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eiffel.core.model import Reason, Status
from eiffel.report.folder import RECORDS, rows_file
from eiffel.report.read import Json, Run, chosen, load
from eiffel.report.units import digits, fitting, percent, plural

Row = dict[str, Any]


def explain(run: Path, round: int, device: int) -> str:
    """Say in words what a run decided about a device in a round, what came of it, and on what grounds.

    Raises ValueError, naming the file, where the run, the round or the device is not to be found.
    """
    found = load(Path(run))
    record = _record(found, round)
    _known(found, device)
    table = _table(rows_file(found.path, round), round)
    at = np.flatnonzero(table["device"].to_numpy() == device)
    head = f"Round {round}, device {device} ({found.strategy}, seed {found.seed})"
    if not at.size:
        return "\n".join([head, *_unlisted(found, record, table.num_rows), _history(found, round, device)])
    row: Row = {name: table[name][int(at[0])].as_py() for name in table.column_names}
    lines = [_decision(row), *_fate(row), *_standing(row, table), *_figures(row), _cohort(record)]
    return "\n".join([head, *(f"  {line}" for line in lines), f"  {_history(found, round, device)}"])


def _record(run: Run, number: int) -> Json:
    """The record of a round."""
    if not run.records:
        raise ValueError(run.problem or f"{run.path / RECORDS}: no round was recorded")
    for record in run.records:
        if record["round"] == number:
            return record
    first, last = run.records[0]["round"], run.records[-1]["round"]
    raise ValueError(f"{run.path / RECORDS}: no round {number}; rounds {first} to {last} are recorded")


def _known(run: Run, device: int) -> None:
    """Refuse a device that the fleet does not have."""
    if device < 0 or (run.devices and device >= run.devices):
        raise ValueError(f"device is {device}; this run's devices are numbered 0 to {run.devices - 1}")


def _table(file: Path, number: int) -> pa.Table:
    """The rows of a round."""
    if not file.exists():
        raise ValueError(f"{file}: missing; round {number} was recorded without the rows of its devices")
    try:
        return pq.ParquetFile(file).read()
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"{file}: damaged ({error}); the round cannot be explained") from error


def _decision(row: Row) -> str:
    """Chosen or not, and why."""
    if row["reason"] is None:
        return "reason: not recorded"
    reason = Reason(row["reason"])
    return "chosen" if reason == Reason.CHOSEN else f"not chosen: {reason.text}"


def _fate(row: Row) -> list[str]:
    """What became of its task, and what it cost."""
    if row["status"] is None:
        return []
    moved = (row["bytes_down"] or 0) + (row["bytes_up"] or 0)
    seconds, joules = float(row["seconds"] or 0), float(row["joules"] or 0)
    spent = (fitting("seconds", seconds).text(seconds), fitting("joules", joules).text(joules))
    cost = f"{plural(row['steps'] or 0, 'local step')}, {spent[0]}, {spent[1]}, {fitting('bytes', moved).text(moved)}"
    return [f"its task: {Status(row['status']).text}", f"it cost: {cost}"]


def _standing(row: Row, table: pa.Table) -> list[str]:
    """Its score and its rank among those that could be chosen."""
    if row["score"] is None:
        ruled_out = row["reason"] not in (None, Reason.CHOSEN, Reason.NOT_DRAWN)
        return ["score: none, for it was no candidate" if ruled_out else "score: this strategy gives none"]
    reason = table["reason"].fill_null(255).to_numpy()
    score = table["score"].to_numpy(zero_copy_only=False)
    among = np.isfinite(score) & (reason <= Reason.NOT_DRAWN)
    rank = 1 + int((score[among] > row["score"]).sum())
    return [
        f"score: {digits(row['score'])}, rank {rank} of {plural(int(among.sum()), 'scored candidate')} listed"
    ]


def _figures(row: Row) -> list[str]:
    """What was known of it: loss of the incoming model, battery, accuracy."""
    known = []
    if row["loss"] is not None:
        known.append(f"loss of the incoming model on its data: {digits(row['loss'])}")
    if row["battery"] is not None:
        known.append(f"battery when the round began: {percent(row['battery'], 0)}")
    if row["accuracy"] is not None:
        known.append(f"accuracy of the served model on its test data: {percent(row['accuracy'])}")
    return known


def _cohort(record: Json) -> str:
    """The round in one line."""
    said = f"{record.get('chosen', '?')} chosen of {plural(record.get('candidates') or 0, 'candidate')}"
    refused = [
        f"{count:,} {name.replace('_', ' ')}"
        for name, count in (record.get("refused") or {}).items()
        if name.upper() in Reason.__members__
    ]
    return f"the round: {said}" + (f"; others: {', '.join(refused)}" if refused else "")


def _unlisted(run: Run, record: Json, rows: int) -> list[str]:
    """What can be said of a device whose row was not kept."""
    return [
        f"  not chosen; its reason was not kept: of {run.devices:,} devices only the {rows:,} of the cohort were "
        "written in this round, as is done for big fleets",
        f"  {_cohort(record)}",
    ]


def _history(run: Run, number: int, device: int) -> str:
    """How often it was chosen before, and when last."""
    before = [int(r["round"]) for r in run.records if int(r["round"]) < number]
    files = [(n, rows_file(run.path, n)) for n in before]
    when = [n for n, file in files if file.exists() and _was_chosen(file, device)]
    if not when:
        return f"before: never chosen in {plural(len(before), 'round')}"
    often = "once" if len(when) == 1 else f"{len(when)} times"
    return f"before: chosen {often} in {plural(len(before), 'round')}, last in round {when[-1]}"


def _was_chosen(file: Path, device: int) -> bool:
    """Whether a device was chosen in the round of this file."""
    table = _table(file, int(file.stem.removeprefix("round-"))).select(["device", "reason", "status"])
    return bool((chosen(table) & (table["device"].to_numpy() == device)).any())
