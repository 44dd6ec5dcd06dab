"""Rounds of a simulated fleet, worked out by hand, and what must hold for any of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from eiffel.core.costs import predict, with_probe
from eiffel.core.model import Local, Plan, Reason, Reports, Scores, Status, Trained
from eiffel.worlds.availability import always, timetable
from eiffel.worlds.devices import Fleet
from eiffel.worlds.fleet import FleetWorld

few = settings(max_examples=30, deadline=None)
PARAMS = 3


class Trainer:
    """Updates are all ones; devices in `broken` send NaN. Remembers whom it trained."""

    size = PARAMS

    def __init__(self, broken=()):
        self.broken, self.trained = set(broken), []

    def initial(self, seed):
        return np.zeros(PARAMS, np.float32)

    def train(self, plan, device, steps, seed):
        self.trained.append(device.tolist())
        nothing = np.full(device.size, np.nan)
        reports = Reports(device, np.full(device.size, 30), steps, nothing, nothing)
        bad = np.array([d in self.broken for d in device], bool)
        weights = np.where(bad, 0.0, plan.weigh(reports))
        sums = np.repeat(weights.sum(axis=1, keepdims=True), PARAMS, axis=1).astype(np.float32)
        return Trained(reports, np.where(bad, np.nan, 3.0), weights, sums)

    def score(self, params):
        return Scores(np.ones(1), np.zeros(1), np.ones(1, np.int64))

    def close(self):
        self.trained.append("closed")


def floats(*values):
    return np.array(values, np.float32)


def fleet(step_s=(1, 2, 4), step_j=(2, 1, 1), battery=(100, 4, 50), table=None, **change):
    """Devices that move a megabyte a second; a download takes 1 J and an upload 2 J; one megabyte each way."""
    n = len(step_s)
    same = {name: np.full(n, value, np.float32) for name, value in
            {"down_mbps": 8, "up_mbps": 8, "down_j_mb": 1, "up_j_mb": 2}.items()}  # fmt: skip
    made = Fleet(
        name="hand", kinds=("device",), kind=np.zeros(n, np.uint8), step_s=floats(*step_s), step_j=floats(*step_j),
        capacity_j=np.full(n, 100, np.float32), battery_j=floats(*battery), timetable=table or always(n),
        bytes_down=1_000_000, bytes_up=1_000_000, **same,
    )  # fmt: skip
    return replace(made, **change)


def world(made, examples=None, trainer=None, seed=0):
    return FleetWorld(made, trainer or Trainer(), np.array(examples or [30] * made.size), seed=seed)


def play(of, chosen, steps=3, round_=1, **change):
    """Observe and run one round: 3 steps, and a probe of 30 samples at batch 10, which is 1 step more."""
    seen = of.observe(round_)
    chosen = np.array(chosen, np.int64)
    plan = Plan(
        round=round_, chosen=chosen, steps=np.full(chosen.size, steps), reason=seen.reason,
        params=np.zeros(PARAMS, np.float32), local=Local(batch=10, probe=30),
        weigh=lambda reports: np.ones((1, reports.device.size)), **change,
    )  # fmt: skip
    return of.run(plan)


def there_until(*ends):
    """A timetable by which device i is there from 0 to ends[i], once."""
    n = len(ends)
    return timetable(np.arange(n), np.zeros(n), np.array(ends, float), np.full(n, np.inf))


def test_three_devices_by_hand():
    """All download 1 MB in 1 s for 1 J and work 4 steps' worth (1 probe + 3); an upload takes 1 s and 2 J.

    Device 0: 1 + 4 x 1 + 1 = 6 s and 1 + 4 x 2 + 2 = 11 J of its 100. Delivered.
    Device 1: 1 + 4 x 2 + 1 = 10 s and 7 J, but has 4: 1 J for the download, then 1 J each 2 s: flat after
    1 + 6 = 7 s with 3 of 4 steps' worth done, 2 of them training. Nothing sent.
    Device 2: 1 + 4 x 4 + 1 = 18 s, but leaves after 13 s: 12 of 16 s of work done, 1 + 3 = 4 J, 2 steps.
    The last fate is known at 13 s.
    """
    of = world(fleet(table=there_until(99, 99, 13)))
    out = play(of, [0, 1, 2])
    assert out.status.tolist() == [Status.DELIVERED, Status.FLAT, Status.LEFT]
    assert_allclose(out.seconds, [6, 7, 13])
    assert_allclose(out.joules, [11, 4, 4])
    assert out.steps.tolist() == [3, 2, 2]
    assert out.bytes_down.tolist() == [1_000_000] * 3
    assert out.bytes_up.tolist() == [1_000_000, 0, 0]
    assert (out.start_s, out.end_s) == (0.0, 13.0)
    assert_allclose(of.battery, [89, 0, 46])
    assert of.flat == 1
    assert of.trainer.trained == [[0]]


def test_a_download_cut_short_moves_part_of_the_model():
    """Gone after .25 s of a 1 s download: a quarter of the bytes and of the joule."""
    out = play(world(fleet(table=there_until(0.25, 99, 99))), [0])
    assert out.status.tolist() == [Status.LEFT]
    assert (out.bytes_down.tolist(), out.joules.tolist(), out.steps.tolist()) == ([250_000], [0.25], [0])


def test_a_task_that_ends_with_the_stretch_is_in():
    assert play(world(fleet(table=there_until(6, 99, 99))), [0]).delivered.tolist() == [True]


def test_a_probe_moves_the_model_down_and_part_of_one_up():
    """No steps, half a model up, two down: 2 + 1 x 1 + .5 s, 2 + 2 + 1 J, and that much is moved."""
    out = play(world(fleet()), [0], steps=0, downlink=2.0, uplink=0.5)
    assert (out.seconds.tolist(), out.joules.tolist()) == ([3.5], [5.0])
    assert (out.bytes_down.tolist(), out.bytes_up.tolist()) == ([2_000_000], [500_000])
    assert out.steps.tolist() == [0]


def test_the_prediction_is_the_charge():
    of = world(fleet(battery=(100, 100, 100), overhead_s=2.0, overhead_j=0.5))
    seen = of.observe(1)
    seconds, joules = with_probe(seen, Local(batch=10, probe=30), *predict(seen, 3))
    out = play(of, [0, 1, 2])
    assert_allclose(seconds, out.seconds)
    assert_allclose(joules, out.joules)
    assert_allclose(out.seconds, [8, 12, 20])


def test_the_first_k_suffice_ties_go_to_the_lower_index_and_the_rest_work_on():
    """Devices 0..3 take 6, 10, 6, 18 s. Two suffice: 0 and 2 at 6 s. 1 and 3 spend all the same, busy until done."""
    of = world(fleet((1, 2, 1, 4), (1, 1, 1, 1), (100,) * 4))
    out = play(of, [0, 1, 2, 3], wait_for=2)
    assert out.status.tolist() == [Status.DELIVERED, Status.SURPLUS, Status.DELIVERED, Status.SURPLUS]
    assert (out.end_s, out.joules.tolist(), out.steps.tolist()) == (6.0, [7] * 4, [3] * 4)
    assert of.observe(2).reason.tolist() == [0, Reason.BUSY, 0, Reason.BUSY]
    tied = play(world(fleet([1] * 50, [1] * 50, [100] * 50)), range(50), wait_for=20)
    assert tied.status.tolist() == [Status.DELIVERED] * 20 + [Status.SURPLUS] * 30


def test_the_deadline_ends_the_round_and_the_late_are_busy():
    of = world(fleet(battery=(100, 100, 100)))
    out = play(of, [0, 1, 2], deadline_s=10.0)
    assert out.status.tolist() == [Status.DELIVERED, Status.DELIVERED, Status.LATE]
    assert out.end_s == 10.0
    assert of.observe(2).reason.tolist() == [0, 0, Reason.BUSY]


def test_when_all_are_busy_the_clock_jumps_to_the_first_who_is_done():
    """Tasks of 6, 10 and 18 s, deadline 5 s: nobody is free before 6 s."""
    of = world(fleet(battery=(100, 100, 100)))
    assert not play(of, [0, 1, 2], deadline_s=5.0).delivered.any()
    assert of.observe(2).now == 6.0


@pytest.mark.parametrize(("deadline", "end"), [(np.inf, 6.0), (30.0, 30.0)])
def test_silence_costs_what_it_cost_and_the_server_waits(deadline, end):
    """Without a deadline the server waits until the answer was due (6 s), else until the deadline."""
    of = world(fleet(dropout=1.0))
    out = play(of, [0], deadline_s=deadline)
    assert out.status.tolist() == [Status.SILENT]
    assert 0 <= out.seconds[0] < 6
    assert 0 <= out.joules[0] < 11
    assert out.end_s == end
    assert of.trainer.trained == []


def test_misfortune_belongs_to_device_and_round_whoever_else_was_chosen():
    made = fleet([1] * 400, [0.1] * 400, [100] * 400, dropout=0.3)
    whole, half = play(world(made), range(400)), play(world(made), range(0, 400, 2))
    assert np.array_equal(whole.status[::2], half.status)
    assert 0.2 < (whole.status == Status.SILENT).mean() < 0.4
    others = [
        play(world(made, seed=1), range(400)),
        play(world(made), range(400), round_=2),
        play(world(made, seed=2), range(400)),
        play(world(made, seed=1), range(400), round_=2),
        play(world(made), range(400), steps=0),
    ]
    fallen = np.array([out.status == Status.SILENT for out in (whole, *others)], float)
    assert np.abs(np.corrcoef(fallen) - np.eye(6)).max() < 0.2  # four standard errors of 1/sqrt(400)


def test_updates_that_are_not_finite_do_not_count():
    out = play(world(fleet(battery=(100, 100, 100)), trainer=Trainer(broken=[1])), [0, 1])
    assert out.status.tolist() == [Status.DELIVERED, Status.NON_FINITE]
    assert out.trained.weights.tolist() == [[1.0, 0.0]]


def test_what_the_world_rules_out():
    """No data on 0; device 1 at its floor of 10 %; device 2 comes at 50 s, and the clock goes there."""
    once = timetable(np.arange(3), floats(0, 0, 50), floats(99, 99, 99), np.full(3, np.inf))
    of = world(fleet(battery=(100, 10, 50), table=once, floor=0.1), examples=[0, 30, 30])
    seen = of.observe(1)
    assert seen.reason.tolist() == [Reason.NO_DATA, Reason.BATTERY, 0]
    assert seen.now == 50.0
    with pytest.raises(ValueError, match="chooses device 1, which is battery"):
        play(of, [1])


def test_a_plan_needs_a_snapshot_of_its_own():
    of = world(fleet())
    play(of, [0])
    with pytest.raises(ValueError, match="observe the fleet before every plan"):
        of.run(
            Plan(2, np.array([0]), np.array([1]), np.zeros(3, np.uint8), np.zeros(3), Local(), lambda r: None)
        )


def test_a_run_ends_in_words_when_nobody_will_ever_come():
    of = world(fleet(battery=(0, 0, 50), table=there_until(99, 99, 20)))
    assert play(of, [2]).status.tolist() == [Status.DELIVERED]
    of.observe(2)
    assert play(of, [2], round_=2).status.tolist() == [Status.LEFT]
    assert of.observe(3) is None
    assert of.why.startswith("no device can take part any more; 1 offline")
    assert "2 battery" in of.why


def test_an_empty_plan_lets_time_pass():
    of = world(fleet(idle_s=42.0))
    out = play(of, [])
    assert (out.end_s, out.device.size, out.trained.sums.tolist()) == (42.0, 0, [[0.0] * PARAMS])
    assert of.observe(2).now == 42.0


def test_chargers_lift_batteries_while_devices_are_there():
    """2 W from 0 to 20 s and again every 100 s. A round at 0: 7 J in 6 s, 12 J charged: 50 -> 55.

    At 20 s it has 55 + 14 x 2 = 83; nobody is there until 100 s; then, an idle round to 110 s: full at 100.
    """
    table = timetable(np.array([0]), floats(0), floats(20), np.array([100.0]))
    of = world(fleet([1], [1], [50], table=table, charge_w=2.0, idle_s=10.0))
    assert play(of, [0]).joules.tolist() == [7.0]
    assert_allclose(of.battery, [55])
    play(of, [], round_=2)
    play(of, [], round_=3)
    assert of.observe(4).now == 100.0
    assert_allclose(of.battery, [83])
    play(of, [], round_=4)
    assert of.observe(5).battery_j.tolist() == [100.0]
    assert_allclose(of.charged, 12 + 28 + 17)


def test_an_empty_fleet_waits_on_the_charger_until_it_is_above_its_floor():
    """Floor 10 J, 0 J, 1 W from 50 s on: above it 11 s later at the latest, in one jump."""
    table = timetable(np.array([0]), floats(50), floats(90), np.array([100.0]))
    of = world(fleet([1], [1], [0], table=table, charge_w=1.0, floor=0.1))
    assert of.observe(1).now == 61.0


def test_an_empty_battery_is_charged_night_after_night_in_one_jump():
    """A floor of 10 J takes 11 s of charging at 1 W: 4 s from 50 on, 4 from 150 on, 3 from 250 on: 253 s."""
    table = timetable(np.array([0]), floats(50), floats(54), np.array([100.0]))
    of = world(fleet([1], [1], [0], table=table, charge_w=1.0, floor=0.1))
    assert of.observe(1).now == 253.0
    assert of.battery.tolist() == [11.0]


def test_a_run_ends_when_nobody_is_chosen_and_nothing_can_change():
    of = world(fleet(idle_s=1.0))
    for number in range(1, 11):
        play(of, [], round_=number)
    assert of.observe(11) is None
    assert of.why == "nobody was chosen in 10 rounds, and the fleet will not change"


def random_world(seed, size=6):
    """Devices of all sorts: slow, quick, on mains power, nearly empty, there by day, silent at times."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 60, size)
    table = timetable(
        np.arange(size), start * 1.0, start + rng.integers(1, 40, size) * 1.0, np.full(size, 100.0)
    )
    capacity = np.where(rng.random(size) < 0.2, np.inf, rng.uniform(5, 60, size)).astype(np.float32)
    level = np.where(np.isinf(capacity), np.inf, capacity * rng.random(size, np.float32)).astype(np.float32)
    made = fleet(
        rng.uniform(0.1, 4, size), rng.uniform(0.1, 3, size), level, table=table if seed % 2 else always(size),
        capacity_j=capacity, charge_w=float(rng.choice([0.0, 1.0, 3.0])) if seed % 2 else 0.0,
        dropout=float(rng.choice([0.0, 0.3])), overhead_s=0.5, overhead_j=0.1,
    )  # fmt: skip
    return made, rng


