"""The ledger by hand: useful and wasted, participation, probes, and the rows of a round."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import outcomes, plan, snapshot

from eiffel.core.ledger import NO_STATUS, Ledger, record, rows, scored
from eiffel.core.model import Reason, Scores, Status


def round_(who: list[int], status: list[int], n: int = 4, number: int = 1):
    out = outcomes(number, who, [1.0] * len(who))
    return snapshot(n), plan(who, n, number), replace(out, status=np.array(status, np.uint8))


def test_useful_and_wasted_joules() -> None:
    """Three devices spend 1 J each; one is late and one runs flat: 1 J useful, 2 J wasted, bytes all count."""
    world, p, out = round_([0, 1, 3], [Status.DELIVERED, Status.LATE, Status.FLAT])
    ledger = Ledger.open(4).add(world, p, out)
    assert (ledger.totals.joules_useful, ledger.totals.joules_wasted) == (1.0, 2.0)
    assert (ledger.totals.bytes_down, ledger.totals.bytes_up) == (120, 168)
    assert ledger.flat.tolist() == [False, False, False, True]
    row = record(ledger, world, p, out)
    assert row["lost"] == {"late": 1, "flat": 1}
    assert row["refused"] == {"not_drawn": 1}
    assert row["status"] == "ok"
    assert row["flat"] == 1


def test_participation_jain_by_hand() -> None:
    """Deliveries 2, 1, 0, 1: (4)^2 / (4 * (4 + 1 + 0 + 1)) = 16/24."""
    ledger = Ledger.open(4)
    for who in ([0, 1], [0, 3]):
        ledger = ledger.add(*round_(who, [0, 0]))
    assert ledger.participation.tolist() == [2, 1, 0, 1]
    assert ledger.participation_jain == pytest.approx(16 / 24)
    assert ledger.distinct == 3


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 7), unique=True, min_size=1), min_size=1, max_size=8))
def test_running_sums_equal_the_sums_over_all_rounds(cohorts: list[list[int]]) -> None:
    ledger, spent = Ledger.open(8), 0
    for who in map(sorted, cohorts):
        status = [Status.DELIVERED if d % 2 else Status.LEFT for d in who]
        ledger = ledger.add(*round_(who, status, 8))
        spent += len(who)
    x = ledger.participation.astype(float)
    assert ledger.totals.joules_useful + ledger.totals.joules_wasted == spent
    assert ledger.totals.joules_useful == x.sum() == ledger.delivered
    if x.any():
        assert ledger.participation_jain == pytest.approx(x.sum() ** 2 / (8 * (x**2).sum()))
    else:
        assert ledger.participation_jain is None


def test_a_probe_is_charged_to_the_round_that_follows() -> None:
    """Probe: 3 devices, 3 J, 1 s; round: 2 devices, 2 J, 1 s."""
    world, p, out = round_([0, 1], [0, 0])
    ask, answers = replace(plan([0, 1, 2], 4), steps=np.zeros(3, np.int64)), outcomes(1, [0, 1, 2], [1, 2, 3])
    answers = replace(answers, start_s=-1.0, end_s=0.0, steps=np.zeros(3, np.int64))
    ledger = Ledger.open(4).spend(ask, answers).add(world, p, out)
    row = record(ledger, world, p, out, (ask, answers))
    assert (row["probed"], row["joules"], row["total_joules"]) == (3, 5.0, 5.0)
    assert (row["start_s"], row["seconds"], row["total_s"]) == (-1.0, 2.0, 2.0)
    assert row["steps"] == 2
    assert ledger.participation.tolist() == [1, 1, 0, 0]


def test_nobody_chosen_is_an_idle_round() -> None:
    world, p, out = round_([], [])
    row = record(Ledger.open(4).add(world, p, out), world, p, out)
    assert row["status"] == "idle"
    assert row["loss_in"] is None
    assert row["participation_jain"] is None


def test_rows_hold_every_device_or_the_cohort_of_a_large_fleet() -> None:
    world, p, out = round_([1, 3], [Status.DELIVERED, Status.SILENT])
    p = replace(p, reason=np.array([Reason.OFFLINE, 0, Reason.NOT_DRAWN, 0], np.uint8))
    score = Scores(np.array([0.1, 0.2, 0.3, 0.4]), np.ones(4), np.ones(4, np.int64))
    table = rows(world, p, out, score)
    assert table["device"].tolist() == [0, 1, 2, 3]
    assert table["status"].tolist() == [NO_STATUS, 0, NO_STATUS, Status.SILENT]
    assert table["reason"].tolist() == [Reason.OFFLINE, 0, Reason.NOT_DRAWN, 0]
    assert table["battery"].tolist() == [0.5] * 4
    assert table["accuracy"].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert rows(world, p, out, score, limit=3)["device"].tolist() == [1, 3]


def test_scores_carry_both_models() -> None:
    score = Scores(np.array([0.5, 1.0]), np.array([1.0, 3.0]), np.array([1, 3]))
    row = scored({"round": 1, "scores": None}, "ema", {"last": score, "ema": score})
    assert row["scores"]["served"] == "ema"
    assert row["scores"]["last"]["accuracy"] == 0.75
    assert row["scores"]["last"]["accuracy_weighted"] == pytest.approx(0.875)
    assert row["scores"]["last"]["variance"] == pytest.approx(625.0)
