"""A federation that devices join: every method's state grows, and what was known stays."""

from pathlib import Path

import numpy as np
import pytest

from eiffel import config as cfg
from eiffel.core.checkpoint import flatten
from eiffel.core.ledger import Ledger
from eiffel.core.widen import widen
from eiffel.flower.composing import composed

ROOT = Path(__file__).resolve().parents[2]
CARDS = sorted(
    path.stem
    for path in (ROOT / "strategies").glob("*.yaml")
    if not path.stem.startswith("_") and "policy:" not in path.read_text()
)
REBALANCED = {"afl: aggregate.weights"}
"""Shares that sum to one over the fleet; they are put back on the simplex at the next step."""


@pytest.mark.parametrize("card", CARDS)
def test_every_fresh_state_widens_to_a_fresh_state(card: str) -> None:
    method = cfg.build_method(composed("strategy", [f"strategies={card}"]), 10)
    params = np.zeros(6, np.float32)
    wide = flatten(widen(method.init(params, 4), method.init(params, 7)))
    fresh = flatten(method.init(params, 7))
    assert wide.keys() == fresh.keys()
    for name, value in fresh.items():
        assert wide[name].shape == value.shape
        if f"{card}: {name}" not in REBALANCED:
            np.testing.assert_array_equal(wide[name], value, err_msg=f"{card}: {name}")


def test_history_comes_first_and_newcomers_follow() -> None:
    """Devices 0 and 1 took part 3 and 1 times; the third, new one never did."""
    ledger = Ledger.open(2)
    ledger.participation[:] = [3, 1]
    assert widen(ledger, Ledger.open(3)).participation.tolist() == [3, 1, 0]


def test_ranks_count_the_newcomers() -> None:
    """Losses 1 and 2 are ranks 1/3 and 2/3 of three devices; the newcomer, unheard, has rank 1."""
    from eiffel.select.rank import LossRank

    two, three = (LossRank.of(np.array(x, np.float32)) for x in ([1.0, 2.0], [np.nan] * 3))
    assert np.exp(widen(two, three).log_rank()) == pytest.approx([1 / 3, 2 / 3, 1.0])
