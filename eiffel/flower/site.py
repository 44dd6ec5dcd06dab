"""What a node trains with: its data, its model, and what it knows of itself.

A recipe makes a `Site` from the node's context and the server's task. `from_card` takes the data card that the
server sends; for data and a module of your own, return `own(...)`:

    from eiffel.flower import client, own

    def recipe(context, task):
        x, y = my_samples(context.node_config["partition-id"])
        return own(MyNet(), train=(x, y), test=(x_test, y_test), classes=10)

    app = client(recipe)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from eiffel.core.model import Scores, Trainer

if TYPE_CHECKING:
    from torch import nn

    from eiffel.data.federated import Federated

Task = Mapping[str, Any]
FIGURES = ("step_s", "step_j", "exchange_s", "exchange_j", "capacity_j", "floor")
"""What a node may state of itself in its node config, with '-' for '_'."""


@dataclass(frozen=True, slots=True)
class Site:
    """trainer: of the data and the model. examples: own training samples. named: the model's arrays, if the server
    sends them by name instead of all as one. part: which part of the trainer's data is this node's own. key: who
    the node is, whatever its id; '' to be known by its id. figures: what it states of itself, see `FIGURES`.
    """

    trainer: Trainer
    examples: int
    named: Named | None = None
    part: int = 0
    key: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)

    def scores(self, params: NDArray[np.float32]) -> tuple[float, float, int]:
        """Accuracy (or AUROC), loss and number of samples of a model on this node's own test part."""
        scores: Scores = self.trainer.score(params)
        at = self.part % scores.examples.size
        return float(scores.accuracy[at]), float(scores.loss[at]), int(scores.examples[at])


@dataclass(frozen=True, slots=True)
class Named:
    """How a module's named arrays lie in the trainer's flat parameters.

    all: the state dict's names in its order. flat: name -> (first, shape) of those in the flat parameters; two
    names of one tensor lie in the same place, and what does not learn lies nowhere.
    """

    all: tuple[str, ...]
    flat: Mapping[str, tuple[int, tuple[int, ...]]]

    @staticmethod
    def of(module: nn.Module) -> Named:
        """In the order in which `eiffel.train.flat` lays a module out: what learns, then floating buffers."""
        learnt = [p for p in module.parameters() if p.requires_grad]
        carried = [b for b in module.buffers() if b.is_floating_point()]
        place, low = {}, 0
        for tensor in (*learnt, *carried):
            place[id(tensor)] = (low, tuple(tensor.shape))
            low += tensor.numel()
        kept = module.state_dict(keep_vars=True)
        return Named(tuple(kept), {n: place[id(t)] for n, t in kept.items() if id(t) in place})

    def read(self, arrays: Mapping[str, NDArray[Any]], base: NDArray[np.float32]) -> NDArray[np.float32]:
        """Flat parameters: `base` with the arrays put in. Raises ValueError where they are another model's."""
        params = base.copy()
        for name, array in zip(self.all, self._mine(arrays), strict=True):
            if name in self.flat:
                low, shape = self.flat[name]
                if array.shape != shape:
                    raise ValueError(
                        f"the server's {name!r} has shape {array.shape}; the model here has {shape}"
                    )
                params[low : low + array.size] = array.ravel()
        return params

    def _mine(self, arrays: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The arrays in the state dict's order; a server that sends a mere list is taken to use that order."""
        if set(arrays) == set(self.all):
            return [arrays[name] for name in self.all]
        if len(arrays) == len(self.all) and all(name.isdecimal() for name in arrays):
            return list(arrays.values())
        raise ValueError(
            f"the server's model has arrays {sorted(arrays)}; the model here has {sorted(self.all)}"
        )

    def write(
        self, params: NDArray[np.float32], arrays: Mapping[str, NDArray[Any]]
    ) -> dict[str, NDArray[Any]]:
        """The arrays under the names they came by, with the parameters in them; others as they came."""
        back = dict(arrays)
        names = self.all if set(arrays) == set(self.all) else tuple(arrays)
        for theirs, mine in zip(names, self.all, strict=True):
            if mine in self.flat:
                low, shape = self.flat[mine]
                part = params[low : low + int(np.prod(shape))].reshape(shape)
                back[theirs] = part.astype(arrays[theirs].dtype, copy=False)
        return back


Recipe = Callable[[Context, Task], Site]


def about(context: Context) -> dict[str, float]:
    """What the node's configuration states of it."""
    config = context.node_config
    named = {name: config.get(name.replace("_", "-")) for name in FIGURES}
    return {name: float(value) for name, value in named.items() if value is not None}


def from_card(context: Context, task: Task) -> Site:
    """The recipe of an app that has none of its own: the data card, model and seed that the server sends.

    A node trains on the part `task["part"]` where the server simulates its fleet, else on its own, the
    partition-id of its node config. Raises ValueError, saying what is missing, where neither is known.
    """
    if "card" not in task:
        raise ValueError(
            "the server sent no data card: start it with `flwr run`, or give `client` a recipe of your own"
        )
    part = task.get("part", context.node_config.get("partition-id"))
    if part is None:
        raise ValueError(
            "this node has no data: start it with --node-config 'partition-id=0', or write a recipe"
        )
    data, trainer = _built(str(task["card"]))
    part, device = int(part), int(task.get("device", part))
    if device % len(data) != part % len(data):
        raise ValueError(
            f"the server knows this node as device {device}, but it holds part {part} of the data"
        )
    examples = int(data.train.sizes[part % len(data)])
    return Site(trainer, examples, part=part, key=str(part), figures=about(context))


@lru_cache(maxsize=2)
def _built(card: str) -> tuple[Federated, Trainer]:
    """Data and trainer of a card; kept, for simulated nodes share a process."""
    from eiffel import data, train

    order = json.loads(card)
    federated = data.load(order["datasets"], order["clients"], order["seed"])
    engine = {"kind": "single", "workers": 1, "path": order.get("path", "auto")}
    return federated, train.trainer(federated, order["datasets"]["model"], engine, order["seed"])


def own(
    module: nn.Module,
    train: tuple[NDArray[Any], NDArray[Any]],
    test: tuple[NDArray[Any], NDArray[Any]],
    classes: int,
    *,
    key: str = "",
    figures: Mapping[str, float] | None = None,
    metric: str = "accuracy",
) -> Site:
    """A site with a module and samples of your own: (x, y) to train and to test on, y the classes.

    The module starts from the server's weights, whatever it holds. Raises ValueError (DataError) for samples
    that do not fit together.
    """
    from eiffel import train as engines
    from eiffel.data.federated import Federated, Parts

    x = np.ascontiguousarray(np.concatenate([train[0], test[0]]))
    y = np.concatenate([train[1], test[1]]).astype(np.int64)
    cut, end = len(train[0]), len(x)
    if x.dtype.kind == "f":
        x = x.astype(np.float32, copy=False)
    data = Federated(
        "own",
        x,
        y,
        classes,
        Parts(np.arange(cut), np.array([0, cut])),
        Parts(np.arange(cut, end), np.array([0, end - cut])),
        (key or "0",),
        {},
        metric,
    )
    _GIVEN.clear()
    _GIVEN.append(module)
    trainer = engines.trainer(data, {"module": f"{__name__}:given"}, {"kind": "single"}, 0)
    return Site(trainer, cut, Named.of(module), key=key, figures=figures or {})


_GIVEN: list[nn.Module] = []


def given() -> nn.Module:
    """A copy of the module that `own` was last called with: the engines build models by name."""
    from copy import deepcopy

    return deepcopy(_GIVEN[0])
