"""When devices are there: half-open intervals, any order of questions, against a reference that scans."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eiffel.worlds.availability import DAY_S, HOUR_S, always, nightly, timetable
from eiffel.worlds.fedscale import read_availability, read_capacity, read_plain_pickle

quick = settings(max_examples=50, deadline=None)
ONE = np.zeros(1, np.int64)


def line(intervals, period=np.inf):
    """A timetable of one device."""
    start, end = np.array(intervals, float).reshape(-1, 2).T
    return timetable(np.zeros(start.size, int), start, end, np.array([period]))


def ask(table, times):
    """The device's answers to a list of times, all in one question."""
    device = np.zeros(len(times), np.int64)
    return table.available(device, np.array(times, float)).astype(int).tolist()


def test_case_a7_half_open_periodic_and_any_order():
    """[0,50) [100,150) [200,250), again every 300 s: 49.9 is in, 50 is out, 300 is in again."""
    table = line([(0, 50), (100, 150), (200, 250)], 300)
    truth = {0: 1, 49.9: 1, 50: 0, 75: 0, 130: 1, 210: 1, 260: 0, 299: 0, 300: 1, 310: 1, 510: 1}
    assert ask(table, list(truth)) == list(truth.values())
    assert ask(table, [510, 20, 130, 210]) == [truth[510], 1, 1, 1]
    assert table.next_available(ONE, 260.0).tolist() == [300.0]
    assert table.until(ONE, 240.0).tolist() == [250.0]  # so a task that spans 240..260 is lost at 250


def test_case_a7_as_recorded(shared_data):
    case = json.loads((shared_data / "conformance_A.json").read_text())["A7"]
    table = line(case["active"], case["period"])
    assert ask(table, [float(t) for t in case["truth"]]) == list(case["truth"].values())


def test_a_stretch_across_the_seam_of_the_period_is_one():
    """[80,100) and [0,30) of every 100 s: at 90 it lasts until 130."""
    table = line([(80, 130)], 100)
    assert table.until(ONE, 90.0).tolist() == [130.0]
    assert table.until(ONE, 310.0).tolist() == [330.0]
    assert table.next_available(ONE, 40.0).tolist() == [80.0]


def test_intervals_that_touch_are_one_and_a_full_period_never_ends():
    assert line([(0, 50), (50, 100)]).until(ONE, 10.0).tolist() == [100.0]
    assert line([(0, 60), (40, 100)], 100).until(ONE, 10.0).tolist() == [np.inf]


def test_a_trace_that_does_not_repeat_ends():
    table = line([(10, 20)])
    assert table.next_available(ONE, 5.0).tolist() == [10.0]
    assert table.next_available(ONE, 20.0).tolist() == [np.inf]


def test_a_device_that_is_never_there():
    table = timetable(np.array([1]), np.array([0.0]), np.array([5.0]), np.array([10.0, 10.0]))
    assert table.available(np.array([0, 1]), 3.0).tolist() == [False, True]
    assert table.next_available(np.array([0, 1]), 7.0).tolist() == [np.inf, 10.0]


def test_always_costs_no_memory_and_never_ends():
    table = always(1_000_000)
    some = np.array([0, 999_999])
    assert table.always
    assert table.available(some, 1e9).all()
    assert np.isinf(table.until(some, 1e9)).all()
    assert table.row.strides == (0,)


@pytest.mark.parametrize(
    ("intervals", "period"),
    [([(5, 5)], 10), ([(-1, 5)], 10), ([(12, 15)], 10), ([(0, 11)], 10), ([(0, 1)], 0)],
)
def test_impossible_intervals_are_refused(intervals, period):
    with pytest.raises(ValueError, match="availability line 0"):
        line(intervals, period)


def scan(intervals, period, time):
    """The reference: is any interval, or its repetition, open at `time`?"""
    phase = time % period
    return any(start <= at < end for start, end in intervals for at in (phase, phase + period))


