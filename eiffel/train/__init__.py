"""Training simulated devices with torch: `trainer` builds the engine that a configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eiffel.core.model import Trainer
    from eiffel.data.federated import Federated


def trainer(data: Federated, model: Mapping[str, Any], engine: Mapping[str, Any], seed: int) -> Trainer:
    """The engine of `conf/engine/` for this data set and model card. Imports torch only when called.

    Raises ValueError, naming the field, for a model or an engine that does not exist.
    """
    from eiffel.train.engine import alone

    del seed
    return alone(data, model, engine)
