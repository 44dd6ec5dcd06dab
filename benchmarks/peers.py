"""Rounds of other frameworks on the workloads of engines.py, timed by their own loops.

Flower's simulation engine (flwr with ray: `pip install "flwr[simulation]"`): the FedAvg of its Message API,
one actor a core, a client that reuses its module and takes its samples from a memory-mapped file.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from benchmarks.engines import Work
    from eiffel.data.federated import Federated


def flower_client(folder: str, work: Any) -> Any:
    """A ClientApp as a careful user writes it."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app, kept = ClientApp(), dict[str, Any]()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        import torch  # here, not above: cloudpickle would take our `classes` for torch.classes

        from eiffel.train import models

        if not kept:
            torch.set_num_threads(1)
            x, y = (np.load(f"{folder}/{n}.npy", mmap_mode="c") for n in "xy")
            shape = type("Shape", (), {"x": x, "y": y, "classes": work.classes})()
            kept.update(
                x=torch.from_numpy(x), y=torch.from_numpy(y), module=models.initial(work.model, shape, 0)
            )
        module = kept["module"]
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer, loss_of = torch.optim.SGD(module.parameters(), lr=0.1), torch.nn.CrossEntropyLoss()
        start = int(context.node_config["partition-id"]) * work.samples
        order = torch.randperm(work.samples) + start
        for batch in order.split(work.batch):
            optimizer.zero_grad()
            output = module(kept["x"][batch])
            loss_of(output.reshape(-1, work.classes), kept["y"][batch].reshape(-1)).backward()
            optimizer.step()
        told = {
            "arrays": ArrayRecord(module.state_dict()),
            "metrics": MetricRecord({"num-examples": work.samples}),
        }
        return Message(content=RecordDict(told), reply_to=message)

    return app


def flower(work: Work, data: Federated, rounds: int) -> list[tuple[float, float]] | None:
    """(wall, NaN) seconds of each round but the first two; None where flwr or ray is missing."""
    if not all(importlib.util.find_spec(n) for n in ("flwr", "ray")):
        return None
    from flwr.app import ArrayRecord
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    from eiffel.train import models

    stamps, server = list[float](), ServerApp()

    @server.main()
    def main(grid: Grid, context: Any) -> None:
        strategy = FedAvg(fraction_train=work.cohort / work.clients, fraction_evaluate=0.0)
        start = ArrayRecord(models.initial(work.model, data, 0).state_dict())
        strategy.start(
            grid, start, num_rounds=rounds + 2, evaluate_fn=lambda *_: stamps.append(time.perf_counter())
        )

    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "x.npy", data.x)
        np.save(Path(folder) / "y.npy", data.y)
        resources = {
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": os.cpu_count()},
        }
        run_simulation(server, flower_client(folder, work), work.clients, backend_config=resources)  # type: ignore[arg-type]
    return [(b - a, float("nan")) for a, b in itertools.pairwise(stamps[2:])]
