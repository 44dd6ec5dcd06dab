"""Which answers count. Examples are small enough to add up by hand; invariants hold for whole kinds of input."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from eiffel.core.model import Status
from eiffel.core.validate import Form, identity, substance, sumsq, usable, weighted

quick = settings(max_examples=50, deadline=None)
FORM = Form(((2,),), ("float32",))


def judge(values: list[float], examples: float) -> Status:
    return substance([np.array(values, np.float32)], FORM, examples)


def mean_of_the_sound(replies: list[tuple[list[float], float]]) -> tuple[np.ndarray, list[int]]:
    """The weighted mean of what counts, and who was rejected."""
    sound = [(np.array(w), n) for w, n in replies if judge(w, n) == Status.DELIVERED]
    rejected = [k for k, (w, n) in enumerate(replies) if judge(w, n) != Status.DELIVERED]
    total = sum(n for _, n in sound)
    return sum((n * w for w, n in sound), np.zeros(2)) / max(total, 1), rejected


def cases(shared_data: Path, name: str) -> dict:
    case = json.loads((shared_data / "conformance_A.json").read_text())[name]
    return json.loads(json.dumps(case).replace('"nan"', "NaN"))


def test_an_update_of_no_examples_is_left_out(shared_data: Path) -> None:
    """[1, 2] of 0 examples and [3, 4] of 10: the mean is [3, 4]."""
    case = cases(shared_data, "A1")
    mean, rejected = mean_of_the_sound([tuple(r) for r in case["replies"]])
    assert mean.tolist() == case["expect"]
    assert rejected == [0]


def test_a_non_finite_update_is_left_out(shared_data: Path) -> None:
    """[1, 1] x 10 and [2, 2] x 60: (10 + 120) / 70 = 1.857142857; [NaN, 5] x 30 does not count."""
    case = cases(shared_data, "A2")
    mean, rejected = mean_of_the_sound([tuple(r) for r in case["replies"]])
    assert mean == pytest.approx(case["expect"])
    assert rejected == case["rejected"]
    # The same where the bad one also has no examples.
    without = [(w, 0 if k == 1 else n) for k, (w, n) in enumerate(case["replies"])]
    assert mean_of_the_sound(without)[0] == pytest.approx(case["expect"])


def test_a_device_counts_once_however_often_it_answers(shared_data: Path) -> None:
    """0 x 50 twice from node 1 and 1 x 50 from node 2: the mean is .5, not .333."""
    case, seen, kept = cases(shared_data, "A3"), set(), []
    asked = {"q1": "n1", "q2": "n2"}
    questions = {node: q for q, node in asked.items()}
    verdicts = []
    for node, value, n in case["replies"]:
        verdicts.append(identity(questions[node], node, asked, (), seen))
        seen.add(questions[node])
        if verdicts[-1] == Status.DELIVERED:
            kept.append((value, n))
    assert verdicts == [Status.DELIVERED, Status.DUPLICATE, Status.DELIVERED]
    assert sum(v * n for v, n in kept) / sum(n for _, n in kept) == case["expect"]


def test_devices_may_measure_different_things(shared_data: Path) -> None:
    """loss (10 x 1 + 30 x 2)/40 = 1.75; acc (5 + 21)/40 = .65; f1 only from 30 of 40 examples: .2."""
    case = cases(shared_data, "A5")
    means = weighted([(row.pop("n"), row) for row in case["replies"]])
    want = case["expect"]
    assert means["loss"] == (pytest.approx(want["loss"]), 1.0)
    assert means["acc"] == (pytest.approx(want["acc"]), 1.0)
    assert means["f1"] == (pytest.approx(want["f1"]), want["f1_cov"])


@pytest.mark.parametrize("examples", [0, -5, math.inf, math.nan])
def test_a_weight_that_is_no_positive_number_is_bad(examples: float) -> None:
    assert judge([1.0, 2.0], examples) == Status.BAD_WEIGHT


def test_a_shape_or_type_that_was_not_sent_out_is_bad() -> None:
    assert substance([np.zeros(3, np.float32)], FORM, 1) == Status.BAD_SHAPE
    assert substance([np.zeros(2, np.float64)], FORM, 1) == Status.BAD_SHAPE
    assert substance([np.zeros(2, np.float32)] * 2, FORM, 1) == Status.BAD_SHAPE
    assert substance([], FORM, 1) == Status.BAD_SHAPE


def test_an_answer_belongs_to_one_question_and_one_node() -> None:
    asked = {"now": 7}
    assert identity("now", 7, asked, {"before"}, set()) == Status.DELIVERED
    assert identity("now", 8, asked, {"before"}, set()) == Status.FOREIGN
    assert identity("never", 7, asked, {"before"}, set()) == Status.FOREIGN
    assert identity("before", 7, asked, {"before"}, set()) == Status.STALE
    assert identity("now", 7, asked, {"before"}, {"now"}) == Status.DUPLICATE


any_float = st.floats(width=32)


@quick
@given(hn.arrays(np.float32, (2,), elements=any_float), st.floats())
def test_only_finite_updates_of_a_positive_weight_count(values: np.ndarray, examples: float) -> None:
    counts = substance([values], FORM, examples) == Status.DELIVERED
    assert counts == (bool(np.isfinite(values).all()) and math.isfinite(examples) and examples > 0)


@quick
@given(st.lists(hn.arrays(np.float32, (4,), elements=any_float), min_size=1, max_size=6))
def test_received_and_simulated_updates_are_refused_by_the_same_rule(updates: list[np.ndarray]) -> None:
    """The engines that train simulated devices sum |u|^2 in float32 and refuse where it is not finite."""
    torch = pytest.importorskip("torch")
    from eiffel.train.streams import accumulate

    for update in updates:
        here = sumsq(update)
        there = accumulate(torch.zeros(4), torch.from_numpy(update.copy()), 1.0)
        assert bool(usable(np.array([here]))[0]) == math.isfinite(there)


@quick
@given(
    st.lists(
        st.tuples(
            st.floats(-2, 100),
            st.dictionaries(st.sampled_from(["loss", "acc", "f1"]), st.floats(allow_nan=True), max_size=3),
        ),
        max_size=6,
    )
)
def test_means_stay_within_what_was_measured(metrics: list[tuple[float, dict[str, float]]]) -> None:
    sound = [(n, row) for n, row in metrics if n > 0]
    for name, (mean, coverage) in weighted(metrics).items():
        known = [row[name] for n, row in sound if name in row and math.isfinite(row[name])]
        room = 1e-9 * max(abs(v) for v in known)
        assert min(known) - room <= mean <= max(known) + room
        assert 0 < coverage <= 1
