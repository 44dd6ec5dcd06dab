"""The run folder: nothing lost but the round that was being written, nothing written twice."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from eiffel.report.folder import CLIENTS, RECORDS, RunFolder, plain, rows_file


def rounds(path):
    return [json.loads(line)["round"] for line in (path / RECORDS).read_text().splitlines()]


def devices(count, **columns):
    return {"device": np.arange(count)} | columns


def test_a_round_is_on_disk_when_record_returns(tmp_path):
    folder = RunFolder(tmp_path)
    folder.record({"round": 1, "seconds": np.float32(2.5)}, devices(3, loss=np.array([0.5, np.nan, 0.25])))
    assert (tmp_path / RECORDS).read_text() == '{"round":1,"seconds":2.5}\n', "read before close"
    table = pq.read_table(rows_file(tmp_path, 1))
    assert table["loss"].to_pylist() == [0.5, None, 0.25]
    assert table["round"].to_pylist() == [1, 1, 1]
    folder.close()
    folder.close()


def test_all_rounds_read_as_one_table_whatever_columns_each_had(tmp_path):
    folder = RunFolder(tmp_path)
    folder.record({"round": 1}, devices(2, status=np.array([0, 255], dtype=np.uint8)))
    folder.record({"round": 2}, devices(2, accuracy=np.array([0.5, 1.0])))
    folder.record({"round": 3}, devices(2, battery=np.ma.array([0.5, 0.9], mask=[True, False])))
    folder.close()
    table = pq.read_table(tmp_path / CLIENTS)
    assert table["status"].to_pylist() == [0, None, None, None, None, None]
    assert table["accuracy"].to_pylist() == [None, None, 0.5, 1.0, None, None]
    assert table["battery"].to_pylist()[4:] == [None, pytest.approx(0.9)]


def test_a_column_of_another_length_is_refused(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(ValueError, match="one length"):
        folder.record({"round": 1}, devices(2, loss=np.zeros(3)))
    folder.close()
    assert rounds(tmp_path) == []


def test_a_half_written_line_is_dropped_on_resume(tmp_path):
    folder = RunFolder(tmp_path)
    folder.record({"round": 1})
    folder.record({"round": 2})
    folder.close()
    with open(tmp_path / RECORDS, "ab") as file:
        file.write(b'{"round":3,"sec')
    folder = RunFolder(tmp_path)
    folder.record({"round": 3})
    folder.close()
    assert rounds(tmp_path) == [1, 2, 3]


def test_truncate_forgets_later_rounds_and_their_rows(tmp_path):
    folder = RunFolder(tmp_path)
    for number in range(1, 6):
        folder.record({"round": number, "first": True}, devices(1))
    folder.truncate(3)
    assert rounds(tmp_path) == [1, 2, 3]
    assert sorted(p.name for p in (tmp_path / CLIENTS).iterdir()) == [
        f"round-00000{i}.parquet" for i in (1, 2, 3)
    ]
    folder.record({"round": 4, "first": False}, devices(2))
    folder.close()
    assert json.loads((tmp_path / RECORDS).read_text().splitlines()[-1]) == {"round": 4, "first": False}
    assert pq.read_table(rows_file(tmp_path, 4)).num_rows == 2
    folder.truncate(0)
    assert rounds(tmp_path) == []
    folder.close()


def test_no_round_is_written_twice(tmp_path):
    folder = RunFolder(tmp_path)
    folder.record({"round": 4})
    folder.close()
    folder = RunFolder(tmp_path)
    for number in (3, 4):
        with pytest.raises(ValueError, match="does not come after round 4"):
            folder.record({"round": number})
    folder.close()
    assert rounds(tmp_path) == [4]


def test_a_damaged_line_is_named(tmp_path):
    (tmp_path / RECORDS).write_text('{"round":1}\nrubbish\n')
    with pytest.raises(ValueError, match=r"records\.jsonl, line 2: not a record"):
        RunFolder(tmp_path)


def test_the_summary_is_replaced_in_one_step(tmp_path):
    folder = RunFolder(tmp_path)
    folder.summary({"status": "running"})
    folder.summary({"status": "finished", "final": {"snr": np.inf, "of": np.array([1, 2])}})
    folder.close()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary == {"status": "finished", "final": {"snr": None, "of": [1, 2]}}
    assert not list(tmp_path.glob(".*.part"))


def test_what_json_cannot_hold_becomes_null_or_text(tmp_path):
    found = plain({"a": np.nan, "b": (np.int64(3), True), 4: tmp_path, "c": {np.float32("-inf")}})
    assert found == {"a": None, "b": [3, True], "4": str(tmp_path), "c": [None]}
