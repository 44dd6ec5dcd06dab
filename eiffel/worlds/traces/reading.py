"""Text tables of any size as checked columns; every complaint names file, line, field and cure.

Columns are read with pyarrow (80,000 rows in tens of milliseconds). Which line a bad row is on is worked out
only when there is a bad row, by reading the file again.
"""

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as pacsv

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
MOST_DEVICES = 1_000_000  # a gang above this is a typing error, not a job


class TraceError(ValueError):
    """A trace or cluster that cannot be used: what is wrong, where (lines count from 1), and what to do."""

    def __init__(
        self, problem: str, *, file: object = None, line: int | None = None, field: str | None = None
    ):
        where = [str(file)] if file is not None else []
        where += [f"line {line}"] if line is not None else []
        where += [f"field {field!r}"] if field is not None else []
        super().__init__(": ".join([", ".join(where), problem] if where else [problem]))
        self.problem, self.file, self.line, self.field = problem, file, line, field


def find(path: str | os.PathLike[str]) -> Path:
    """Return the file: as given, or under the folder $EIFFEL_DATA. Raises TraceError if in neither."""
    given = Path(path).expanduser()
    root = os.environ.get("EIFFEL_DATA")
    places = [given] + ([Path(root) / given] if root and not given.is_absolute() else [])
    for place in places:
        if place.is_file():
            return place
    also = "".join(f", nor {place}" for place in places[1:])
    cure = "give the path of a file, or set EIFFEL_DATA to the folder that holds it"
    raise TraceError(f"no such file{also}; {cure}", file=given)


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of one file, as text until asked for as numbers."""

    path: Path
    columns: Mapping[str, pa.ChunkedArray]
    row: Ints  # (N,) which data row of the file each entry is, from 0
    delimiter: str
    header: bool

    def __len__(self) -> int:
        return len(self.row)

    def has(self, field: str) -> bool:
        """Say whether the file has this column."""
        return field in self.columns

    def text(self, field: str) -> list[str]:
        """Return a column as it stands."""
        return [str(v) for v in self.columns[field].to_pylist()]

    def number(self, field: str, low: float = 0.0) -> Floats:
        """Return a column (N,) of finite numbers, none below `low`. Raises TraceError."""
        trimmed = pc.utf8_trim_whitespace(self.columns[field])
        try:
            values = np.asarray(pc.cast(trimmed, pa.float64()).to_numpy(), dtype=np.float64)
        except pa.ArrowInvalid:
            values = np.array([_float(v) for v in trimmed.to_pylist()])
        self.must(np.isfinite(values), field, "is not a finite number; give one, such as 3600")
        self.must(values >= low, field, f"is below {low:g}, the least that makes sense here")
        return values

    def whole(self, field: str, low: int = 0, high: float = MOST_DEVICES) -> Ints:
        """Return a column (N,) of whole numbers in [low, high]. Raises TraceError."""
        values = self.number(field, low)
        self.must(values == np.floor(values), field, "is not a whole number")
        self.must(values <= high, field, f"is above {high:g}")
        return values.astype(np.int64)

    def moment(self, field: str) -> Floats:
        """Return a column (N,) in seconds; dates as seconds since 1970. Raises TraceError."""
        trimmed = pc.utf8_trim_whitespace(self.columns[field])
        if not any("-" in v[1:] or ":" in v for v in trimmed[:1].to_pylist()):
            return self.number(field)
        try:
            return np.asarray(pc.cast(pc.cast(trimmed, pa.timestamp("s")), pa.int64()).to_numpy(), np.float64)
        except pa.ArrowInvalid:
            seconds = np.array([_date(v) for v in trimmed.to_pylist()])
        cure = "is not a date; write 2017-10-09 07:01:55 in every row, or seconds in every row"
        self.must(np.isfinite(seconds), field, cure)
        return seconds

    def must(self, ok: Bools, field: str, problem: str) -> None:
        """Raise TraceError for the first row where `ok` (N,) is false."""
        if not ok.all():
            at = int(np.argmin(ok))
            raise self.fault(at, field, f"{self.columns[field][at].as_py()!r} {problem}")

    def fault(self, at: int, field: str, problem: str) -> TraceError:
        """Return the error for entry `at`, with its line in the file."""
        return TraceError(problem, file=self.path, line=self.line(at), field=field)

    def line(self, at: int) -> int:
        """Return the line (from 1) of entry `at`."""
        wanted = int(self.row[at]) + self.header
        for k, (line, _) in enumerate(_records(self.path, self.delimiter)):
            if k == wanted:
                return line
        raise IndexError(at)

    def keep(self, mask: Bools) -> "Table":
        """Return the rows for which `mask` (N,) is true; they keep their line numbers."""
        picked = {name: column.filter(pa.array(mask)) for name, column in self.columns.items()}
        return Table(self.path, picked, self.row[mask], self.delimiter, self.header)

    def unique(self, field: str) -> tuple[str, ...]:
        """Return a column of ids. Raises TraceError where one occurs a second time."""
        ids = self.text(field)
        if len(set(ids)) < len(ids):
            seen: dict[str, int] = {}
            for at, name in enumerate(ids):
                if name in seen:
                    first = self.line(seen[name])
                    raise self.fault(
                        at, field, f"{name!r} is already on line {first}; give each job its own id"
                    )
                seen[name] = at
        return tuple(ids)


def read_table(
    path: str | os.PathLike[str],
    need: Sequence[str],
    names: Sequence[str] | None = None,
    delimiter: str = ",",
) -> Table:
    """Read a text table. `need`: columns it must have; `names`: its columns, if it has no header line.

    Raises TraceError: no such file, no such column (with the columns that there are), a row of another width,
    an empty file, bytes that are not UTF-8.
    """
    file = find(path)
    header = next((fields for _, fields in _records(file, delimiter)), None)
    if header is None:
        raise TraceError("the file is empty; it needs a header line and one line per job", file=file, line=1)
    columns = [name.strip() for name in (header if names is None else names)]
    missing = [name for name in need if name not in columns]
    if missing:
        cure = f"the columns are {', '.join(columns)}; add it or choose another trace.format"
        raise TraceError(f"no such column; {cure}", file=file, line=1, field=missing[0])
    if len(set(columns)) < len(columns):
        twice = next(c for k, c in enumerate(columns) if c in columns[:k])
        raise TraceError("two columns have this name; rename one", file=file, line=1, field=twice)
    table = _arrow(file, columns, delimiter, skip=int(names is None))
    data = {name: table.column(name) for name in columns}
    return Table(file, data, np.arange(table.num_rows), delimiter, names is None)


def first_line(path: str | os.PathLike[str], delimiter: str = ",") -> list[str]:
    """Return the fields of the first line that is not empty; [] for an empty file."""
    return next((fields for _, fields in _records(find(path), delimiter)), [])


def _arrow(file: Path, columns: Sequence[str], delimiter: str, skip: int) -> pa.Table:
    quote: str | bool = '"' if delimiter == "," else False
    try:
        return pacsv.read_csv(
            file,
            pacsv.ReadOptions(column_names=list(columns), skip_rows_after_names=skip),
            pacsv.ParseOptions(delimiter=delimiter, quote_char=quote, newlines_in_values=bool(quote)),
            pacsv.ConvertOptions(column_types={c: pa.string() for c in columns}, strings_can_be_null=False),
        )
    except pa.ArrowInvalid as error:
        for line, fields in _records(file, delimiter):
            if len(fields) != len(columns):
                cure = "quote a field that holds commas"
                problem = f"{len(fields)} fields where there are {len(columns)} columns; {cure}"
                raise TraceError(problem, file=file, line=line) from None
        raise TraceError(f"cannot be read as text: {error}", file=file) from error


def _records(file: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, fields) of every line that is not empty, as pyarrow counts them."""
    quoting: Literal[0, 3] = 0 if delimiter == "," else 3  # csv.QUOTE_MINIMAL, csv.QUOTE_NONE
    with file.open(newline="", encoding="utf-8-sig") as stream:
        reader, start = csv.reader(stream, delimiter=delimiter, quoting=quoting), 1
        try:
            for fields in reader:
                if fields:
                    yield start, fields
                start = reader.line_num + 1
        except (UnicodeDecodeError, csv.Error) as error:
            cure = f"{error}; save the file as UTF-8 text"
            raise TraceError(cure, file=file, line=start) from None


def _float(value: str) -> float:
    try:
        return float("nan" if "_" in value else value)
    except ValueError:
        return float("nan")


def _date(value: str) -> float:
    try:
        return float(np.datetime64(value.replace(" ", "T"), "us").astype(np.int64)) / 1e6
    except ValueError:
        return float("nan")