def rounds(of, rng, count, first=1):
    """Play rounds with random cohorts, deadlines and quorums; yields the outcomes."""
    for number in range(first, first + count):
        seen = of.observe(number)
        if seen is None:
            return
        there = np.flatnonzero(seen.reason == 0)
        chosen = np.sort(rng.permutation(there)[: rng.integers(0, there.size + 1)])
        deadline = float(rng.choice([5.0, 20.0, np.inf]))
        yield play(of, chosen, round_=number, deadline_s=deadline, wait_for=int(rng.integers(0, 3)))


@few
@given(st.integers(0, 10_000))
def test_energy_is_conserved_batteries_hold_and_time_goes_on(seed):
    made, rng = random_world(seed)
    of = world(made)
    powered = np.isfinite(made.capacity_j)
    before, spent = of.battery[powered].sum(), 0.0
    for out in rounds(of, rng, 12):
        spent += out.joules[powered[out.device]].sum()
        level = of.battery
        assert (level >= 0).all()
        assert (level <= made.capacity_j).all()
        assert out.end_s > out.start_s
        assert ((out.joules >= 0) & (out.seconds >= 0)).all()
        assert (out.bytes_up[out.delivered] == 1_000_000).all()
        assert (out.seconds[out.delivered] <= out.end_s - out.start_s + 1e-9).all()
    assert_allclose(before - spent + of.charged, of.battery[powered].sum(), rtol=1e-9, atol=1e-6)


