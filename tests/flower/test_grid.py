"""The in-process grid: what Flower asks of a grid, at a cost that follows the nodes that are spoken to."""

from __future__ import annotations

import inspect
import os
import time

import flower_apps
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from eiffel.flower.grid import FIRST_NODE, EiffelGrid

MOODS = {0: "fine", 1: "raises", 2: "greedy", 3: "fine"}


def ask(grid: EiffelGrid, parts: list[int], record: ArrayRecord | None = None) -> list[Message]:
    record = record or ArrayRecord({"w": Array(np.zeros(2, np.float32))})
    content = [RecordDict({"arrays": record, "config": ConfigRecord({"lr": 0.1})}) for _ in parts]
    return [Message(c, FIRST_NODE + part, "train") for c, part in zip(content, parts, strict=True)]


def answers(grid: EiffelGrid, parts: list[int]) -> dict[int, Message]:
    replies = grid.send_and_receive(ask(grid, parts), timeout=60)
    return {reply.metadata.src_node_id - FIRST_NODE: reply for reply in replies}


def value(reply: Message) -> float:
    return float(reply.content["arrays"]["w"].numpy()[0])


def test_flowers_own_strategy_runs_over_it() -> None:
    """Stock FedAvg, stock app, twelve nodes: the linear model is found."""
    strategy = FedAvg(fraction_train=0.5)
    config = ConfigRecord({"lr": 0.1, "local-steps": 20})
    result = strategy.start(EiffelGrid(flower_apps.app, 12), flower_apps.initial(), 5, train_config=config)
    assert np.abs(result.arrays["w"].numpy() - flower_apps.TRUTH).max() < 0.05
    assert result.evaluate_metrics_clientapp[5]["eval_acc"] > 0.9


def test_a_node_exists_once_it_is_spoken_to() -> None:
    grid = EiffelGrid(flower_apps.odd, 10**6)
    assert grid.touched == 0
    assert {part: value(reply) for part, reply in answers(grid, [3, 999_999]).items()} == {
        3: 3.0,
        999_999: 999_999.0,
    }
    assert grid.touched == 2


def test_a_nodes_state_lasts_from_message_to_message() -> None:
    grid = EiffelGrid(flower_apps.odd, 4)
    turns = [answers(grid, [2])[2].content["metrics"]["turn"] for _ in range(3)]
    assert turns == [1, 2, 3]


def test_what_an_app_raises_is_an_error_reply_that_says_why() -> None:
    grid = EiffelGrid(flower_apps.odd, 4, node_config=lambda part: {"mood": MOODS[part]})
    reply = answers(grid, [1])[1]
    assert reply.has_error()
    assert reply.error.code == 2
    assert "the disk is full" in reply.error.reason


def test_an_app_may_empty_what_it_was_given() -> None:
    """Node 2 pops every array of its record: the record is its own, the others' stays whole."""
    grid = EiffelGrid(flower_apps.odd, 4, node_config=lambda part: {"mood": MOODS[part]})
    record = ArrayRecord({"w": Array(np.zeros(2, np.float32))})
    replies = list(grid.send_and_receive(ask(grid, [2, 3], record)))
    assert not any(reply.has_error() for reply in replies)
    assert len(record) == 1


def test_answers_come_in_slices_so_that_deadlines_work() -> None:
    grid = EiffelGrid(flower_apps.odd, 3, node_config=lambda part: {"mood": "slow"})
    ids = list(grid.push_messages(ask(grid, [0, 1, 2])))
    began = time.monotonic()
    assert len(list(grid.pull_messages(ids))) == 1
    assert time.monotonic() - began < 1.9


def test_workers_answer_as_this_process_does() -> None:
    """The same answers and the same states with two processes; an app that kills its process costs one answer."""
    moods = {1: "raises", 4: "dies"}
    config = lambda part: {"mood": moods.get(part, "fine")}  # noqa: E731
    with EiffelGrid("flower_apps:odd", 6, workers=2, node_config=config) as grid:
        first = answers(grid, [0, 1, 2, 3, 4, 5])
        second = answers(grid, [0, 2])
        assert {p: value(r) for p, r in first.items() if not r.has_error()} == {
            0: 0.0,
            2: 2.0,
            3: 3.0,
            5: 5.0,
        }
        assert first[1].error.code == 2
        assert first[4].error.code == 8
        assert [second[p].content["metrics"]["turn"] for p in (0, 2)] == [2, 2]
        pids = grid._crew.pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_bad_requests_are_refused_in_words() -> None:
    grid = EiffelGrid(flower_apps.odd, 3)
    with pytest.raises(ValueError, match="addressed to node 7"):
        grid.push_messages([Message(RecordDict(), 7, "train")])
    with pytest.raises(ValueError, match="at least one"):
        EiffelGrid(flower_apps.odd, 0)
    with pytest.raises(ValueError, match="name it as"):
        EiffelGrid(flower_apps.odd, 3, workers=2)
    with pytest.raises(ValueError, match="no_such_module"):
        EiffelGrid("no_such_module:app", 3)


# The contract: what this package takes from Flower's inside. When an upgrade of Flower breaks it, this says where.


def test_the_grid_seam_is_what_it_was() -> None:
    asked = {name for name, item in vars(Grid).items() if getattr(item, "__isabstractmethod__", False)}
    assert asked == {
        "set_run", "run", "create_message", "get_node_ids", "push_messages", "pull_messages", "send_and_receive"
    }  # fmt: skip
    assert list(inspect.signature(Grid.send_and_receive).parameters) == ["self", "messages", "timeout"]


def test_a_process_has_the_identity_that_messages_ask_for() -> None:
    for name in ("_run_id", "_task_id", "_node_id"):
        assert hasattr(TaskIdentity, name)
    EiffelGrid(flower_apps.odd, 1)
    assert TaskIdentity.run_id is not None
    assert TaskIdentity.node_id == 1


def test_message_ids_live_where_grids_put_them() -> None:
    message = Message(RecordDict(), 5, "train")
    message.metadata.__dict__["_message_id"] = "mine"
    assert message.metadata.message_id == "mine"
    assert Message(RecordDict(), reply_to=message).metadata.reply_to_message_id == "mine"


def test_contexts_and_runs_are_made_as_we_make_them() -> None:
    names = list(inspect.signature(Context).parameters)
    assert names[:5] == ["run_id", "node_id", "node_config", "state", "run_config"]
    from flwr.app.message import make_message
    from flwr.supercore.run import Run

    assert Run.create_empty(run_id=3).run_id == 3
    assert list(inspect.signature(make_message).parameters)[:2] == ["metadata", "content"]


def test_error_codes_mean_what_they_meant() -> None:
    from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode

    assert SUPERLINK_NODE_ID == 1
    assert (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, ErrorCode.NODE_UNAVAILABLE) == (2, 5)
    assert (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE) == (3, 4)


def test_records_hold_what_we_put_in_them() -> None:
    content = RecordDict(
        {"a": ArrayRecord({"x": Array(np.ones(2, np.float32))}), "m": MetricRecord({"n": 1})}
    )
    assert list(content.array_records) == ["a"]
    assert content["a"].count_bytes() > 8
