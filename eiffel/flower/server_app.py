"""Our ServerApp: composes conf/deploy.yaml of the bundle it came in, and runs the federation it describes.

flwr run . local --run-config 'overrides="strategies=eiffel datasets=digits rounds=20"'
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from logging import INFO
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.supercore import log
from flwr.superlink.grid import InMemoryGrid

from eiffel import config as cfg
from eiffel import data, simulation, train
from eiffel.flower import wire
from eiffel.flower.composing import composed, waits
from eiffel.flower.engines import card, over
from eiffel.flower.running import CHECKPOINTS, Finished, Settings
from eiffel.flower.strategy import Strategy
from eiffel.report import Report, Sink
from eiffel.report.versions import TRAINING, versions

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation that the run config describes. Raises ConfigError or DataError in words for the user."""
    words = shlex.split(str(context.run_config.get("overrides", "")))
    config = composed("deploy", words)
    folder = Path(config["folder"] or f"outputs/flower-{context.run_id}").absolute()
    command = " ".join(["flwr run . --run-config", f"'overrides=\"{' '.join(words)}\"'"])
    log(INFO, "Eiffel: %s on %s, in %s", config["strategies"]["name"], config["datasets"]["name"], folder)
    clock = config["clock"]
    if clock not in ("auto", "virtual", "wall"):
        raise cfg.ConfigError(f"clock is {clock!r}; it must be auto, virtual or wall")
    if clock == "virtual" or (clock == "auto" and isinstance(grid, InMemoryGrid)):
        simulated(grid, config, folder, command)
    else:
        real(grid, config, folder, command)


def simulated(grid: Grid, config: Mapping[str, Any], folder: Path, command: str) -> None:
    """The simulation of `eiffel sim`, whose devices are trained by the nodes of this grid."""
    with over(grid):
        if config["resume"] and (folder / simulation.CONFIG).exists():
            simulation.resume(folder, command=command)
        else:
            simulation.simulate(config, folder, command=command)


def real(grid: Grid, config: Mapping[str, Any], folder: Path, command: str) -> Finished:
    """The federation of the nodes there are, by the clock on the wall."""
    rounds, seed = int(config["rounds"] or config["datasets"]["rounds"]), int(config["seed"])
    method = cfg.build_method(config, rounds)
    # The server needs the data card's shapes for the first model; it trains on nothing.
    federated = data.load(config["datasets"], None, seed)
    trainer = train.trainer(federated, config["datasets"]["model"], {"kind": "single"}, seed)
    stop_at = config["stop_at"]
    settings = Settings(
        seed=seed,
        devices=int(config["devices"] or len(federated)),
        waits=waits(config["waits"], method.cohort.asked),
        score_every=int(config["score_every"]),
        evaluators=int(config["evaluators"]),
        folder=folder,
        resume=bool(config["resume"]),
        stop=lambda row: simulation.stop_when(row, stop_at) if stop_at else "",
        task={"card": card(config, None)},
        sinks=wandb(config, folder),
        about={
            "command": command,
            "strategy": {"name": method.name, "card": config["strategies"]},
            "data": {"name": federated.name, "clients": len(federated), "metric": federated.metric},
            "versions": versions(*TRAINING),
        },
    )
    return Strategy(method, settings).start(grid, wire.one_array(trainer.initial(seed)), num_rounds=rounds)


def wandb(config: Mapping[str, Any], folder: Path) -> list[Sink]:
    """The dashboard, where the report card asks for it."""
    report = cfg.construct(Report, config["report"], "report")
    if not report.wandb:
        return []
    from eiffel.report.wandb_sink import Wandb

    done = [int(path.stem.split("-")[-1]) for path in (folder / CHECKPOINTS).glob("*.npz")]
    name, about = folder.name, {"group": report.group, "mode": report.mode}
    return [
        Wandb(folder, project=report.project, name=name, config=config, after=max(done, default=0), **about)
    ]
