"""Runs that look like real ones, from a small seeded generator, written through the sink that runs use.

The figures are invented; only their shape is true to life. Nothing here is ever shown as a result.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from eiffel.core.ledger import NO_STATUS
from eiffel.core.measures import fairness, jain
from eiffel.core.model import Reason, Scores, Status
from eiffel.report.folder import RunFolder


@dataclass(frozen=True)
class Kind:
    """How a made-up strategy behaves: best accuracy, spread over devices, speed, cost of a round."""

    best: float
    spread: float
    speed: float
    steps: int
    joules: float
    served: str = "last"
    even: float = 1.0


KINDS = {
    "fedavg": Kind(0.90, 0.055, 1.0, 10, 9.0),
    "fedprox": Kind(0.905, 0.050, 1.05, 10, 9.6),
    "power_of_choice": Kind(0.91, 0.030, 1.1, 10, 11.0, even=0.4),
    "oort": Kind(0.895, 0.048, 1.25, 10, 5.0, even=0.5),
    "term": Kind(0.903, 0.041, 1.0, 10, 9.2),
    "eiffel": Kind(0.925, 0.028, 1.6, 4, 6.0, served="ema", even=0.8),
}


def fake_run(
    path: Path, name: str, seed: int, *, rounds=60, devices=50, cohort=10, overrides=(), every=2, **more
) -> Path:
    """Write a whole run; `more` goes into the summary (status, why, data, ...)."""
    kind = KINDS[name]
    rng = np.random.default_rng([seed, rounds])
    skill = np.clip(
        kind.best + kind.spread * rng.standard_normal(devices) - 0.03 * rng.exponential(1, devices), 0, 1
    )
    odds = rng.lognormal(0, kind.even, devices)
    drain = rng.uniform(0.002, 0.012, devices)
    folder = RunFolder(path)
    begin = summary(name, seed, devices, rounds, overrides)
    folder.summary(begin)
    state = {"bytes": 0, "joules": 0.0, "wasted": 0.0, "s": 0.0, "steps": 0}
    battery, counts, evaluations = np.ones(devices), np.zeros(devices, int), []
    for number in range(1, rounds + 1):
        steps = min(4 * 2 ** (number // 8), 48) if name == "eiffel" else kind.steps
        who = np.sort(rng.choice(devices, cohort, replace=False, p=odds / odds.sum()))
        status = np.where(rng.random(cohort) < 0.08, Status.LATE, Status.DELIVERED)
        joules = kind.joules * (0.4 + 0.6 * steps / 10) * rng.lognormal(0, 0.3, cohort)
        battery[who] = np.maximum(0, battery[who] - drain[who] * joules / 9)
        battery = np.minimum(1, battery + (0.02 if number % 20 > 15 else 0))
        counts[who[status == 0]] += 1
        state = {
            "bytes": state["bytes"] + cohort * 104_000,
            "joules": state["joules"] + joules.sum(),
            "wasted": state["wasted"] + joules[status != 0].sum(),
            "s": state["s"] + 30 + 4 * steps * rng.lognormal(0, 0.2),
            "steps": state["steps"] + steps * cohort,
        }
        scores, accuracy = None, np.full(devices, np.nan)
        if number % every == 0 or number == rounds:
            grown = 1 - np.exp(-kind.speed * number / rounds * 6)
            raw, smooth = (
                np.clip(skill * grown + noise * rng.standard_normal(devices), 0, 1) for noise in (0.03, 0.012)
            )
            scores = {"served": kind.served, "last": measured(raw - 0.01), "ema": measured(smooth)}
            accuracy = raw if kind.served == "last" else smooth
            evaluations.append(scores)
        folder.record(
            record(number, state, cohort, status, steps, joules, battery, counts, scores),
            rows(devices, who, status, steps, joules, battery, odds, accuracy, number, rng),
        )
    final = evaluations[-1] if evaluations else {}
    folder.summary(
        begin | {"status": "finished", "why": "all rounds done", "final": final, "wall_s": 12.5} | more
    )
    folder.close()
    return path


def measured(accuracy):
    accuracy = np.clip(accuracy, 0, 1)
    return fairness(Scores(accuracy, 1.5 * (1 - accuracy), np.arange(10, 10 + accuracy.size)))


def summary(strategy, seed, devices, rounds, overrides):
    return {
        "status": "running",
        "command": f"eiffel sim strategies={strategy} seed={seed} rounds={rounds}",
        "overrides": [f"strategies={strategy}", f"seed={seed}", *overrides],
        "seed": seed,
        "versions": {"eiffel": "0.1.0", "python": "3.11.7", "numpy": "2.4.6", "torch": "2.13.0"},
        "data": {
            "name": "digits",
            "clients": devices,
            "samples": 1797,
            "sources": {"digits.csv.gz": "09f6" * 16},
        },
        "strategy": {"name": strategy, "card": {"select": "uniform"}},
        "fleet": {"size": devices, "name": "phones"},
        "started": "2025-01-01T00:00:00Z",
        "finished": "2025-01-01T00:00:12Z",
    }


def record(number, state, cohort, status, steps, joules, battery, counts, scores):
    lost = int((status != 0).sum())
    return {
        "round": number,
        "status": "ok",
        "start_s": 0.0,
        "end_s": state["s"],
        "seconds": 60.0,
        "candidates": battery.size - 5,
        "chosen": cohort,
        "delivered": cohort - lost,
        "refused": {"not_drawn": battery.size - 5 - cohort, "offline": 3, "battery": 2},
        "lost": {"late": lost} if lost else {},
        "steps": steps * cohort,
        "steps_mean": float(steps),
        "examples": 800,
        "loss_in": 1.2 / number**0.5,
        "first_loss": 1.3 / number**0.5,
        "bytes": cohort * 104_000,
        "joules_useful": joules[status == 0].sum(),
        "joules_wasted": joules[status != 0].sum(),
        "joules": joules.sum(),
        "total_bytes": state["bytes"],
        "total_joules": state["joules"],
        "total_joules_wasted": state["wasted"],
        "total_s": state["s"],
        "total_steps": state["steps"],
        "battery_min": battery.min(),
        "battery_mean": battery.mean(),
        "flat": 0,
        "participation_jain": jain(counts),
        "participants": int((counts > 0).sum()),
        "notes": {"tau": float(steps), "price_joules": 0.5},
        "scores": scores,
    }


def rows(devices, who, status, steps, joules, battery, odds, accuracy, number, rng):
    reason = np.full(devices, Reason.NOT_DRAWN, dtype=np.uint8)
    reason[rng.choice(np.setdiff1d(np.arange(devices), who), 5, replace=False)] = [2, 2, 2, 5, 5]
    reason[who] = Reason.CHOSEN
    score = np.where(reason <= Reason.NOT_DRAWN, np.log(odds) + rng.gumbel(size=devices) * 0.1, -np.inf)
    return {
        "device": np.arange(devices),
        "reason": reason,
        "status": spread(devices, who, status, NO_STATUS, np.uint8),
        "steps": spread(devices, who, steps, 0, np.int32),
        "seconds": spread(devices, who, 30 + joules, 0, np.float32),
        "joules": spread(devices, who, joules, 0, np.float32),
        "bytes_down": spread(devices, who, 52_000, 0, np.int64),
        "bytes_up": spread(devices, who, 52_000, 0, np.int64),
        "loss": spread(devices, who, 1.2 / number**0.5, np.nan, np.float32),
        "battery": battery.astype(np.float32),
        "score": score.astype(np.float32),
        "accuracy": accuracy.astype(np.float32),
    }


def spread(devices, who, values, empty, kind):
    column = np.full(devices, empty, dtype=kind)
    column[who] = values
    return column


@pytest.fixture(scope="session")
def sweep(tmp_path_factory) -> list[Path]:
    """FedAvg and Eiffel on three seeds. Tests that change a run copy it first."""
    root = tmp_path_factory.mktemp("sweep")
    jobs = [(s, seed) for s in ("fedavg", "eiffel") for seed in (0, 1, 2)]
    with mock.patch("os.fsync"):  # nobody pulls the plug here
        return [fake_run(root / str(i), name, seed) for i, (name, seed) in enumerate(jobs)]


@pytest.fixture(scope="session")
def make_run():
    """The generator itself, for a test that needs a run of its own."""
    return fake_run


@pytest.fixture
def summary_of():
    """Reads the summary of a run folder."""
    return lambda run: json.loads((run / "summary.json").read_text())
