"""Letters over a Flower grid: any `flwr.serverapp.Grid`, simulated or real, behind `eiffel.worlds.post.Post`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MessageType, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp import Grid
from flwr.superlink.grid import HttpGrid

from eiffel.core.model import Params, Status
from eiffel.flower import wire
from eiffel.flower.puller import Puller
from eiffel.flower.wire import Layout
from eiffel.worlds.post import EVALUATE, PROBE, QUERY, TRAIN, Answer, Letter

TYPES = {
    QUERY: MessageType.QUERY,
    TRAIN: MessageType.TRAIN,
    # A stock app answers a probe with the loss on its test data; ours sees `probing` and uses its training data.
    PROBE: MessageType.EVALUATE,
    EVALUATE: MessageType.EVALUATE,
}
GONE = {ErrorCode.NODE_UNAVAILABLE}
EXPIRED = {ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE}


class FlowerPost:
    """Implements `Post`. layout: of the model. config: the app's own numbers, by kind of letter; may be replaced."""

    def __init__(self, grid: Grid, layout: Layout, config: Mapping[str, ConfigRecord] | None = None) -> None:
        self._grid, self._layout, self.config = grid, layout, dict(config or {})
        self._public: dict[int, str] = {}
        self._puller = Puller(grid) if isinstance(grid, HttpGrid) else None

    def present(self) -> Sequence[int]:
        """Ids of the nodes that are online."""
        ids = self._grid.get_node_ids()
        return ids if isinstance(ids, range) else sorted(ids)

    def send(self, letters: Sequence[Letter], params: Params | None) -> list[tuple[str, int]]:
        """Push a message for each letter."""
        messages = self.messages(letters, params)
        pushed = list(self._grid.push_messages(messages)) if messages else []
        sent = []
        for k, message in enumerate(messages):
            # A grid that could not push a message says None in its place, or leaves it out.
            id_ = message.metadata.message_id
            gone = id_ not in pushed if len(pushed) < len(messages) else pushed[k] is None
            sent.append(("" if gone else id_, wire.weight(message.content)))
        return sent

    def messages(self, letters: Sequence[Letter], params: Params | None) -> list[Message]:
        """A message for each letter: the arrays are shared, every node's numbers are its own."""
        arrays = None if params is None else self._layout.record(params)
        return [self._message(letter, arrays) for letter in letters]

    def _message(self, letter: Letter, arrays: ArrayRecord | None) -> Message:
        config = ConfigRecord(dict(self.config.get(letter.kind, {})))
        if letter.round:
            config["server-round"] = letter.round
        if letter.kind == TRAIN:
            config["local-steps"] = int(letter.task["steps"])
        ours = ConfigRecord({**letter.task, "ttl": letter.ttl, "probing": letter.kind == PROBE})
        content = RecordDict({wire.CONFIG: config, wire.OURS: ours})
        if arrays is not None:
            content[wire.ARRAYS] = arrays
        if letter.shift is not None:
            content[wire.SHIFT] = wire.one_array(letter.shift)
        return Message(
            content, letter.node, TYPES[letter.kind], ttl=letter.ttl, group_id=str(letter.round or "")
        )

    def collect(self, ids: Sequence[str]) -> list[Answer]:
        """Pull what has arrived for these messages."""
        if not ids:
            return []
        replies = self._puller.pull(ids) if self._puller is not None else self._grid.pull_messages(list(ids))
        return [self.answer(reply) for reply in replies]

    def answer(self, reply: Message) -> Answer:
        """A reply, understood and its substance judged."""
        about, sender = reply.metadata.reply_to_message_id, reply.metadata.src_node_id
        if reply.has_error():
            # Errors about dead nodes come from the SuperLink: only `about` says whose they are.
            return failed(about, 0 if sender == SUPERLINK_NODE_ID else sender, reply.error)
        content = reply.content
        said = content.get(wire.OURS)
        ours = said if isinstance(said, ConfigRecord) else ConfigRecord()
        metrics, figures = wire.measured(content), wire.numbers(ours)
        examples = metrics.pop(wire.EXAMPLES, figures.get("examples", float("nan")))
        status, weights, slope = Status.DELIVERED, None, None
        if ours.get("declined"):
            status = Status.FAILED
        elif reply.metadata.message_type == MessageType.TRAIN:
            models = [r for name, r in content.array_records.items() if name != wire.SLOPE]
            bad = (Status.BAD_SHAPE, None)
            status, weights = self._layout.read(models[0], examples) if len(models) == 1 else bad
            slope = self._slope(content.array_records.get(wire.SLOPE))
        key, why = str(ours.get("key", "")), str(ours.get("declined", ""))
        size = wire.weight(content)
        return Answer(about, sender, status, weights, slope, examples, figures, metrics, key, size, why)

    def _slope(self, record: ArrayRecord | None) -> Params | None:
        """A gradient that came beside the model, if it is one."""
        if record is None or len(record) != 1:
            return None
        slope = next(iter(record.values())).numpy()
        return slope if slope.shape == (self._layout.size,) and slope.dtype == np.float32 else None

    def key(self, node: int) -> str:
        """The part of the data a node of an in-process grid holds; other grids know nothing of their nodes."""
        known = getattr(self._grid, "key", None)
        return str(known(node)) if callable(known) else ""

    def fallback(self, node: int) -> str:
        """The hash of the node's public key where the grid shows one, else its id."""
        if node not in self._public:
            hashed = {
                i.node_id: hashlib.sha256(i.public_key).hexdigest()
                for i in self._grid.get_nodes()
                if i.public_key
            }
            self._public |= {n: f"key-{text[:16]}" for n, text in hashed.items()}
        return self._public.setdefault(node, f"node-{node}")


def failed(about: str, sender: int, error: Error) -> Answer:
    """An error as an answer."""
    status = Status.LEFT if error.code in GONE else Status.SILENT if error.code in EXPIRED else Status.FAILED
    return Answer(about, sender, status, why=f"error {error.code}: {first_line(error.reason or '')}")


def first_line(text: str, limit: int = 300) -> str:
    """The last line of a traceback, which says what went wrong, cut to a length."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[-1] if lines else "")[:limit]