@quick
@given(st.data())
def test_any_timetable_answers_as_a_scan_does(data):
    """Whole seconds and questions in halves, so that the scan can try every moment at which it can change."""
    period = data.draw(st.integers(3, 40))
    spans = st.tuples(st.integers(0, period - 1), st.integers(1, period)).map(lambda s: (s[0], s[0] + s[1]))
    intervals = data.draw(st.lists(spans, min_size=1, max_size=6))
    times = data.draw(st.lists(st.integers(0, 6 * period).map(lambda t: t / 2), min_size=1, max_size=8))
    table = line(intervals, period)
    device = np.zeros(len(times), np.int64)
    there = [scan(intervals, period, t) for t in times]
    moments = [[t, *np.arange(np.floor(t) + 1, t + 2 * period + 1)] for t in times]
    comes = [next(m for m in ms if scan(intervals, period, m)) for ms in moments]
    goes = [next((m for m in ms if not scan(intervals, period, m)), np.inf) for ms in moments]
    assert table.available(device, np.array(times)).tolist() == there
    assert table.next_available(device, np.array(times)).tolist() == comes
    assert table.until(device, np.array(times)).tolist() == goes


CARD = {
    "plug_h": 23.0,
    "plug_sd_h": 1.5,
    "hours": 7.5,
    "hours_sd": 1.5,
    "night_sd_h": 0.5,
    "skip": 0.1,
    "days": 7,
}


def test_nights_are_for_charging():
    table = nightly(CARD, 2000, np.random.default_rng(0))
    device = np.arange(2000)
    share = {h: table.available(device, 3 * DAY_S + h * HOUR_S).mean() for h in (3, 13)}
    assert share[3] > 0.8  # most people are asleep and one night in ten is skipped
    assert share[13] < 0.02
    assert (table.end - table.start).mean() < 8.5 * HOUR_S


def test_nights_are_a_function_of_the_generator():
    first, again = (nightly(CARD, 50, np.random.default_rng(3)) for _ in range(2))
    assert np.array_equal(first.start, again.start)
    assert np.array_equal(first.first, again.first)


def trace(**change):
    entry = {"duration": 90, "active": [0, 100], "inactive": [50, 140], "finish_time": 200, "model": "x"}
    return {1: entry | change, 7: {"active": [5], "inactive": [15], "finish_time": 20}}


def write(path, value):
    path.write_bytes(pickle.dumps(value))
    return str(path)


def test_fedscale_availability_follows_its_clients(tmp_path):
    """Four devices on two clients: each client twice. At 110 s client 1 is in [100,140), client 7 in [105,115)."""
    table = read_availability(write(tmp_path / "behave", trace()), 4, np.random.default_rng(0))
    assert table.available(np.arange(4), 110.0).all()
    assert sorted(table.until(np.arange(4), 110.0)) == [115.0, 115.0, 140.0, 140.0]
    many = read_availability(str(tmp_path / "behave"), 40, np.random.default_rng(1))
    assert np.bincount(many.row).tolist() == [20, 20]


def test_fedscale_capacity_gives_spread_and_rates(tmp_path):
    """Clients of 10, 20 and 90 ms: .5, 1 and 4.5 times the median; 5,000 kbit/s are 5 Mbit/s."""
    clients = {i: {"computation": c, "communication": 5000.0} for i, c in enumerate((10, 20, 90))}
    slower, mbps = read_capacity(write(tmp_path / "cap", clients), 3, np.random.default_rng(0))
    assert sorted(slower) == [0.5, 1.0, 4.5]
    assert mbps.tolist() == [5.0] * 3


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_a_pickle_that_wants_to_run_code_is_refused_and_does_not_run(tmp_path):
    with pytest.raises(ValueError, match=r"trace.*open.*only plain"):
        read_plain_pickle(write(tmp_path / "trace", {1: Bomb(str(tmp_path / "boom"))}))
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize("content", [b"", b"\x80", b"not a pickle", pickle.dumps({1: {}})[:-2]])
def test_damaged_files_are_refused_by_name(tmp_path, content):
    (tmp_path / "trace").write_bytes(content)
    with pytest.raises(ValueError, match=r"trace: cannot be read"):
        read_plain_pickle(str(tmp_path / "trace"))


@pytest.mark.parametrize(
    "change",
    [{"inactive": [50]}, {"active": None}, {"finish_time": 0}, {"inactive": [50, 90]}, {"active": [0, 1e9]}],
)
def test_odd_clients_are_refused_by_name(tmp_path, change):
    with pytest.raises(ValueError, match=r"behave, client 1"):
        read_availability(write(tmp_path / "behave", trace(**change)), 4, np.random.default_rng(0))
