"""What every federated card decides on a small, fixed federation: chosen devices, local steps, losses.

A change here is a change of behaviour: look at it, and if it is meant, `make bless`.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from eiffel import config as cfg
from eiffel.simulation import simulate

GOLDEN = Path(__file__).with_name("plans.json")
SMALL = [
    "datasets.clients=15",
    "datasets.partition=quantity",
    "rounds=6",
    "cohort.size=4",
    "report=quiet",
    "engine=single",
    "seed=7",
    "fleet.battery.rounds=4",
    "fleet.dropout=0.1",
]


def card_names() -> list[str]:
    cards = sorted((cfg.ROOT / "strategies").glob("[!_]*.yaml"))
    return [card.stem for card in cards if "kind: cluster" not in card.read_text()]


def decisions(folder: Path, card: str) -> dict[str, Any]:
    """Who was chosen each round, tau, and the mean incoming loss to three digits."""
    import pyarrow.parquet as pq
    from hydra import compose, initialize_config_dir

    cfg.register()
    with initialize_config_dir(str(cfg.CONF), version_base=None):
        config = cfg.plain(compose("sim", [*SMALL, f"strategies={card}"]))
    simulate(config, folder)
    rows = pq.read_table(folder / "clients.parquet").to_pylist()
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return {
        "chosen": [
            [r["device"] for r in rows if r["round"] == k["round"] and r["reason"] == 0] for k in records
        ],
        "steps": [k["steps"] for k in records],
        "loss": [None if k["first_loss"] is None else float(f"{k['first_loss']:.3g}") for k in records],
        "bytes": records[-1]["total_bytes"],
        "joules": float(f"{records[-1]['total_joules']:.6g}"),
    }


@pytest.mark.parametrize("card", card_names())
def test_the_card_decides_as_before(card: str, tmp_path: Path) -> None:
    now = decisions(tmp_path / "run", card)
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("EIFFEL_BLESS"):
        GOLDEN.write_text(
            json.dumps(dict(sorted((known | {card: now}).items())), indent=None).replace('}, "', '},\n"')
            + "\n"
        )
        return
    assert card in known, f"no golden plans of {card}: `make bless`"
    compare(now, known[card])


def compare(now: dict[str, Any], then: dict[str, Any]) -> None:
    """Decisions exactly; losses within the last digit kept, for libraries round differently."""
    assert now["chosen"] == then["chosen"]
    assert now["steps"] == then["steps"]
    assert now["bytes"] == then["bytes"]
    assert now["joules"] == pytest.approx(then["joules"], rel=1e-4)
    assert [x for x in now["loss"] if x is not None] == pytest.approx(
        [x for x in then["loss"] if x is not None], rel=1e-2
    )
