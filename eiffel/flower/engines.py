"""Flower's ClientApps as the engine of `eiffel sim`: in this process (inproc), or under Flower's own engine (Ray).

Named by `engine.trainer` in conf/engine/inproc.yaml and conf/engine/flower.yaml. The fleet, its clock and its
energy stay simulated; the training travels through Flower's messages.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from eiffel import train
from eiffel.core.model import Trainer
from eiffel.data.federated import Federated
from eiffel.flower import wire
from eiffel.flower.client_app import app, client
from eiffel.flower.digest import code_digest
from eiffel.flower.grid import EiffelGrid
from eiffel.flower.post import FlowerPost
from eiffel.flower.site import Recipe, Site, Task, about
from eiffel.flower.trainer import GridTrainer
from eiffel.flower.wire import Layout

Config = Mapping[str, Any]
APP = "eiffel.flower.client_app:app"
RAY_NODES = 100
"""Most nodes made in Flower's engine unless the configuration says: it looks at each of them every 0.1 s."""


def in_process(config: Config, data: Federated, clients: int | None) -> Trainer:
    """The ClientApp in this process, or in `engine.workers` processes. See `trainer_over`."""
    workers = int(config["engine"].get("workers") or 0)
    here = _trainer(config, data)
    grid = EiffelGrid(APP if workers else client(held(data, here)), len(data), workers=workers)
    return trainer_over(grid, config, data, clients, here, close=grid.close)


def ray(config: Config, data: Federated, clients: int | None) -> Trainer:
    """The ClientApp under Flower's simulation engine. Raises ValueError where Ray is not installed."""
    if find_spec("ray") is None:
        raise ValueError("engine=flower needs Flower's simulation extra: pip install 'flwr[simulation]'")
    engine = RayEngine(int(config["engine"].get("nodes") or min(len(data), RAY_NODES)), config["engine"])
    return trainer_over(engine.grid, config, data, clients, close=engine.close)


def given(config: Config, data: Federated, clients: int | None) -> Trainer:
    """The ClientApps of a grid that is there already: inside a ServerApp. See `over`."""
    if not _GRIDS:
        raise ValueError(
            "this run was made by a ServerApp and needs its grid: go on with it by `flwr run` and the same folder, "
            "or resume it with engine.trainer=eiffel.flower.engines:in_process in its config.yaml"
        )
    return trainer_over(_GRIDS[-1], config, data, clients)


_GRIDS: list[Grid] = []


@contextlib.contextmanager
def over(grid: Grid) -> Iterator[None]:
    """While inside, `given` trains over this grid."""
    _GRIDS.append(grid)
    try:
        yield
    finally:
        _GRIDS.pop()


def trainer_over(
    grid: Grid,
    config: Config,
    data: Federated,
    clients: int | None,
    here: Trainer | None = None,
    close: Callable[[], None] = lambda: None,
) -> GridTrainer:
    """A trainer over a grid of our ClientApps. First weights and evaluations are made here: no device's work."""
    here = here or _trainer(config, data)
    post = FlowerPost(grid, Layout.of(wire.one_array(np.zeros(here.size, np.float32))))
    task = {"card": card(config, clients), "code": code_digest()}
    budget = float(config["engine"].get("budget") or 3600.0)
    return GridTrainer(
        post,
        here.size,
        len(data),
        initial=here.initial,
        score=here.score,
        task=task,
        budget=budget,
        close=close,
    )


def card(config: Config, clients: int | None) -> str:
    """What a node needs to lay hands on data and model: the server's resolved numbers, the only truth."""
    path = config.get("engine", {}).get("path", "auto")
    order = {"datasets": config["datasets"], "clients": clients, "seed": int(config["seed"]), "path": path}
    return json.dumps(order, sort_keys=True)


def held(data: Federated, trainer: Trainer) -> Recipe:
    """A recipe for nodes in this very process: they share the data and the model that are here."""

    def recipe(context: Context, task: Task) -> Site:
        part = int(task.get("part", context.node_config["partition-id"])) % len(data)
        return Site(trainer, int(data.train.sizes[part]), part=part, key=str(part), figures=about(context))

    return recipe


def _trainer(config: Config, data: Federated) -> Trainer:
    engine = {"kind": "single", "workers": 1, "path": config["engine"].get("path", "auto")}
    return train.trainer(data, config["datasets"]["model"], engine, int(config["seed"]))


class RayEngine:
    """Flower's simulation engine in a thread of this process. grid: its grid, once it is up."""

    def __init__(self, nodes: int, settings: Config) -> None:
        self._over, self._up = threading.Event(), queue.Queue[Grid | BaseException]()
        resources = {"num_cpus": int(settings.get("cpus", 1)), "num_gpus": float(settings.get("gpus", 0.0))}
        self._thread = threading.Thread(target=self._run, args=(nodes, resources), daemon=True)
        self._thread.start()
        up = self._up.get(timeout=float(settings.get("start_s", 300.0)))
        if isinstance(up, BaseException):
            raise RuntimeError(f"Flower's simulation engine did not start: {up}") from up
        self.grid = up

    def _run(self, nodes: int, resources: Mapping[str, Any]) -> None:
        from flwr.simulation import run_simulation

        server = ServerApp()

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            self._up.put(grid)
            self._over.wait()

        try:
            run_simulation(server, app, nodes, backend_config={"client_resources": dict(resources)})
        except BaseException as problem:
            self._up.put(problem)

    def close(self) -> None:
        """End the engine and its processes; at most a minute."""
        self._over.set()
        self._thread.join(60.0)
