"""Our ClientApp, and what passes between it and the strategy: models by name, floors, deadlines, other code."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp.strategy import FedAvg

torch = pytest.importorskip("torch")

from eiffel.core.model import Status  # noqa: E402
from eiffel.flower import EiffelGrid, Strategy, client, digest, own, wire  # noqa: E402
from eiffel.flower.grid import identify  # noqa: E402
from eiffel.flower.power import read_battery  # noqa: E402
from eiffel.flower.wire import Layout  # noqa: E402


class Net(torch.nn.Module):
    """With everything that is awkward: batch norm's buffers, a frozen layer, two names of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = torch.nn.Linear(4, 4)
        self.frozen.weight.requires_grad_(False)
        self.first = torch.nn.Linear(4, 6)
        self.norm = torch.nn.BatchNorm1d(6)
        self.tied = torch.nn.Linear(6, 6, bias=False)
        self.again = torch.nn.Linear(6, 6, bias=False)
        self.again.weight = self.tied.weight
        self.last = torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.again(self.tied(self.norm(self.first(self.frozen(x))).relu())))


def fresh() -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return Net()


def samples(part: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(part)
    x = rng.normal(size=(24, 4)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 1)


def recipe(context: Context, task: object):
    part = int(context.node_config["partition-id"])
    return own(fresh(), samples(part), samples(100 + part), 3, key=str(part), figures={"floor": 0.3})


APP = client(recipe)


def tell(app, kind: str, content: RecordDict, **node: object) -> RecordDict:
    identify()
    config = {"partition-id": 0, "num-partitions": 1, **node}
    message = Message(content, 5, kind)
    message.metadata.__dict__["_message_id"] = "m"
    return app(message, Context(1, 5, config, RecordDict(), {})).content


def task(**numbers: object) -> RecordDict:
    told = {"round": 1, "seed": 0, "device": 0, "steps": 3, "lr": 0.1, "batch": 8, **numbers}
    return RecordDict({"arrays": ArrayRecord(fresh().state_dict()), "eiffel": ConfigRecord(told)})


def test_a_module_of_ones_own_travels_by_name() -> None:
    """What learns has moved, what is frozen has not, two names of one tensor stay one."""
    before = fresh().state_dict()
    after = tell(APP, "train", task(steps=5))["arrays"].to_torch_state_dict()
    assert list(after) == list(before)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert {"first.weight", "last.bias", "tied.weight", "norm.running_mean"} <= moved
    assert "frozen.weight" not in moved
    assert torch.equal(after["tied.weight"], after["again.weight"])
    assert after["norm.num_batches_tracked"].dtype == torch.int64


def test_it_trains_as_a_plain_loop_does() -> None:
    """Three steps of SGD on the same batches, written out, give the same weights."""
    from eiffel.train.batches import Draws

    after = tell(APP, "train", task())["arrays"].to_torch_state_dict()
    net, (x, y) = fresh().train(), (torch.from_numpy(a) for a in samples(0))
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
    for batch in Draws().batches(0, 1, 0, 24, 8, 3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
        optimizer.step()
    for name, value in net.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(after[name], value, rtol=0, atol=1e-6, msg=name)


def test_it_learns_under_our_strategy_and_under_flowers_own() -> None:
    start = ArrayRecord(fresh().state_dict())
    ours = Strategy.card("uniform", "cohort.size=4", "datasets.local={lr: 0.2, batch: 8}", "datasets.steps=8")
    for strategy in (ours, FedAvg()):
        config = ConfigRecord({"lr": 0.2, "batch": 8, "local-steps": 8})
        result = strategy.start(EiffelGrid(APP, 4), start, 8, train_config=config)
        assert result.evaluate_metrics_clientapp[8]["accuracy"] > 0.7


def test_a_model_of_another_make_is_refused_in_words() -> None:
    content = task()
    content["arrays"] = ArrayRecord({"w": Array(np.zeros(3, np.float32))})
    with pytest.raises(ValueError, match="the model here has"):
        tell(APP, "train", content)


def test_it_says_who_it_is_and_what_it_has() -> None:
    said = tell(APP, "query", task(), battery=0.5)["eiffel"]
    assert (said["key"], said["examples"], said["floor"], said["battery_j"]) == ("0", 24, 0.3, 27_720.0)


def test_the_device_has_the_last_word_on_its_battery() -> None:
    """Floor .3: at .2 it declines, on a charger it works, at .4 it works."""
    assert "battery: 20% left" in tell(APP, "train", task(), battery=0.2)["eiffel"]["declined"]
    assert "arrays" in tell(APP, "train", task(), battery=0.2, charging=True)
    assert "arrays" in tell(APP, "train", task(), battery=0.4)


def test_a_device_that_declines_is_no_candidate_next_time() -> None:
    """Node 1 has .2 left and a floor of .3: known from the query on, it is refused as BATTERY, and never asked."""

    class Asked(EiffelGrid):
        def key(self, node):
            return ""

    grid = Asked(APP, 3, node_config=lambda part: {"battery": 0.2 if part == 1 else 0.9})
    result = Strategy.card("uniform", "cohort.size=3", score_every=0).start(
        grid, ArrayRecord(fresh().state_dict()), 2
    )
    assert [row["refused"] for row in result.records] == [{"battery": 1}] * 2
    assert [row["lost"] for row in result.records] == [{}, {}]


def test_it_does_as_many_steps_as_fit() -> None:
    done = tell(APP, "train", task(steps=10**9, limit_s=0.3))["eiffel"]["steps"]
    assert 1 <= done < 10**6
    assert "deadline" in tell(APP, "train", task(steps=5, limit_s=-1.0))["eiffel"]["declined"]
    assert tell(APP, "train", task(steps=4, limit_s=math.inf))["eiffel"]["steps"] == 4


def test_other_code_is_an_error_and_not_a_result(tmp_path: Path) -> None:
    right = digest.code_digest()
    assert "arrays" in tell(APP, "train", task(code=right))
    with pytest.raises(digest.OtherCode, match="runs other code than the server"):
        tell(APP, "train", task(code="0123456789abcdef"))
    # One changed line anywhere that decides is another digest; a file that does not decide is none.
    for name in ("core/a.py", "report/b.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x = 1\n")
    first = digest.code_digest.__wrapped__(tmp_path)
    (tmp_path / "report/b.py").write_text("x = 2\n")
    assert digest.code_digest.__wrapped__(tmp_path) == first
    (tmp_path / "core/a.py").write_text("x = 2\n")
    assert digest.code_digest.__wrapped__(tmp_path) != first


def test_a_node_with_other_code_is_recorded_as_failed() -> None:
    strategy = Strategy.card("uniform", "cohort.size=2", task={"code": "no such code"}, score_every=0)
    result = strategy.start(EiffelGrid(APP, 2), ArrayRecord(fresh().state_dict()), 1)
    assert result.records[0]["lost"] == {"failed": 2}
    assert result.records[0]["status"] == "no_valid_updates"


def test_batteries_are_read_as_linux_shows_them(tmp_path: Path) -> None:
    """40 % of a battery of 10 Wh (10,000,000 microwatt-hours) that is being drained: 36,000 J when full."""
    assert read_battery(tmp_path) is None
    supply = tmp_path / "BAT0"
    supply.mkdir()
    for name, text in (
        ("type", "Battery"),
        ("capacity", "40"),
        ("status", "Discharging"),
        ("energy_full", "10000000"),
    ):
        (supply / name).write_text(text + "\n")
    battery = read_battery(tmp_path)
    assert (battery.charge, battery.charging, battery.capacity_j) == (0.4, False, 36000.0)
    (supply / "status").write_text("Charging\n")
    assert read_battery(tmp_path).charging


# The wire.


def test_models_travel_there_and_back() -> None:
    record = ArrayRecord(fresh().state_dict())
    layout = Layout.of(record)
    params = layout.flat([a.numpy() for a in record.values()])
    status, back = layout.read(layout.record(params), 5)
    assert status == Status.DELIVERED
    assert back.tobytes() == params.tobytes()
    assert layout.size == params.size


def changed(record: ArrayRecord, name: str, array: Array) -> ArrayRecord:
    return ArrayRecord({key: array if key == name else value for key, value in record.items()})


def test_what_is_no_model_of_this_make_is_bad() -> None:
    record = ArrayRecord({"a": Array(np.ones(3, np.float32)), "n": Array(np.array(7))})
    layout = Layout.of(record)
    nan = Array(np.array([1, np.nan, 1], np.float32))
    garbage = Array("float32", (3,), "numpy.ndarray", b"not an array")
    pickled = Array("object", (1,), "numpy.ndarray", b"\x93NUMPY\x01\x00")
    assert layout.read(changed(record, "a", nan), 5)[0] == Status.NON_FINITE
    assert layout.read(changed(record, "a", garbage), 5)[0] == Status.BAD_SHAPE
    assert layout.read(changed(record, "a", pickled), 5)[0] == Status.BAD_SHAPE
    assert layout.read(changed(record, "a", Array(np.ones(3))), 5)[0] == Status.BAD_SHAPE
    assert layout.read(ArrayRecord({"a": record["a"]}), 5)[0] == Status.BAD_SHAPE
    assert layout.read(record, 0)[0] == Status.BAD_WEIGHT
    assert layout.record(np.zeros(3, np.float32))["n"].numpy() == 7


def test_a_first_model_must_be_sound() -> None:
    with pytest.raises(ValueError, match="nothing to learn"):
        Layout.of(ArrayRecord({"n": Array(np.array([1, 2]))}))
    with pytest.raises(ValueError, match="'a' holds NaN"):
        Layout.of(ArrayRecord({"a": Array(np.array([np.nan], np.float32))}))


def test_the_weight_of_a_message_is_its_content() -> None:
    """An array of 100 float32 is 400 bytes and a header of 128 and a name of 1; lr is 2 + 8; words are 1 + 5."""
    content = RecordDict(
        {
            "arrays": ArrayRecord({"w": Array(np.zeros(100, np.float32))}),
            "config": ConfigRecord({"lr": 0.1, "a": "words", "none": "", "list": []}),
        }
    )
    assert wire.weight(content) == (400 + 128 + 1) + (2 + 8) + (1 + 5) + (4 + 0) + (4 + 0)
