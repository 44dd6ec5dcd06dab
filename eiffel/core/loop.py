"""The loop that a federated round, a Flower deployment and a cluster slot share.

    snapshot -> (probe -> answers ->) plan -> outcomes -> state -> record

A world observes and runs, a policy decides and learns, a journal keeps the books. Nothing else happens here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from eiffel.core.model import generator

# Snapshot, plan, outcomes, the policy's state; _in where a protocol takes it, _out where it gives it.
S = TypeVar("S")
P = TypeVar("P")
O = TypeVar("O")  # noqa: E741
T = TypeVar("T")
S_in = TypeVar("S_in", contravariant=True)
P_in = TypeVar("P_in", contravariant=True)
O_in = TypeVar("O_in", contravariant=True)
T_in = TypeVar("T_in", contravariant=True)
S_out = TypeVar("S_out", covariant=True)
O_out = TypeVar("O_out", covariant=True)


class World(Protocol[S_out, P_in, O_out]):
    """Where plans are carried out: simulated phones, a trace-driven cluster, Flower nodes."""

    @property
    def why(self) -> str:
        """Why `observe` returned None."""
        ...

    def observe(self, round_: int) -> S_out | None:
        """What there is to schedule now; None when nothing will ever be there again."""
        ...

    def run(self, plan: P_in) -> O_out:
        """Carry the plan out."""
        ...

    def state(self) -> Mapping[str, Any]:
        """All that a resumed world needs."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a saved state."""
        ...


class Policy(Protocol[S_in, P, O_in, T]):
    """A scheduler: pure functions of state, snapshot and generator."""

    def ask(self, state: T, snapshot: S_in, rng: np.random.Generator) -> P | None:
        """A probe that must be answered before the plan can be made, or None (most policies)."""
        ...

    def hear(self, state: T, snapshot: S_in, probe: P, answers: O_in) -> T:
        """The state after the answers to a probe."""
        ...

    def decide(self, state: T, snapshot: S_in, rng: np.random.Generator) -> P:
        """Who does what, how much, and why the others do not."""
        ...

    def learn(self, state: T, snapshot: S_in, plan: P, outcomes: O_in) -> T:
        """The state after these outcomes."""
        ...

    def stop(self, state: T) -> str:
        """Why the policy wants no further round, or ''."""
        ...


class Journal(Protocol[S_in, P_in, O_in, T_in]):
    """Keeps the books: adds a round, tells the sinks, and saves what a resumed run needs."""

    def probed(self, snapshot: S_in, probe: P_in, answers: O_in) -> None:
        """Book what a probe cost; it belongs to the round that follows."""
        ...

    def add(self, round_: int, snapshot: S_in, plan: P_in, outcomes: O_in, state: T_in) -> str:
        """Book one round; returns a reason to stop early, or ''."""
        ...


PROBE = 1
"""Purpose of a probe's random draws, so that they are not those of the plan."""


@dataclass(frozen=True, slots=True)
class Ended(Generic[T]):
    """How a run ended: the policy's last state, the last round done, and the reason in words."""

    state: T
    round: int
    why: str


def run(
    world: World[S, P, O],
    policy: Policy[S, P, O, T],
    journal: Journal[S, P, O, T],
    state: T,
    *,
    rounds: int,
    seed: int,
    first: int = 1,
    cancelled: Callable[[], str] = lambda: "",
) -> Ended[T]:
    """Run rounds `first`..`rounds`.

    Round r draws from `generator(seed, r)` alone, so that it can be repeated by itself and a resumed run
    repeats nothing. Ends early when the world has nothing left, the policy or the journal says so, or
    `cancelled()` gives a reason.
    """
    for round_ in range(first, rounds + 1):
        if why := policy.stop(state) or cancelled():
            return Ended(state, round_ - 1, why)
        snapshot = world.observe(round_)
        if snapshot is None:
            return Ended(state, round_ - 1, world.why)
        if (probe := policy.ask(state, snapshot, generator(seed, round_, PROBE))) is not None:
            answers = world.run(probe)
            state = policy.hear(state, snapshot, probe, answers)
            journal.probed(snapshot, probe, answers)
            snapshot = world.observe(round_)
            if snapshot is None:
                return Ended(state, round_ - 1, world.why)
        plan = policy.decide(state, snapshot, generator(seed, round_))
        outcomes = world.run(plan)
        state = policy.learn(state, snapshot, plan, outcomes)
        if why := journal.add(round_, snapshot, plan, outcomes, state):
            return Ended(state, round_, why)
    return Ended(state, rounds, "all rounds done")
