"""Eiffel's selection: the formula by hand, each part on its own, and the corners."""

import math

import numpy as np
import pytest
from scipy import stats
from support import outcomes, snapshot

from eiffel.core.model import Reason
from eiffel.select import Candidates, EiffelSelect, Tempo
from eiffel.select.candidates import draw, top
from eiffel.select.eiffel import log_cost
from eiffel.select.rank import LossRank, bins


def among(n: int, task_s=None, task_j=None, alignment: float = 0.0, mask=None, **more) -> Candidates:
    ones = np.ones(n, np.float32)
    return Candidates(
        snapshot(n, **{k: v for k, v in more.items() if not k.startswith("price")}),
        np.ones(n, bool) if mask is None else mask,
        ones if task_s is None else np.asarray(task_s, np.float32),
        ones if task_j is None else np.asarray(task_j, np.float32),
        Tempo(1, alignment, False),
        **{k: v for k, v in more.items() if k.startswith("price")},
    )


def scores(rule: EiffelSelect, losses, last, candidates: Candidates) -> np.ndarray:
    state = rule.init(len(losses))
    loss = np.asarray(losses, np.float32)
    state = type(state)(loss, np.asarray(last, np.int32), LossRank.of(loss), 4)
    return rule.choose(state, candidates, 1, np.random.default_rng(0))[1]


def test_the_score_by_hand() -> None:
    """Four devices in round 5, alignment 1/3, so gamma = 1/2 + 3/2 * 1/3 = 1.

    losses .5, 2, 1, never -> ranks 1/4, 3/4, 2/4, 4/4. Last deliveries 4, 1, 3, 0 -> ages 1, 4, 2, 5.
    seconds 1, 1, 2, 4 (mean 2), joules 1, 3, 2, 2 (mean 2) -> D = 1/2 s/2 + 1/2 j/2 = .5, 1, 1, 1.5.
    samples 4, 1, 9, 16 (their sum is a constant factor and is left out).
    P = R^2 sqrt(n) age / D:  1/16*2*1/.5 = .25;  9/16*1*4/1 = 2.25;  1/4*3*2/1 = 1.5;  1*4*5/1.5 = 13.33
    """
    candidates = among(
        4, [1, 1, 2, 4], [1, 3, 2, 2], alignment=1 / 3, examples=np.array([4, 1, 9, 16], np.int32), round_=5
    )
    score = scores(EiffelSelect(), [0.5, 2, 1, np.nan], [4, 1, 3, 0], candidates)
    np.testing.assert_allclose(np.exp(score), [0.25, 2.25, 1.5, 40 / 3], rtol=1e-5)


@pytest.mark.parametrize(
    ("off", "expected"),
    [
        ({"q": 0}, [4, 4, 6, 40 / 3]),
        ({"size": 0}, [0.125, 2.25, 0.5, 10 / 3]),
        ({"age": 0}, [0.25, 0.5625, 0.75, 8 / 3]),
        ({"gamma_min": 0, "gamma_span": 0}, [0.125, 2.25, 1.5, 20]),
        ({"need": "raw", "q": 1}, [2, 8, 6, 80 / 3]),
    ],
)
def test_every_part_can_be_switched_off(off: dict, expected: list[float]) -> None:
    """The hand example above without one factor; the raw loss takes the largest known (2) for unknown ones."""
    candidates = among(
        4, [1, 1, 2, 4], [1, 3, 2, 2], alignment=1 / 3, examples=np.array([4, 1, 9, 16], np.int32), round_=5
    )
    score = scores(EiffelSelect(**off), [0.5, 2, 1, np.nan], [4, 1, 3, 0], candidates)
    np.testing.assert_allclose(np.exp(score), expected, rtol=1e-5)


def test_prices_below_one_flatten_and_above_one_steepen() -> None:
    """D = price_j j/mean(j) + (1 - price_j): with price 0 cost is indifferent; with price 2 it is squared."""
    free = log_cost(among(2, task_j=[1, 3], price_s=0.0, price_j=0.0))
    np.testing.assert_allclose(free, [0, 0])
    dear = log_cost(among(2, task_j=[1, 3], price_s=0.0, price_j=2.0))
    np.testing.assert_allclose(dear, 2 * np.log([1.0, 3.0]), rtol=1e-6)


def test_smoothing_takes_the_first_loss_as_it_is() -> None:
    """First report 2 -> 2; then 1 -> (2 + 1)/2 = 1.5. The rank histogram follows."""
    rule = EiffelSelect()
    state = rule.init(3)
    state = rule.learn(state, outcomes(round_=1, device=[1], loss=[2.0]))
    assert state.loss.tolist()[1] == 2.0
    state = rule.learn(state, outcomes(round_=2, device=[1], loss=[1.0]))
    assert state.loss[1] == 1.5
    assert state.last.tolist() == [0, 2, 0]
    np.testing.assert_array_equal(state.rank.log_rank(), LossRank.of(state.loss).log_rank())


def test_ranks_follow_the_losses_and_the_unknown_rank_highest() -> None:
    rank = np.exp(LossRank.of(np.array([3, 1, 2, np.nan, np.nan], np.float32)).log_rank())
    np.testing.assert_allclose(rank, [3 / 5, 1 / 5, 2 / 5, 1, 1], rtol=1e-6)


