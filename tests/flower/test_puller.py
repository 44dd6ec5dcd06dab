"""One reply that never comes must not hold up the others."""

import threading
import time

import flower_apps
import pytest
from flwr.app import Message, RecordDict

from eiffel.flower import EiffelGrid
from eiffel.flower.puller import Puller


class Held(EiffelGrid):
    """A grid whose first message's reply is stuck in its upload until it is released."""

    released = threading.Event()

    def pull_messages(self, ids):
        if "m1" in ids:
            self.released.wait(30)
        return [Message(RecordDict(), reply_to=message) for message in (self.held[id_] for id_ in ids)]


def test_the_others_come_in_time_and_the_stuck_one_later() -> None:
    grid = Held(flower_apps.odd, 3)
    grid.held = {}
    for name in ("m1", "m2", "m3"):
        message = Message(RecordDict(), 1000, "train")
        message.metadata.__dict__["_message_id"] = name
        grid.held[name] = message
    puller, began = Puller(grid, patience=0.3), time.monotonic()
    assert {r.metadata.reply_to_message_id for r in puller.pull(["m1", "m2", "m3"])} == {"m2", "m3"}
    assert time.monotonic() - began < 5
    assert puller.pull(["m1"]) == []
    grid.released.set()
    time.sleep(0.1)
    assert [r.metadata.reply_to_message_id for r in puller.pull(["m1"])][:1] == ["m1"]


def test_what_the_network_raises_is_raised() -> None:
    class Broken(EiffelGrid):
        def pull_messages(self, ids):
            raise ConnectionError("the link is down")

    with pytest.raises(ConnectionError, match="the link is down"):
        Puller(Broken(flower_apps.odd, 1)).pull(["m1"])
