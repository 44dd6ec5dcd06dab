"""Training simulated devices with torch: `trainer` builds the engine that a configuration names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eiffel.core.model import Trainer
    from eiffel.data.federated import Federated

KINDS = ("local", "single", "ray")


def trainer(data: Federated, model: Mapping[str, Any], engine: Mapping[str, Any], seed: int) -> Trainer:
    """The engine of `conf/engine/` for this data set and model card. Imports torch only when called.

    engine: kind, workers, device, path, chunk, patience, budget; each may be left out. Its results are the
    same for every kind and number of workers. Raises ValueError, naming the field, for a model or an engine
    that does not exist.
    """
    import logging

    from eiffel.train.cluster import Cluster
    from eiffel.train.engine import Alone, Crew, Engine
    from eiffel.train.learner import Learner
    from eiffel.train.local import Local

    del seed
    kind = str(engine.get("kind") or "local")
    if kind not in KINDS:
        raise ValueError(f"engine.kind is {kind!r}; it must be one of {', '.join(KINDS)}")
    _device(str(engine.get("device") or "cpu"))
    learner = Learner(data, model, engine)
    workers = _workers(engine) if kind == "local" and hasattr(os, "fork") else 1
    crew: Crew
    if kind == "ray":
        crew = Cluster(data, model, engine, learner)
        workers = len(crew.actors)
    else:
        crew = Local(data, model, engine, learner, workers) if workers > 1 else Alone(learner)
    note = f"engine {kind}, {workers} worker{'s' if workers > 1 else ''}, {learner.note}"
    logging.getLogger("eiffel.train").info(note)
    return Engine(data, model, crew, learner, note)


def _device(name: str) -> None:
    """Refuse a device that torch does not have here."""
    import torch

    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"engine.device is {name!r}, but torch sees no GPU here; take engine.device=cpu")


def _workers(engine: Mapping[str, Any]) -> int:
    """How many processes: as asked, else one a core this process may use; a GPU is fed by one."""
    asked = engine.get("workers")
    if asked is not None and int(asked) < 1:
        raise ValueError(f"engine.workers is {asked!r}; it must be 1 or more, or null for one a core")
    if str(engine.get("device") or "cpu") != "cpu":
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if asked is None else int(asked)
