"""How fast the engines train, against a bare PyTorch loop, in turn in one run.

    python benchmarks/engines.py [--turns 9] [--only W1 W2]

`bare` is what a careful researcher writes: one process, one thread, one module that is reused, parameters
loaded by copy_, a new torch.optim.SGD for each client, batches by index, in-place aggregation. With
--flower, Flower's own simulation engine is timed too, after the others and by its own loop (see peers.py).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import peers, record
from eiffel.core.model import Local, Plan
from eiffel.data.federated import Federated, Parts
from eiffel.train import models, trainer


@dataclass(frozen=True)
class Work:
    """clients N, cohort K, samples a client, shape of a sample, classes; batch and one epoch of steps."""

    title: str
    model: Mapping[str, Any]
    clients: int
    cohort: int
    samples: int
    shape: tuple[int, ...]
    classes: int
    batch: int

    @property
    def steps(self) -> int:
        return self.samples // self.batch


WORK = {
    "W1": Work("logistic regression 784-10", {"kind": "logistic"}, 1000, 100, 60, (784,), 10, 10),
    "W1S": Work("MLP 784-32-32-10", {"kind": "mlp", "hidden": [32, 32]}, 200, 100, 60, (784,), 10, 10),
    "W1M": Work("MLP 784-200-200-10", {"kind": "mlp"}, 200, 100, 60, (784,), 10, 10),
    "W2": Work("CNN of the FedAvg paper, 1.66M", {"kind": "cnn"}, 100, 10, 100, (1, 28, 28), 10, 20),
    "W3": Work("2-layer LSTM of 256, 80 tokens", {"kind": "lstm"}, 100, 10, 50, (80,), 80, 10),
}


def samples(work: Work) -> Federated:
    """Random samples: speed does not depend on what they are."""
    random = np.random.default_rng(0)
    count = work.clients * work.samples
    text = work.model["kind"] == "lstm"
    x = (
        random.integers(0, work.classes, (count, *work.shape))
        if text
        else random.random((count, *work.shape))
    )
    y = random.integers(0, work.classes, (count, *work.shape) if text else count)
    start = np.arange(work.clients + 1, dtype=np.int64) * work.samples
    parts = Parts(np.arange(count, dtype=np.int64), start)
    names = tuple(str(k) for k in range(work.clients))
    return Federated(
        work.title, x if text else x.astype(np.float32), y, work.classes, parts, parts, names, {}
    )


def bare(work: Work, data: Federated) -> Callable[[int], Any]:
    """A round of the bare loop."""
    module = models.initial(work.model, data, 0)
    if work.model["kind"] == "cnn":  # without our arrangement of the pixels
        module = nn.Sequential(*[m for m in module.children() if not isinstance(m, models.Image)])
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    server = [p.detach().clone() for p in module.parameters()]
    loss_of = nn.CrossEntropyLoss()

    def client(start: int, random: np.random.Generator) -> None:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        order = torch.from_numpy(random.permutation(work.samples)) + start
        for low in range(0, work.samples, work.batch):
            batch = order[low : low + work.batch]
            optimizer.zero_grad()
            output = module(x[batch])
            loss_of(output.reshape(-1, work.classes), y[batch].reshape(-1)).backward()
            optimizer.step()

    def one(turn: int) -> None:
        torch.set_num_threads(1)
        random = np.random.default_rng(turn)
        total = [torch.zeros_like(p) for p in server]
        for k in random.choice(work.clients, work.cohort, replace=False):
            with torch.no_grad():
                for p, s in zip(module.parameters(), server, strict=True):
                    p.copy_(s)
            client(int(k) * work.samples, random)
            with torch.no_grad():
                for t, p in zip(total, module.parameters(), strict=True):
                    t.add_(p, alpha=1 / work.cohort)
        for s, t in zip(server, total, strict=True):
            s.copy_(t)

    return one


def eiffel(work: Work, data: Federated, settings: Mapping[str, Any]) -> tuple[Callable[[int], Any], Any]:
    """A round of an engine: train a cohort, move the model; and the engine, to be closed."""
    engine = trainer(data, work.model, settings, 0)
    state = {"params": engine.initial(0)}
    local = Local(lr=0.1, batch=work.batch)

    def one(turn: int) -> None:
        cohort = np.sort(np.random.default_rng(turn).choice(work.clients, work.cohort, replace=False))
        steps = np.full(work.cohort, work.steps)
        plan = Plan(
            round=turn,
            chosen=cohort,
            steps=steps,
            reason=np.zeros(work.clients, np.uint8),
            params=state["params"],
            local=local,
            weigh=lambda r: np.full(r.device.size, 1 / r.device.size),
        )
        state["params"] = state["params"] - engine.train(plan, cohort, steps, 0).sums[0]

    return one, engine


def measure(name: str, turns: int, flower: int) -> dict[str, Any]:
    """All variants of one workload, in turn."""
    work = WORK[name]
    data = samples(work)
    variants, engines = {"bare": bare(work, data)}, []
    asked: dict[str, dict[str, Any]] = {
        "one process, ordinary path": {"kind": "single", "path": "ordinary"},
        "one process": {"kind": "single"},
        "local, 2 workers": {"kind": "local", "workers": 2, "patience": 0},
    }
    for title, settings in asked.items():
        variants[title], engine = eiffel(work, data, settings)
        if title == "one process" and "ordinary" in engine.note:
            del variants[title]
        engines.append(engine)
    for call in variants.values():
        call(0)
    try:
        pids = lambda: [p for e in engines for p in getattr(e.crew, "pids", {}).values()]  # noqa: E731
        seconds = record.in_turn(variants, turns, pids)
    finally:
        for engine in engines:
            engine.close()
    theirs = peers.flower(work, data, flower) if flower else None
    found = record.rows(seconds | ({"Flower's engine (Ray)": theirs} if theirs else {}), "bare")
    record.table(f"{name}: {work.title}; {work.cohort} of {work.clients} clients, {work.steps} steps", found)
    print(f"  {engines[-1].note}")
    return {"load": os.getloadavg()[0], "note": engines[-1].note, "rows": found}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=list(WORK), default=list(WORK))
    parser.add_argument("--flower", type=int, default=0, help="rounds of Flower's engine, where installed")
    asked = parser.parse_args()
    results = {name: measure(name, asked.turns, asked.flower) for name in asked.only}
    record.write("engines", {"workloads": results})


if __name__ == "__main__":
    main()
