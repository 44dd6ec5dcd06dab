"""The seam between a federation and the network that carries it: letters, answers, and the budgets of waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from eiffel.core.model import Params, Status

QUERY, TRAIN, PROBE, EVALUATE = "query", "train", "probe", "evaluate"
"""Kinds of letters."""

ACCURACY = ("accuracy", "eval_acc", "eval-acc", "acc", "eval_accuracy", "test_accuracy", "auroc")
LOSS = ("loss", "eval_loss", "eval-loss", "train_loss", "train-loss", "test_loss")
"""Names under which Flower apps report these two, in order of preference."""


def first_of(metrics: Mapping[str, float], names: Sequence[str]) -> float:
    """The first of these names that was reported; NaN where none was."""
    return next((metrics[name] for name in names if name in metrics), float("nan"))


class NotEnoughNodes(TimeoutError):
    """Fewer nodes were there than a round needs, for as long as was allowed to wait for them."""


@dataclass(frozen=True, slots=True)
class Waits:
    """The budget of every wait, in seconds, and how many nodes are waited for.

    nodes_s: for enough nodes to come. gather_s: in the first round, for more of them once the least are there.
    query_s: for newcomers to say who they are. round_s: of a round without a deadline. evaluate_s: of an
    evaluation. poll_s: between two looks for answers. hold: an unanswered message keeps its node busy for so many
    deadlines, after which it expires. least: fewest free nodes with which a round begins. wanted: how many the
    first round gathers, if it can.
    """

    nodes_s: float = 600.0
    gather_s: float = 15.0
    query_s: float = 120.0
    round_s: float = 3600.0
    evaluate_s: float = 600.0
    poll_s: float = 0.2
    hold: float = 4.0
    least: int = 1
    wanted: int = 1

    def __post_init__(self) -> None:
        """Refuse waits that never end or never begin."""
        for name in ("nodes_s", "gather_s", "query_s", "round_s", "evaluate_s", "poll_s"):
            value = getattr(self, name)
            if not (value > 0 and np.isfinite(value)):
                raise ValueError(f"waits.{name} is {value!r}; it must be a positive number of seconds")
        if self.hold < 1 or self.least < 1 or self.wanted < 1:
            raise ValueError("waits.hold, waits.least and waits.wanted must be 1 or more")


@dataclass(frozen=True, slots=True)
class Letter:
    """A question to a node. task: scalars for this node alone. ttl: seconds after which it expires.

    shift: (P,) that the device adds to every gradient it steps by, or None.
    """

    kind: str
    device: int
    node: int
    task: Mapping[str, Any]
    ttl: float
    round: int = 0
    shift: Params | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """A letter on its way. id: '' when it could not be sent. bytes: it weighs. at: when, by the world's clock."""

    id: str
    letter: Letter
    bytes: int
    at: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. answers: id of the letter. sender: node, 0 where the network speaks for a node that is gone.

    status: what is wrong with its substance, DELIVERED if nothing. weights: (P,) the trained model. slope: (P,)
    gradient of the incoming one, where it was asked for. figures: what the device says of itself and its work.
    metrics: what it measured. key: who it is. why: errors' words.
    """

    answers: str
    sender: int
    status: Status = Status.DELIVERED
    weights: Params | None = None
    slope: Params | None = None
    examples: float = float("nan")
    figures: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    key: str = ""
    bytes: int = 0
    why: str = ""


class Post(Protocol):
    """Carries letters to nodes and their answers back."""

    def present(self) -> Sequence[int]:
        """Ids of the nodes that can be reached."""
        ...

    def send(self, letters: Sequence[Letter], params: Params | None) -> list[tuple[str, int]]:
        """Send each with the model `params`; in the same order its id, '' if it could not be sent, and bytes."""
        ...

    def collect(self, ids: Sequence[str]) -> list[Answer]:
        """Answers to these letters that have arrived and were not collected yet."""
        ...

    def key(self, node: int) -> str:
        """A node's key where the network itself knows it, else ''."""
        ...

    def fallback(self, node: int) -> str:
        """A key for a node that does not say who it is."""
        ...
