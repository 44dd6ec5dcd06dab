"""The same card, seed and data: the same plans, and the same weights to 1e-6, whoever carries the messages."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import flower_apps
import numpy as np
import pytest
from flwr.app import ConfigRecord

pytest.importorskip("torch")

from eiffel import config as cfg
from eiffel.core import loop
from eiffel.core.journal import Books
from eiffel.core.ledger import Ledger
from eiffel.core.model import Scores
from eiffel.flower import EiffelGrid, Strategy
from eiffel.flower.composing import composed
from eiffel.simulation import simulate
from eiffel.worlds.devices import build_fleet
from eiffel.worlds.fleet import FleetWorld
from eiffel.worlds.gather import Basket, Report

SMALL = [
    "datasets=digits",
    "datasets.clients=20",
    "cohort.size=6",
    "rounds=5",
    "report.terminal=off",
    "seed=4",
]
COSTS = ("bytes", "joules", "seconds", "steps", "refused", "lost", "chosen", "delivered")


def simulated(folder: Path, *overrides: str) -> tuple[list[dict], dict[str, np.ndarray]]:
    """Records and models of a simulation."""
    simulate(composed("sim", [*SMALL, *overrides]), folder)
    lines = (folder / "records.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines], dict(np.load(folder / "model.npz"))


def plans(folder: Path) -> dict[str, list]:
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "clients.parquet").to_pydict()
    return {name: table[name] for name in ("round", "device", "reason", "status", "steps")}


def assert_same(one: Path, other: Path, first: tuple, second: tuple) -> None:
    assert plans(one) == plans(other)
    for mine, theirs in zip(first[0], second[0], strict=True):
        assert [mine[name] for name in COSTS] == [theirs[name] for name in COSTS]
    for name in ("last", "ema"):
        np.testing.assert_allclose(first[1][name], second[1][name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("card", cfg.options("strategies", "sim"))
def test_flowers_messages_change_no_result(card: str, tmp_path: Path) -> None:
    """The plain simulation against the ClientApp in the in-process grid, a flat fleet with losses of its own.

    The model has no kinks: with ReLUs a difference in the last bit can take a sample to the other side of one, and
    50 steps make 1e-4 out of 1e-8, whatever the card.
    """
    more = [f"strategies={card}", "fleet.dropout=0.2", "datasets.model={kind:logistic,hidden:[]}", "rounds=3"]
    first = simulated(tmp_path / "fleet", "engine=single", *more)
    second = simulated(tmp_path / "grid", "engine=inproc", *more)
    assert_same(tmp_path / "fleet", tmp_path / "grid", first, second)


def test_the_number_of_workers_changes_no_result(tmp_path: Path) -> None:
    """Bit for bit: sums are taken device after device, whoever answered first."""
    one = simulated(tmp_path / "one", "engine=inproc", "rounds=3")
    two = simulated(tmp_path / "two", "engine=inproc", "engine.workers=2", "rounds=3")
    for name in ("last", "ema"):
        assert one[1][name].tobytes() == two[1][name].tobytes()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'flwr[simulation]'")
@pytest.mark.filterwarnings("ignore")
def test_flowers_own_engine_changes_no_result(tmp_path: Path) -> None:
    first = simulated(tmp_path / "fleet", "engine=single", "rounds=3")
    second = simulated(tmp_path / "ray", "engine=flower", "engine.nodes=4", "rounds=3")
    assert_same(tmp_path / "fleet", tmp_path / "ray", first, second)


class LinearTrainer:
    """The numpy app's own gradient descent as a simulated fleet's trainer."""

    size = 6

    def initial(self, seed: int) -> np.ndarray:
        return np.zeros(6, np.float32)

    def train(self, plan, device, steps, seed):
        basket = Basket(len(device), 6)
        for d, tau in zip(device.tolist(), steps.tolist(), strict=True):
            w, loss = flower_apps.descend(plan.params.reshape(3, 2), d, tau, 0.05)
            report = Report(len(flower_apps.samples(d)[0]), tau, first_loss=loss)
            basket.add(d, plan.params - w.ravel(), report)
        return basket.close(plan)

    def score(self, params) -> Scores:
        nan = np.full(15, np.nan)
        return Scores(nan, nan, np.zeros(15, np.int64))

    def close(self) -> None:
        pass


@pytest.mark.parametrize("card", ["eiffel", "uniform", "oort"])
def test_a_numpy_app_on_a_simulated_fleet_matches_the_plain_simulation(card: str) -> None:
    """A stock app under Strategy, with the fleet's clock and energy, against the same arithmetic in FleetWorld."""
    words = ["cohort.size=5", "seed=2"]
    fleet = build_fleet(composed("sim", ["fleet=phones"])["fleet"], 15, 6, 2)
    grid = EiffelGrid(flower_apps.app, 15, fleet=fleet)
    strategy = Strategy.card(card, *words, score_every=0)
    ours = strategy.start(grid, flower_apps.initial(), 6, train_config=ConfigRecord({"lr": 0.05}))

    world = FleetWorld(fleet, LinearTrainer(), np.ones(15, np.int32), seed=2)
    rows, method = [], strategy.method
    books = Books(world, method, Ledger.open(15), rounds=10**9, score_every=10**9,
                  sinks=[lambda row, columns: rows.append(row)])  # fmt: skip
    ended = loop.run(world, method, books, method.init(np.zeros(6, np.float32), 15), rounds=6, seed=2)
    for mine, theirs in zip(ours.records, rows, strict=True):
        assert [mine[name] for name in COSTS] == [theirs[name] for name in COSTS]
    served = method.models(ended.state)[method.served]
    np.testing.assert_allclose(ours.arrays["w"].numpy().ravel(), served, rtol=1e-6, atol=1e-6)
