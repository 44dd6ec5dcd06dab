"""The loop on a world small enough to see through: numbers are observed, doubled, and summed."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eiffel.core.loop import run
from eiffel.core.model import generator


@dataclass
class Counter:
    """A world that shows the round's number, until it has nothing left."""

    last: int = 99
    why: str = "nothing left"
    seen: list[Any] = field(default_factory=list)

    def observe(self, round_: int) -> int | None:
        self.seen.append(("observe", round_))
        return round_ if round_ <= self.last else None

    def run(self, plan: tuple[str, int]) -> int:
        self.seen.append(plan)
        return 2 * plan[1]

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Any) -> None:
        raise NotImplementedError


@dataclass
class Adder:
    """A policy whose state is the sum of outcomes; it probes in even rounds where asked to."""

    probes: bool = False
    enough: int = 10**9
    draws: list[float] = field(default_factory=list)

    def ask(self, state: int, snapshot: int, rng: np.random.Generator) -> tuple[str, int] | None:
        return ("probe", snapshot) if self.probes and snapshot % 2 == 0 else None

    def hear(self, state: int, snapshot: int, probe: Any, answers: int) -> int:
        return state + 100

    def decide(self, state: int, snapshot: int, rng: np.random.Generator) -> tuple[str, int]:
        self.draws.append(float(rng.random()))
        return ("plan", snapshot)

    def learn(self, state: int, snapshot: int, plan: Any, outcomes: int) -> int:
        return state + outcomes

    def stop(self, state: int) -> str:
        return "enough" if state >= self.enough else ""


@dataclass
class Book:
    lines: list[Any] = field(default_factory=list)
    stop_at: int = 10**9

    def probed(self, snapshot: int, probe: Any, answers: int) -> None:
        self.lines.append(("probed", snapshot))

    def add(self, round_: int, snapshot: int, plan: Any, outcomes: int, state: int) -> str:
        self.lines.append((round_, state))
        return "target reached" if round_ >= self.stop_at else ""


def test_all_rounds() -> None:
    """2*1 + 2*2 + 2*3 = 12."""
    book = Book()
    ended = run(Counter(), Adder(), book, 0, rounds=3, seed=0)
    assert (ended.state, ended.round, ended.why) == (12, 3, "all rounds done")
    assert book.lines == [(1, 2), (2, 6), (3, 12)]


def test_it_ends_for_four_reasons_and_says_which() -> None:
    """The world has nothing left, the policy has enough, the journal is content, somebody cancelled."""
    assert run(Counter(last=2), Adder(), Book(), 0, rounds=9, seed=0).why == "nothing left"
    enough = run(Counter(), Adder(enough=6), Book(), 0, rounds=9, seed=0)
    assert (enough.round, enough.why) == (2, "enough")
    content = run(Counter(), Adder(), Book(stop_at=2), 0, rounds=9, seed=0)
    assert (content.round, content.why) == (2, "target reached")
    answers = iter(["", "", "by hand"])
    assert run(Counter(), Adder(), Book(), 0, rounds=9, seed=0, cancelled=lambda: next(answers)).round == 2


def test_a_probe_comes_before_its_plan_and_is_observed_anew() -> None:
    world, book = Counter(), Book()
    ended = run(world, Adder(probes=True), book, 0, rounds=2, seed=0)
    assert world.seen == [
        ("observe", 1),
        ("plan", 1),
        ("observe", 2),
        ("probe", 2),
        ("observe", 2),
        ("plan", 2),
    ]
    assert book.lines == [(1, 2), ("probed", 2), (2, 106)]
    assert ended.state == 106


def test_each_round_draws_from_its_own_generator() -> None:
    """So that going on from round 3 draws what the whole run drew there."""
    whole, rest = Adder(), Adder()
    run(Counter(), whole, Book(), 0, rounds=4, seed=5)
    run(Counter(), rest, Book(), 6, rounds=4, seed=5, first=3)
    assert rest.draws == whole.draws[2:]
    assert whole.draws[0] == generator(5, 1).random()
    assert len(set(whole.draws)) == 4
