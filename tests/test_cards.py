"""Every strategy card of a federation builds, runs three rounds, and says what its method promises."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from eiffel import config as cfg
from eiffel.method import Method
from eiffel.simulation import resume, simulate

FOLDER = Path(__file__).resolve().parents[1] / "strategies"
TINY = [
    "datasets.clients=12",
    "rounds=3",
    "cohort.size=4",
    "engine=single",
    "score_every=3",
    "datasets.steps=4",
]


def federated(name: str) -> bool:
    """Whether a card descends from `_card`; the others are for clusters."""
    card = OmegaConf.load(FOLDER / f"{name}.yaml")
    parents = [entry for entry in card.get("defaults", []) if isinstance(entry, str) and entry != "_self_"]
    return "_card" in parents or any(federated(parent) for parent in parents if parent != "_card")


CARDS = sorted(path.stem for path in FOLDER.glob("[a-z]*.yaml") if federated(path.stem))


def composed(name: str, *overrides: str) -> dict[str, Any]:
    cfg.register()
    with initialize_config_dir(str(cfg.CONF), version_base=None):
        return cfg.plain(compose("sim", [f"strategies={name}", *TINY, *overrides]))


def method(name: str, *overrides: str) -> Method:
    return cfg.build_method(composed(name, *overrides), 3)


def test_the_cards_of_the_comparison_are_there() -> None:
    wanted = """fedavg uniform fedprox fednova scaffold fedavgm fedadagrad fedadam fedyogi qfedavg afl term propfair
    power_of_choice cpow rpow oort eafl fedcs tifl refl divfl fedbalancer wang adacomm eiffel"""
    assert set(wanted.split()) <= set(CARDS)


@pytest.mark.parametrize("name", CARDS)
def test_a_card_runs(name: str, tmp_path: Path) -> None:
    """Three rounds on twelve devices with digits: records, a finite accuracy, and a model that has moved."""
    summary = simulate(composed(name), tmp_path)
    assert summary["status"] == "finished", summary["why"]
    assert summary["strategy"]["name"] == name
    rows = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert all(row["delivered"] >= 1 for row in rows)
    assert 0 <= summary["final"]["served"]["accuracy"] <= 1
    straight = models_of(tmp_path)
    assert all(np.isfinite(m).all() for m in straight.values())
    assert not np.array_equal(straight["last"], straight["ema"])
    # Killed before the third round was saved, the run goes on to the same model, bit for bit: every rule's state
    # survives a checkpoint.
    (tmp_path / "checkpoints" / "checkpoint-000003.npz").unlink()
    resume(tmp_path)
    for which, again in models_of(tmp_path).items():
        np.testing.assert_array_equal(again, straight[which])


def models_of(folder: Path) -> dict[str, Any]:
    with np.load(folder / "model.npz") as models:
        return {name: models[name].copy() for name in models.files}


def bytes_of(name: str, tmp_path: Path, *overrides: str) -> dict[str, Any]:
    simulate(composed(name, *overrides), tmp_path / name)
    rows = [json.loads(line) for line in (tmp_path / name / "records.jsonl").read_text().splitlines()]
    return dict(rows[-1])


def test_what_travels_is_charged(tmp_path: Path) -> None:
    """In models of S bytes a round of four: FedAvg 4 down, 4 up; SCAFFOLD twice that; Wang 4 down, 8 up;
    Power-of-Choice 12 down for the probe, none for those chosen, 4 up and 12 x 16 bytes of answers.
    """
    plain = bytes_of("uniform", tmp_path)
    down, up = plain["bytes_down"], plain["bytes_up"]
    double = bytes_of("scaffold", tmp_path)
    assert (double["bytes_down"], double["bytes_up"]) == (2 * down, 2 * up)
    wang = bytes_of("wang", tmp_path)
    assert (wang["bytes_down"], wang["bytes_up"]) == (down, 2 * up)
    choice = bytes_of("power_of_choice", tmp_path)
    assert choice["bytes_down"] == 3 * down
    assert choice["bytes_up"] == up + 12 * 16
    assert choice["probed"] == 12


def test_probes_cost_joules(tmp_path: Path) -> None:
    """q-FedAvg on the same devices as FedAvg spends more, by its forward passes; cpow-d less than pow-d."""
    assert bytes_of("qfedavg", tmp_path)["joules"] > bytes_of("fedavg", tmp_path)["joules"]
    assert bytes_of("cpow", tmp_path)["joules"] < bytes_of("power_of_choice", tmp_path)["joules"]


def test_q_of_zero_is_fedavg_to_the_bit_of_a_float(tmp_path: Path) -> None:
    """Through data, devices and training: q = 0 leaves FedAvg's model."""
    simulate(composed("fedavg"), tmp_path / "a")
    simulate(composed("qfedavg", "strategies.aggregate.weights.q=0"), tmp_path / "b")
    a, b = models_of(tmp_path / "a"), models_of(tmp_path / "b")
    np.testing.assert_allclose(a["last"], b["last"], atol=1e-5)


def test_a_null_batch_is_that_of_the_devices() -> None:
    assert method("oort").select.batch == 10  # type: ignore[attr-defined]
    assert method("oort", "strategies.local.batch=7").select.batch == 7  # type: ignore[attr-defined]
    assert method("oort", "strategies.select.batch=0").select.batch == 0  # type: ignore[attr-defined]
    assert method("fedbalancer", "strategies.local.batch=7").pace.batch == 7  # type: ignore[attr-defined]


def test_afl_trains_everybody(tmp_path: Path) -> None:
    row = bytes_of("afl", tmp_path)
    assert row["chosen"] == row["delivered"] == 12


@pytest.mark.parametrize("name", CARDS)
def test_a_card_names_its_source(name: str) -> None:
    """The head of a card says where the method is from: a paper and its year."""
    head = (FOLDER / f"{name}.yaml").read_text().split("\ndefaults")[0]
    assert head.startswith("# ")
    assert any(str(year) in head for year in range(2012, 2027)) or "as power_of_choice" in head
