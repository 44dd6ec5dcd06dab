"""Rounds among real nodes, on a network that the test writes the script of and a clock that it holds.

A device's update is its number: device d sends w - d, so that the mean of devices 1 and 3, alike in weight, is 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eiffel.core import loop
from eiffel.core.model import Local, Params, Plan, Reason, Status, generator
from eiffel.method import Cohort, Method
from eiffel.worlds.grid import GridWorld
from eiffel.worlds.post import EVALUATE, PROBE, QUERY, TRAIN, Answer, Letter, Waits

SIZE = 2


@dataclass
class Node:
    """How a node behaves. delay: seconds to an answer. key: '' for one that knows no queries. examples: it has."""

    delay: float = 1.0
    key: str = ""
    examples: float = 10.0
    change: Callable[[Answer], list[Answer]] = lambda answer: [answer]
    silent: bool = False
    dies_at: float = float("inf")


@dataclass
class Script:
    """A network as a script: implements `Post`. now: the clock, moved by `sleep` alone."""

    nodes: dict[int, Node]
    now: float = 0.0
    sent: list[Letter] = field(default_factory=list)
    _due: list[tuple[float, str, Answer]] = field(default_factory=list)
    _ids: itertools.count = field(default_factory=itertools.count)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.01)

    def present(self) -> Sequence[int]:
        return sorted(n for n, node in self.nodes.items() if node.dies_at > self.now)

    def key(self, node: int) -> str:
        return ""

    def fallback(self, node: int) -> str:
        return f"node-{node}"

    def send(self, letters: Sequence[Letter], params: Params | None) -> list[tuple[str, int]]:
        ids = []
        for letter in letters:
            self.sent.append(letter)
            ids.append((f"m{next(self._ids)}", 100))
            self._answer(ids[-1][0], letter, params)
        return ids

    def _answer(self, id_: str, letter: Letter, params: Params | None) -> None:
        node = self.nodes[letter.node]
        if node.dies_at < self.now + node.delay:
            gone = Answer(id_, 0, Status.LEFT, why="error 5: Node Unavailable")
            self._due.append((node.dies_at + 60, id_, gone))
            return
        if node.silent and letter.kind != QUERY:
            return
        answer = Answer(id_, letter.node, bytes=40, examples=node.examples)
        if letter.kind == QUERY:
            failed = replace(answer, status=Status.FAILED, why="No query function registered")
            answer = (
                replace(answer, key=node.key, figures={"examples": node.examples}) if node.key else failed
            )
        elif letter.kind == TRAIN:
            answer = replace(answer, weights=params - np.float32(letter.device), metrics={"loss": 1.0})
        else:
            answer = replace(answer, metrics={"loss": 2.0 + letter.device, "accuracy": 0.5})
        for each in node.change(answer) if letter.kind == TRAIN else [answer]:
            self._due.append((self.now + node.delay, id_, each))

    def collect(self, ids: Sequence[str]) -> list[Answer]:
        here = [item for item in self._due if item[0] <= self.now and item[1] in ids]
        self._due = [item for item in self._due if item not in here]
        return [answer for _, _, answer in here]


def world(nodes: dict[int, Node], *, devices: int = 0, **waits: float) -> tuple[GridWorld, Script]:
    script = Script(nodes)
    budget = Waits(**{"nodes_s": 30.0, "query_s": 10.0, "round_s": 100.0, "poll_s": 0.1, **waits})
    made = GridWorld(
        script, SIZE, devices=devices, waits=budget, clock=script.clock, sleep=script.sleep, seed=1
    )
    return made, script


def keyed(count: int, **common: object) -> dict[int, Node]:
    """Nodes with ids 100, 101, ... that say they are devices 0, 1, ..."""
    return {100 + k: Node(key=str(k), **common) for k in range(count)}


def plan_for(world: GridWorld, round_: int, chosen: Sequence[int], **more: object) -> Plan:
    who = np.array(chosen, np.int64)
    fields = {"steps": np.full(who.size, 5), "deadline_s": float("inf"), "wait_for": 0, **more}
    return Plan(
        round=round_,
        chosen=who,
        reason=np.zeros(world.nodes.size, np.uint8),
        params=np.zeros(SIZE, np.float32),
        local=Local(),
        weigh=lambda reports: np.ones((1, reports.device.size)),
        **fields,
    )


def statuses(outcomes) -> dict[int, str]:
    return {int(d): Status(int(s)).name for d, s in zip(outcomes.device, outcomes.status, strict=True)}


# Who is there.


def test_a_round_begins_with_those_who_are_there() -> None:
    """Three are online, five are asked for, two suffice, two seconds are allowed: the three, within three seconds."""
    made, script = world(keyed(3), nodes_s=2.0, wanted=5, least=2)
    snapshot = made.observe(1)
    assert snapshot is not None
    assert (snapshot.reason == Reason.CHOSEN).sum() == 3
    assert script.now <= 3.0


def test_too_few_nodes_end_the_wait_in_words() -> None:
    made, script = world(keyed(3), nodes_s=2.0, wanted=5, least=4)
    assert made.observe(1) is None
    assert made.why.startswith("not enough nodes: 3 free of at least 4 after 2 s")
    assert 2.0 <= script.now <= 3.0


def test_nobody_at_all_is_no_hang() -> None:
    made, script = world({}, nodes_s=2.0)
    assert made.observe(1) is None
    assert script.now <= 3.0


def test_each_newcomer_is_asked_once() -> None:
    made, script = world(keyed(3))
    for round_ in (1, 2, 3):
        made.observe(round_)
    assert sorted(letter.node for letter in script.sent if letter.kind == QUERY) == [100, 101, 102]


def test_a_node_that_knows_no_queries_is_known_by_its_id() -> None:
    made, _ = world({7: Node(), 5: Node()})
    made.observe(1)
    assert made.nodes.keys == ["node-5", "node-7"]


def test_a_node_that_never_answers_its_query_delays_only_the_beginning() -> None:
    nodes = {**keyed(2), 200: Node(delay=1e9)}
    made, script = world(nodes, wanted=3)
    made.observe(1)
    assert script.now <= 11.0  # query_s is 10
    assert made.nodes.keys == ["0", "1", "node-200"]


def test_a_declared_federation_seats_devices_at_their_own_number() -> None:
    """Devices 2 and 0 are here; 1 comes later and finds its row."""
    made, script = world({100: Node(key="2"), 101: Node(key="0")}, devices=3)
    made.observe(1)
    assert made.nodes.keys == ["0", "", "2"]
    script.nodes[102] = Node(key="1")
    for _ in range(30):
        script.sleep(0.1)
        made.look()
    assert made.nodes.keys == ["0", "1", "2"]


def test_a_node_that_comes_back_under_a_new_id_keeps_its_row() -> None:
    made, script = world(keyed(2))
    made.observe(1)
    made.nodes.tell(1, {"step_s": 0.25})
    script.nodes[100].dies_at = script.now
    script.nodes[999] = Node(key="0", delay=0.0)
    made.observe(2)
    snapshot = made.observe(3)
    assert made.nodes.node_of[0] == 999
    assert made.nodes.size == 2
    assert snapshot.reason.tolist() == [0, 0]


def test_two_nodes_that_claim_one_key_are_kept_apart() -> None:
    made, _ = world({100: Node(key="a"), 101: Node(key="a")})
    made.observe(1)
    assert sorted(made.nodes.keys) == ["a", "a@101"]


@settings(max_examples=30, deadline=None)
@given(st.permutations([11, 22, 33, 44, 55, 66]), st.integers(0, 2**31))
def test_the_order_and_the_ids_of_nodes_change_nothing(order: list[int], seed: int) -> None:
    """The same six devices under other ids in another order: the same choice, device by device."""
    method = Method(cohort=Cohort(size=3))
    choices = []
    for ids in ([11, 22, 33, 44, 55, 66], order):
        made, _ = world({id_: Node(key=f"client-{k}") for k, id_ in enumerate(ids)}, wanted=6)
        snapshot = made.observe(1)
        plan = method.decide(method.init(np.zeros(SIZE, np.float32), 6), snapshot, generator(seed, 1))
        choices.append([made.nodes.keys[d] for d in plan.chosen])
    assert choices[0] == choices[1]


# Rounds.


def test_a_round_sums_what_came() -> None:
    """Devices 1 and 3 send updates of 1 and 3 in both entries: their sum is 4."""
    made, _ = world(keyed(4))
    made.observe(1)
    outcomes = made.run(plan_for(made, 1, [1, 3]))
    assert statuses(outcomes) == {1: "DELIVERED", 3: "DELIVERED"}
    assert outcomes.trained.sums.tolist() == [[4.0, 4.0]]
    assert outcomes.trained.reports.examples.tolist() == [10, 10]
    assert outcomes.bytes_down.tolist() == [100, 100]
    assert outcomes.bytes_up.tolist() == [40, 40]
    assert made.metrics == {"loss": (1.0, 1.0)}


def test_each_device_gets_exactly_its_own_steps() -> None:
    made, script = world(keyed(4))
    made.observe(1)
    made.run(plan_for(made, 1, [0, 1, 2, 3], steps=np.array([99, 10, 10, 10])))
    told = {letter.device: letter.task["steps"] for letter in script.sent if letter.kind == TRAIN}
    assert told == {0: 99, 1: 10, 2: 10, 3: 10}
    assert len({id(letter.task) for letter in script.sent if letter.kind == TRAIN}) == 4


def bad(**change: object) -> Callable[[Answer], list[Answer]]:
    return lambda answer: [replace(answer, **change)]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (bad(weights=np.array([np.nan, 0], np.float32)), "NON_FINITE"),
        (bad(status=Status.BAD_SHAPE, weights=None), "BAD_SHAPE"),
        (bad(examples=0.0), "BAD_WEIGHT"),
        (bad(examples=-5.0), "BAD_WEIGHT"),
        (bad(examples=float("nan")), "BAD_WEIGHT"),
        (bad(status=Status.FAILED, weights=None, why="boom"), "FAILED"),
    ],
)
def test_what_does_not_count_is_named_and_changes_nothing(change: object, status: str) -> None:
    nodes = keyed(3)
    nodes[101].change = change
    made, _ = world(nodes)
    made.observe(1)
    outcomes = made.run(plan_for(made, 1, [1, 2]))
    assert statuses(outcomes) == {1: status, 2: "DELIVERED"}
    assert outcomes.trained.sums.tolist() == [[2.0, 2.0]]


def test_a_model_that_nobody_moved_stays_bit_for_bit() -> None:
    nodes = keyed(2, change=bad(examples=0.0))
    made, _ = world(nodes)
    snapshot = made.observe(1)
    method = Method(cohort=Cohort(size=2))
    state = method.init(np.array([0.1, 0.7], np.float32), 2)
    plan = method.decide(state, snapshot, generator(0, 1))
    after = method.learn(state, snapshot, plan, made.run(plan))
    assert after.aggregate.params.tobytes() == state.aggregate.params.tobytes()


def test_a_second_answer_is_counted_as_traffic_and_as_nothing_else() -> None:
    """Device 1 answers twice with 40 bytes each; device 2 comes later, so that the second one is heard."""
    nodes = keyed(3)
    nodes[101].change = lambda answer: [answer, answer]
    nodes[102].delay = 2.0
    made, _ = world(nodes)
    made.observe(1)
    outcomes = made.run(plan_for(made, 1, [1, 2]))
    assert outcomes.trained.sums.tolist() == [[3.0, 3.0]]
    assert made.strays == {"duplicate": 1}
    assert made.stray_bytes == 40


def test_an_answer_from_somebody_else_is_foreign() -> None:
    nodes = keyed(3)
    nodes[101].change = lambda answer: [replace(answer, sender=102), answer]
    made, _ = world(nodes)
    made.observe(1)
    outcomes = made.run(plan_for(made, 1, [1]))
    assert made.strays == {"foreign": 1}
    assert statuses(outcomes) == {1: "DELIVERED"}


def test_the_first_ones_that_suffice_end_the_round() -> None:
    """Three are asked, two suffice: the slow third is surplus and stays busy until it answers, at second 20."""
    nodes = keyed(3)
    made, script = world(nodes, nodes_s=5.0, wanted=3)
    made.observe(1)
    nodes[102].delay = 20.0
    began = script.now
    outcomes = made.run(plan_for(made, 1, [0, 1, 2], wait_for=2))
    assert statuses(outcomes) == {0: "DELIVERED", 1: "DELIVERED", 2: "SURPLUS"}
    assert script.now - began < 1.5
    assert made.observe(2).reason.tolist() == [0, 0, Reason.BUSY]
    script.now = 25.0
    assert made.observe(3).reason.tolist() == [0, 0, 0]
    assert made.strays == {"stale": 1}


def test_a_deadline_ends_the_round_on_time_and_a_slow_node_does_not_starve_the_next() -> None:
    """Deadline 1.5 s, one node takes 4 s: late in round 1, busy in rounds 2 and 3, free again afterwards."""
    nodes = keyed(3, delay=0.3)
    nodes[100].delay = 4.0
    made, script = world(nodes, nodes_s=5.0, hold=10.0, wanted=3)
    made.observe(1)
    began = script.now
    outcomes = made.run(plan_for(made, 1, [0, 1, 2], deadline_s=1.5))
    assert statuses(outcomes) == {0: "LATE", 1: "DELIVERED", 2: "DELIVERED"}
    assert script.now - began == pytest.approx(1.5, abs=0.2)
    busy = []
    for round_ in (2, 3, 4, 5):
        snapshot = made.observe(round_)
        busy.append(int(snapshot.reason[0]) == Reason.BUSY)
        outcomes = made.run(plan_for(made, round_, [1, 2], deadline_s=1.5))
        assert set(statuses(outcomes).values()) == {"DELIVERED"}
        script.now = max(script.now, began + round_)
    assert busy[0]
    assert not busy[-1]


def test_an_unanswered_message_expires_and_its_node_is_asked_again() -> None:
    nodes = keyed(2)
    nodes[100].silent = True
    made, script = world(nodes, hold=2.0, nodes_s=1.0)
    made.observe(1)
    made.run(plan_for(made, 1, [0, 1], deadline_s=2.0))
    assert made.observe(2).reason[0] == Reason.BUSY
    script.now += 3.0  # 2 x 2 s have passed since it was sent
    assert made.observe(3).reason[0] == Reason.CHOSEN


def test_without_a_deadline_the_budget_of_the_round_ends_it() -> None:
    nodes = keyed(2)
    nodes[100].silent = True
    made, script = world(nodes, round_s=8.0)
    made.observe(1)
    began = script.now
    outcomes = made.run(plan_for(made, 1, [0, 1]))
    assert statuses(outcomes) == {0: "SILENT", 1: "DELIVERED"}
    assert script.now - began == pytest.approx(8.0, abs=0.2)


def test_the_networks_word_for_a_dead_node_names_the_right_one() -> None:
    """The error comes from the network itself, sender 0; only the message it answers says whose it is."""
    nodes = keyed(3)
    made, script = world(nodes)
    made.observe(1)
    nodes[101].dies_at = script.now + 0.5
    outcomes = made.run(plan_for(made, 1, [0, 1, 2]))
    assert statuses(outcomes) == {0: "DELIVERED", 1: "LEFT", 2: "DELIVERED"}
    assert made.observe(2).reason.tolist() == [0, Reason.OFFLINE, 0]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.1, 30), st.sampled_from(["fine", "silent", "nan", "dies", "twice", "zero"])),
        min_size=1,
        max_size=6,
    ),
    st.floats(1, 20),
    st.integers(0, 3),
)
def test_whatever_nodes_do_a_round_ends_and_counts_right(
    kinds: list[tuple[float, str]], deadline: float, enough: int
) -> None:
    """Every device has one status; the sum is that of the delivered; time is kept."""
    nodes = {}
    for k, (delay, kind) in enumerate(kinds):
        change = {
            "nan": bad(weights=np.full(SIZE, np.nan, np.float32)),
            "twice": lambda answer: [answer, answer],
            "zero": bad(examples=0.0),
        }.get(kind, lambda answer: [answer])
        nodes[100 + k] = Node(delay=delay, key=str(k), change=change, silent=kind == "silent")
    made, script = world(nodes, query_s=40.0, nodes_s=50.0, wanted=len(nodes))
    made.observe(1)
    for k, (_, kind) in enumerate(kinds):
        if kind == "dies":
            nodes[100 + k].dies_at = script.now + 0.05
    began, everybody = script.now, list(range(len(kinds)))
    outcomes = made.run(plan_for(made, 1, everybody, deadline_s=deadline, wait_for=min(enough, len(kinds))))
    assert script.now - began <= deadline + 0.2
    delivered = outcomes.device[outcomes.delivered]
    assert outcomes.trained.sums[0].tolist() == [float(delivered.sum())] * SIZE
    assert np.isfinite(outcomes.joules).all()
    assert not (enough and delivered.size > enough)
    for k, (delay, kind) in enumerate(kinds):
        if kind in ("nan", "zero", "silent", "dies"):
            assert k not in delivered
        elif delay <= deadline - 0.2 and not enough:
            assert k in delivered


# Probes, evaluation, state.


def test_a_probe_asks_for_losses_alone() -> None:
    """A device's loss is 2 + its number; nothing is added to any model."""
    made, script = world(keyed(3))
    made.observe(1)
    answers = made.run(plan_for(made, 1, [0, 2], steps=np.zeros(2, np.int64)))
    assert answers.trained.reports.loss.tolist() == [2.0, 4.0]
    assert not answers.trained.weights.any()
    assert {letter.kind for letter in script.sent if letter.kind != QUERY} == {PROBE}