@pytest.mark.parametrize("n", [400, 70_000])
def test_ranks_follow_changes_exactly(n: int) -> None:
    rng = np.random.default_rng(1)
    loss = rng.lognormal(size=n).astype(np.float32)
    kept = LossRank.of(loss)
    for _ in range(20):
        who = np.sort(rng.choice(n, 7, replace=False))
        loss[who] = rng.lognormal(size=7)
        kept = kept.changed(who, loss[who])
    np.testing.assert_array_equal(kept.count, LossRank.of(loss).count)
    np.testing.assert_array_equal(kept.log_rank(), LossRank.of(loss).log_rank())


def test_the_histogram_gives_the_ranks_that_sorting_gives() -> None:
    """100,000 devices rank by the histogram; the same losses by counting how many are not larger."""
    loss = np.random.default_rng(2).lognormal(size=100_000).astype(np.float32)
    loss[::7] = np.nan
    kept = LossRank.of(loss)
    upto = np.searchsorted(np.sort(kept.bin), kept.bin, "right") / loss.size
    np.testing.assert_allclose(np.exp(kept.log_rank()), upto, rtol=1e-5)


def test_bins_keep_the_order_of_floats_and_are_finer_than_one_percent() -> None:
    values = np.concatenate([-np.logspace(5, -5, 500), [0.0], np.logspace(-5, 5, 500)]).astype(np.float32)
    assert (np.diff(bins(values).astype(int)) >= 0).all()
    apart = np.float32(1.0) * np.cumprod(np.full(200, 1.0081, np.float32))
    assert (np.diff(bins(apart).astype(int)) >= 1).all()


def test_drawing_matches_successive_sampling_without_replacement() -> None:
    """First draws of Gumbel-top-K with k = 1 are proportional to the weights (chi-squared, p > .001)."""
    weights = np.array([1, 2, 3, 4], float)
    log_weight = np.log(weights).astype(np.float32)
    rng = np.random.default_rng(0)
    counts = np.bincount([int(draw(log_weight, 1, rng)[0]) for _ in range(8000)], minlength=4)
    assert stats.chisquare(counts, 8000 * weights / 10).pvalue > 1e-3


def test_pairs_match_numpys_weighted_choice() -> None:
    """Inclusion frequencies of 2 out of 4 agree with numpy's successive weighted sampling."""
    p = np.array([0.1, 0.2, 0.3, 0.4])
    rng = np.random.default_rng(2)
    ours, numpys = np.zeros(4), np.zeros(4)
    for _ in range(6000):
        ours[draw(np.log(p).astype(np.float32), 2, rng)] += 1
        numpys[rng.choice(4, 2, replace=False, p=p)] += 1
    assert stats.chi2_contingency(np.stack([ours, numpys])).pvalue > 1e-3


@pytest.mark.parametrize("k", [0, 1, 3, 10])
def test_as_many_distinct_candidates_as_there_are(k: int) -> None:
    score = np.array([-np.inf, 1, np.nan, 0, 0], np.float32)
    rng = np.random.default_rng(0)
    for chosen in (draw(score, k, rng), top(score, k)):
        assert len(set(chosen.tolist())) == chosen.size == min(k, 3)
        assert set(chosen.tolist()) <= {1, 3, 4}
        assert (np.diff(chosen) > 0).all()


def test_ties_of_the_best_go_to_the_lower_index() -> None:
    assert top(np.zeros(5, np.float32), 2).tolist() == [0, 1]


@pytest.mark.parametrize("shape", ["spread", "level", "late"])
def test_the_best_of_a_large_fleet_are_those_that_sorting_finds(shape: str) -> None:
    """Also where the sample misleads: all scores equal, or the best ones all where it does not look."""
    score = np.random.default_rng(5).normal(size=200_000).astype(np.float32)
    score = np.zeros_like(score) if shape == "level" else score
    if shape == "late":
        score[1::64] += 100
    expected = np.sort(np.lexsort((np.arange(score.size), -score))[:70])
    np.testing.assert_array_equal(top(score, 70), expected)


def test_everybody_comes_up_because_age_is_unbounded() -> None:
    """The device with the lowest need and the highest cost is still chosen sooner or later."""
    rule, rng = EiffelSelect(), np.random.default_rng(3)
    state = rule.init(20)
    loss = np.linspace(0.1, 2, 20).astype(np.float32)
    cost = np.linspace(5, 1, 20)
    seen = set()
    for round_ in range(1, 400):
        chosen, _ = rule.choose(state, among(20, cost, cost, round_=round_), 2, rng)
        state = rule.learn(state, outcomes(round_=round_, device=chosen, loss=loss[chosen]))
        seen |= set(chosen.tolist())
    assert seen == set(range(20))


def test_nobody_eligible_chooses_nobody() -> None:
    rule = EiffelSelect()
    nobody = among(3, mask=np.zeros(3, bool), reason=np.full(3, Reason.OFFLINE, np.uint8))
    chosen, score = rule.choose(rule.init(3), nobody, 2, np.random.default_rng(0))
    assert chosen.size == 0
    assert (score == -math.inf).all()
