"""Robust rules as a strategy sees them: one wild update does not move the model, and a run goes through."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import outcomes, reports

from eiffel import config as cfg
from eiffel.aggregate import Robust
from eiffel.select import Tempo
from eiffel.simulation import simulate

UPDATES = np.array([[1.0], [2.0], [3.0], [4.0], [1000.0]], np.float32)


def step(rule: Robust, updates: np.ndarray = UPDATES) -> float:
    k = len(updates)
    weights = rule.weigh(None, reports([1.0] * k), Tempo())
    out = outcomes(1, range(k), [1.0] * k, updates, weights)
    return float(rule.step(None, replace(out, trained=replace(out.trained, full=updates)))[1][0])


def test_by_hand() -> None:
    """Of 1, 2, 3, 4, 1000: median 3; without a fifth at either end (2 + 3 + 4)/3 = 3; the mean would be 202.

    Krum against one attacker sums squared distances to 5 - 1 - 2 = 2 neighbours: 1 + 4, 1 + 1, 1 + 1, 1 + 4:
    the tie between 2 and 3 goes to the lower row.
    """
    assert step(Robust()) == 3.0
    assert step(Robust(reduce="trimmed", trim=0.2)) == 3.0
    assert step(Robust(reduce="krum", attackers=1)) == 2.0


def test_krum_with_too_few_updates_leaves_the_model() -> None:
    assert step(Robust(reduce="krum", attackers=1), UPDATES[:4]) == 0.0


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="trim must lie"):
        Robust(trim=0.5)


@pytest.mark.parametrize("reduce", ["median", "trimmed", "krum"])
def test_a_run_from_the_command_line(reduce: str, tmp_path: Path) -> None:
    from hydra import compose, initialize_config_dir

    cfg.register()
    choice = ["strategies=uniform", "strategies/weights@strategies.aggregate.weights=robust"]
    small = ["rounds=3", "datasets.clients=12", "cohort.size=6", "report=quiet", "engine=single"]
    with initialize_config_dir(str(cfg.CONF), version_base=None):
        config = cfg.plain(compose("sim", [*choice, f"strategies.aggregate.weights.reduce={reduce}", *small]))
    summary = simulate(config, tmp_path / "run")
    assert summary["status"] == "finished"
    assert summary["final"]["served"]["accuracy"] > 0.3
