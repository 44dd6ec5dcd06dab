"""What the readers say of bad files: the file, the line as an editor counts it, the field, and what to do."""

from pathlib import Path

import numpy as np
import pytest

from eiffel.worlds.traces import TraceError, load_trace
from eiffel.worlds.traces.reading import find, read_table

GPU = ("gpu",)


def csv_trace(tmp_path: Path, text: str, **options: object):
    file = tmp_path / "jobs.csv"
    file.write_text(text, encoding="utf-8")
    return load_trace({"format": "csv", "path": str(file), **options}, GPU)


@pytest.mark.parametrize(
    ("row", "field", "word"),
    [
        ("b,nan,10,1", "arrival", "finite"),
        ("b,5,-10,1", "duration", "below 0"),
        ("b,5,inf,1", "duration", "finite"),
        ("b,5,,1", "duration", "finite"),
        ("b,five,10,1", "arrival", "'five'"),
        ("b,5,10,0", "gang", "below 1"),
        ("b,5,10,1.5", "gang", "whole"),
        ("b,5,10,1e9", "gang", "above"),
        ("b,5,1_0,1", "duration", "finite"),
        ("a,5,10,1", "id", "line 2"),  # the same id as on line 2
    ],
)
def test_bad_field_names_file_line_and_field(tmp_path: Path, row: str, field: str, word: str):
    """Line 1 is the header, 2 a good job, 3 is empty (it counts), 4 the bad one."""
    with pytest.raises(TraceError, match=word) as caught:
        csv_trace(tmp_path, f"id,arrival,duration,gang\na,0,10,1\n\n{row}\nc,9,10,1\n")
    assert caught.value.field == field
    assert caught.value.line == 4
    assert f"{tmp_path}/jobs.csv, line 4, field {field!r}" in str(caught.value)


def test_line_numbers_count_lines_inside_quotes_and_filtered_rows(tmp_path: Path):
    """A quoted id over lines 2 and 3 pushes the bad row to line 4."""
    with pytest.raises(TraceError) as caught:
        csv_trace(tmp_path, 'id,arrival,duration,gang\n"a\nb",0,10,1\nc,0,x,1\n')
    assert caught.value.line == 4


def test_row_of_another_width(tmp_path: Path):
    with pytest.raises(TraceError, match=r"5 fields where there are 4 columns") as caught:
        csv_trace(tmp_path, "id,arrival,duration,gang\na,0,10,1\nb,0,10,1,7\n")
    assert caught.value.line == 3


@pytest.mark.parametrize(
    ("text", "field"),
    [("id,arrival,duration\na,0,1\n", "gang"), ("id,arrival,gang\na,0,1\n", "work")],
)
def test_missing_column_lists_what_is_there(tmp_path: Path, text: str, field: str):
    with pytest.raises(TraceError) as caught:
        csv_trace(tmp_path, text)
    assert (caught.value.field, caught.value.line) == (field, 1)


def test_empty_file_no_jobs_and_twice_the_same_column(tmp_path: Path):
    with pytest.raises(TraceError, match="empty"):
        csv_trace(tmp_path, "")
    with pytest.raises(TraceError, match="no job"):
        csv_trace(tmp_path, "id,arrival,duration,gang\n")
    with pytest.raises(TraceError, match="two columns"):
        csv_trace(tmp_path, "id,arrival,duration,gang,gang\na,0,1,1,1\n")


def test_bytes_that_are_not_text(tmp_path: Path):
    file = tmp_path / "jobs.csv"
    file.write_bytes(b"id,arrival,duration,gang\na,0,10,1\n\xff\xfe,0,10,1\n")
    with pytest.raises(TraceError, match="UTF-8"):
        load_trace({"format": "csv", "path": str(file)}, GPU)


def test_windows_line_ends_and_byte_order_mark(tmp_path: Path):
    file = tmp_path / "jobs.csv"
    file.write_bytes(b"\xef\xbb\xbfid,arrival,duration,gang\r\na, 3 ,10,1\r\n")
    trace = load_trace({"format": "csv", "path": str(file)}, GPU)
    assert (trace.id, trace.arrival.tolist()) == (("a",), [3.0])