def test_every_free_device_measures_a_model() -> None:
    made, script = world(keyed(4))
    made.observe(1)
    scores = made.score({"last": np.zeros(SIZE, np.float32)})["last"]
    assert scores.loss.tolist() == [2.0, 3.0, 4.0, 5.0]
    assert scores.accuracy.tolist() == [0.5] * 4
    assert made.evaluation["loss"] == (pytest.approx(3.5), 1.0)
    assert sum(letter.kind == EVALUATE for letter in script.sent) == 4


def test_a_resumed_world_knows_its_devices_and_its_clock() -> None:
    made, _ = world(keyed(3))
    made.observe(1)
    made.run(plan_for(made, 1, [0, 1, 2]))
    saved, at = made.state(), made.now
    again, _ = world({200 + k: Node(key=str(k)) for k in (2, 0, 1)})
    again.restore(saved)
    snapshot = again.observe(2)
    assert again.nodes.keys == ["0", "1", "2"]
    assert again.nodes.node_of == {0: 200, 1: 201, 2: 202}
    assert snapshot.now >= at
    np.testing.assert_allclose(
        snapshot.step_s, made.nodes.snapshot(2, 0, np.zeros(3, np.uint8), 0, 0).step_s, rtol=1e-6
    )


def test_the_loop_runs_over_it() -> None:
    """Twenty rounds of FedAvg among five nodes, of which one fails always: nothing hangs, all is booked."""
    from eiffel.core.journal import Books
    from eiffel.core.ledger import Ledger

    nodes = keyed(5)
    nodes[103].change = bad(status=Status.FAILED, weights=None)
    made, _ = world(nodes, wanted=5)
    method = Method(cohort=Cohort(size=3))
    rows = []
    books = Books(
        made, method, Ledger.open(5), rounds=20, score_every=5, sinks=[lambda row, columns: rows.append(row)]
    )
    ended = loop.run(made, method, books, method.init(np.zeros(SIZE, np.float32), 5), rounds=20, seed=3)
    assert ended.why == "all rounds done"
    assert [row["round"] for row in rows] == list(range(1, 21))
    assert sum(row["lost"].get("failed", 0) for row in rows) > 0
    assert books.ledger.participation[3] == 0
    assert rows[-1]["total_bytes"] == sum(row["bytes"] for row in rows)