@few
@given(st.integers(0, 10_000))
def test_a_restored_world_goes_on_bit_for_bit(seed):
    made, rng = random_world(seed)
    whole = world(made)
    list(rounds(whole, rng, 4))
    again = world(made)
    again.restore(whole.state())
    pair = [list(rounds(of, np.random.default_rng(seed), 5, first=5)) for of in (whole, again)]
    for one, other in zip(*pair, strict=True):
        assert np.array_equal(one.status, other.status)
        assert (one.end_s, one.joules.tolist()) == (other.end_s, other.joules.tolist())
    for key, value in whole.state().items():
        assert np.array_equal(value, again.state()[key]), key


@few
@given(st.integers(0, 10_000))
def test_the_order_of_devices_permutes_the_results_and_changes_none(seed):
    """All different, so no ties; nobody is silent, for luck goes with the device's index."""
    made, rng = random_world(seed)
    made = replace(made, dropout=0.0)
    order = rng.permutation(made.size)
    one, other = world(made), world(made.take(order))
    seen = one.observe(1)
    assert np.array_equal(other.observe(1).reason, seen.reason[order])
    there = np.flatnonzero(seen.reason == 0)
    place = np.argsort(order)[there]
    first = play(one, there, wait_for=2, deadline_s=20.0)
    second = play(other, np.sort(place), wait_for=2, deadline_s=20.0)
    back = np.argsort(np.argsort(place))
    assert first.end_s == second.end_s
    for name in ("status", "seconds", "joules", "steps", "bytes_down", "bytes_up"):
        assert np.array_equal(getattr(first, name), getattr(second, name)[back]), name
    assert np.array_equal(one.battery[order], other.battery)


def test_a_restored_world_charges_what_was_due_when_it_was_saved():
    """There until 20 s, saved at 30 s before anybody looked: the 20 s x 2 W are still to be booked."""
    table = timetable(np.array([0]), floats(0), floats(20), np.array([100.0]))
    made = fleet([1], [1], [50], table=table, charge_w=2.0, idle_s=30.0)
    whole, again = world(made), world(made)
    play(whole, [])
    again.restore(whole.state())
    for of in (whole, again):
        assert of.observe(2).battery_j.tolist() == [90.0]


def test_a_checkpoint_of_another_fleet_is_refused():
    with pytest.raises(ValueError, match="of 3 devices; this fleet has 2"):
        world(fleet((1, 2), (1, 1), (5, 5))).restore(world(fleet()).state())


def test_scores_are_the_trainers_and_close_is_passed_on():
    of = world(fleet())
    assert of.score({"last": np.zeros(3, np.float32)})["last"].accuracy.tolist() == [1.0]
    of.close()
    assert of.trainer.trained == ["closed"]
