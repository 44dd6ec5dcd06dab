"""A Flower grid inside this process: runs unmodified ClientApps without Ray and without a SuperLink.

Nothing is made for a node before it is first spoken to and nothing is polled, so that a round costs O(K) of
the K nodes it asks, however many there are. Messages are run when their answers are pulled, in the order in
which they were pushed, for a time slice a call: a caller's deadlines work.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict, UserConfig
from flwr.app.message import make_message
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

if TYPE_CHECKING:
    from eiffel.flower.crew import Crew
    from eiffel.worlds.devices import Fleet

FIRST_NODE = 1_000
"""Id of the node that holds partition 0; the others follow in order."""
SLICE_S = 0.1
RUN_ID = 1


class EiffelGrid(Grid):
    """Implements `flwr.serverapp.Grid` with `nodes` in-process nodes that run `client_app`.

    client_app: a ClientApp, or where to find one ("package.module:app"), which `workers` needs. workers:
    processes to run it in; results are the same for any number. run_config: what every ClientApp reads in
    context.run_config. node_config: a node's own, from its partition (beside partition-id and num-partitions).
    fleet: simulated devices for a virtual clock and energy, each of
    `examples` training samples (all alike if not given), see `eiffel.flower.Strategy`. Use it as a context
    manager, or call `close`, where there are workers.
    """

    def __init__(
        self,
        client_app: ClientApp | str,
        nodes: int,
        *,
        workers: int = 0,
        run_config: UserConfig | None = None,
        node_config: Callable[[int], Mapping[str, bool | float | int | str]] | None = None,
        fleet: Fleet | None = None,
        examples: NDArray[np.integer] | None = None,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"nodes is {nodes!r}; a grid needs at least one")
        if fleet is not None and fleet.size != nodes:
            raise ValueError(
                f"the fleet has {fleet.size} devices, the grid {nodes} nodes: give both the same number"
            )
        if workers and not isinstance(client_app, str):
            raise ValueError("workers import the ClientApp: name it as 'package.module:app'")
        self.fleet = fleet
        self.examples = np.ones(nodes, np.int32) if examples is None else np.asarray(examples, np.int32)
        self._nodes, self._run_config, self._node_config = nodes, dict(run_config or {}), node_config
        self._app = client_app if isinstance(client_app, ClientApp) else None
        self._crew = _crew(str(client_app), workers) if workers else None
        self._app = self._app or (None if workers else load(str(client_app)))
        self._contexts: dict[int, Context] = {}
        self._waiting: dict[str, Message] = {}
        self._ids = (f"m{number}" for number in count(1))
        self._run = Run.create_empty(run_id=RUN_ID)
        identify()

    # What flwr.serverapp.Grid asks for.

    def set_run(self, run: Run) -> None:
        """Set the run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """A message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """All nodes, as a range: listing them is the caller's choice."""
        return range(FIRST_NODE, FIRST_NODE + self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Take messages in. Raises ValueError for one to a node that does not exist."""
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        node = message.metadata.dst_node_id
        if not FIRST_NODE <= node < FIRST_NODE + self._nodes:
            raise ValueError(f"a message is addressed to node {node}; nodes are {self.get_node_ids()}")
        id_ = next(self._ids)
        message.metadata.__dict__["_message_id"] = id_
        # A node gets what it would get from the wire: records of its own, which it may empty or change.
        copy = _copy(message)
        self._waiting[id_] = copy
        if self._crew is not None:
            self._crew.submit(id_, copy, self._context(node))
        return id_

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Answers to these messages: those there are after a time slice, at least one if one is waiting."""
        wanted = [id_ for id_ in message_ids if id_ in self._waiting]
        return self._pull_crew(set(wanted)) if self._crew is not None else self._pull_here(wanted)

    def _pull_here(self, wanted: list[str]) -> list[Message]:
        until, replies = time.monotonic() + SLICE_S, list[Message]()
        for id_ in wanted:
            message = self._waiting.pop(id_)
            assert self._app is not None
            reply, context = execute(self._app, message, self._context(message.metadata.dst_node_id))
            replies.append(self._kept(reply, context, message))
            if time.monotonic() >= until:
                break
        return replies

    def _pull_crew(self, wanted: set[str]) -> list[Message]:
        assert self._crew is not None
        return [
            self._kept(reply, context, self._waiting.pop(id_))
            for id_, reply, context in self._crew.take(wanted, SLICE_S)
        ]

    def _kept(self, reply: Message, context: Context, message: Message) -> Message:
        self._contexts[message.metadata.dst_node_id] = context
        reply.metadata.__dict__["_message_id"] = next(self._ids)
        return reply

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Push, then pull until all have answered or `timeout` seconds have passed."""
        waiting = set(self.push_messages(messages))
        until, replies = None if timeout is None else time.monotonic() + timeout, list[Message]()
        while waiting and (until is None or time.monotonic() < until):
            for reply in self.pull_messages(sorted(waiting, key=lambda id_: int(id_[1:]))):
                waiting.discard(reply.metadata.reply_to_message_id)
                replies.append(reply)
        return replies

    # Ours.

    def key(self, node: int) -> str:
        """The partition a node holds: its stable key."""
        return str(node - FIRST_NODE)

    def _context(self, node: int) -> Context:
        """A node's context, made when it is first spoken to."""
        if node not in self._contexts:
            part = node - FIRST_NODE
            own = self._node_config(part) if self._node_config else {}
            config: UserConfig = {"partition-id": part, "num-partitions": self._nodes, **own}
            self._contexts[node] = Context(self._run.run_id, node, config, RecordDict(), self._run_config)
        return self._contexts[node]

    @property
    def touched(self) -> int:
        """How many nodes have been spoken to so far."""
        return len(self._contexts)

    def close(self) -> None:
        """End the workers."""
        if self._crew is not None:
            self._crew.close()

    def __enter__(self) -> EiffelGrid:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def identify() -> None:
    """Give this process the identity without which `flwr.app.Message` refuses to be made."""
    for name, value in (("_run_id", RUN_ID), ("_task_id", 1), ("_node_id", SUPERLINK_NODE_ID)):
        if getattr(TaskIdentity, name) is None:
            setattr(TaskIdentity, name, value)


def execute(app: ClientApp, message: Message, context: Context) -> tuple[Message, Context]:
    """Run a ClientApp on a message as a SuperNode would: what it raises becomes an error reply."""
    try:
        reply = app(message, context)
        if not isinstance(reply, Message):
            raise TypeError(f"the ClientApp returned a {type(reply).__name__}; it must return a Message")
    except Exception as problem:
        reason = "".join(traceback.format_exception(problem))
        reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
    return reply, context


def load(where: str) -> ClientApp:
    """The ClientApp at "package.module:app". Raises ValueError where there is none."""
    from importlib import import_module

    module, _, name = where.partition(":")
    try:
        app = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as problem:
        raise ValueError(f"client_app is {where!r}; write 'package.module:app' ({problem})") from problem
    if not isinstance(app, ClientApp):
        raise ValueError(
            f"client_app {where!r} is a {type(app).__name__}; it must be a flwr.clientapp.ClientApp"
        )
    return app


def _copy(message: Message) -> Message:
    """The same message with records of its own; the arrays' bytes, which nobody can change, are shared."""
    kinds = {ArrayRecord: ArrayRecord, ConfigRecord: ConfigRecord, MetricRecord: MetricRecord}
    content = RecordDict()
    for name, record in message.content.items():
        own = kinds[type(record)]()
        for key, value in record.items():
            own[key] = list(value) if isinstance(value, list) else value
        content[name] = own
    return make_message(metadata=message.metadata, content=content)


def _crew(where: str, workers: int) -> Crew:
    from eiffel.flower.crew import Crew

    return Crew(where, workers)