def test_a8_order_first_arrival_and_no_work(tmp_path: Path):
    """Out of order: sorted, equal times as in the file. A first arrival at 1e6 s stays. No work is no error."""
    text = "id,arrival,duration,gang\nlate,3e6,5,1\nx,1e6,0,1\ny,1e6,7,2\n"
    trace = csv_trace(tmp_path, text)
    assert trace.id == ("x", "y", "late")
    assert trace.arrival.tolist() == [1e6, 1e6, 3e6]
    assert trace.work.tolist() == [0.0, 7.0, 5.0]


def test_a_gang_larger_than_any_cluster_is_the_schedulers_business(tmp_path: Path):
    assert csv_trace(tmp_path, "id,arrival,duration,gang\na,0,10,5000\n").gang.tolist() == [5000]


def test_file_found_under_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.csv").write_text("x\n1\n")
    monkeypatch.setenv("EIFFEL_DATA", str(tmp_path))
    assert find("a.csv") == tmp_path / "a.csv"
    with pytest.raises(TraceError, match=r"b\.csv: no such file, nor .*b\.csv"):
        find("b.csv")


def test_dates_and_seconds(tmp_path: Path):
    file = tmp_path / "t.csv"
    file.write_text("t\n1970-01-02 00:00:05\n1970-01-01T00:00:01\n")
    assert read_table(file, ["t"]).moment("t").tolist() == [86405.0, 1.0]
    file.write_text("t\n7\n8.5\n")
    assert read_table(file, ["t"]).moment("t").tolist() == [7.0, 8.5]
    file.write_text("t\n1970-01-02 00:00:05\n1970-13-01 00:00:00\n")
    with pytest.raises(TraceError, match="date") as caught:
        read_table(file, ["t"]).moment("t")
    assert caught.value.line == 3
    file.write_text("t\n1970-01-02 00:00:05.5\n")
    assert read_table(file, ["t"]).moment("t").tolist() == [86405.5]


def test_rows_kept_know_their_line(tmp_path: Path):
    file = tmp_path / "t.csv"
    file.write_text("n\n1\n2\n3\n4\n")
    table = read_table(file, ["n"])
    odd = table.keep(np.array([True, False, True, False]))
    assert odd.whole("n").tolist() == [1, 3]
    assert odd.line(1) == 4


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"format": "gavl"}, "none of"),
        ({"format": "philly", "pth": "x"}, "did you mean 'path'"),
        ({"format": "csv"}, "trace.path"),
        ({"format": "csv", "path": "none.csv"}, "none.csv: no such file"),
        ({"format": "synthetic", "jobs": 0}, "below 1"),
        ({"format": "synthetic", "jobs": 1.5}, "whole"),
        ({"format": "synthetic", "jobs": True}, "finite"),
        ({"format": "synthetic", "pick": "best"}, "none of"),
        ({"format": "synthetic", "assign_models": "yes"}, "true nor false"),
        ({"format": "synthetic", "gangs": {"one": 1}}, "whole numbers"),
        ({"format": "synthetic", "gangs": {1: -1}}, "shares"),
        ({"format": "synthetic", "lengths": {"kind": "zipf"}}, "none of"),
        ({"format": "synthetic", "lengths": {"mean": 1}}, "no such option"),
        ({"format": "synthetic", "assign_models": True}, "'gpu'"),
        ({"format": "synthetic", "speeds": {"v100": 1}}, "no speed"),
        ({"format": "synthetic", "speeds": {"gpu": 0}}, "runs nowhere|cannot run"),
        ({"format": "synthetic", "arrivals": "poisson"}, "gap"),
        ({"format": "synthetic", "arrivals": "poisson", "load": 1}, "cluster"),
        ({"format": "synthetic", "max_length": 1e-9}, "no job is left"),
    ],
)
def test_options_that_make_no_sense(spec: dict[str, object], word: str):
    with pytest.raises(TraceError, match=word):
        load_trace(spec, GPU)


def test_no_device_types():
    with pytest.raises(TraceError, match="device types"):
        load_trace({"format": "synthetic"}, ())
