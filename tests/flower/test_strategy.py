"""An existing app with FedAvg replaced by Eiffel: two lines change, and rounds are chosen, judged and recorded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import flower_apps
import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Result

from eiffel.config import ConfigError
from eiffel.flower import EiffelGrid, Strategy
from eiffel.flower.grid import FIRST_NODE
from eiffel.worlds.post import NotEnoughNodes, Waits

CONFIG = {"lr": 0.1}


def run(strategy: Strategy, nodes: int = 12, rounds: int = 4, **more: object) -> Result:
    grid = EiffelGrid(flower_apps.app, nodes)
    return strategy.start(
        grid, flower_apps.initial(), num_rounds=rounds, train_config=ConfigRecord(CONFIG), **more
    )


@pytest.mark.parametrize("card", ["fedavg", "eiffel", "oort", "qfedavg", "power_of_choice"])
def test_a_stock_app_learns_under_any_card(card: str) -> None:
    """The app is Flower's quickstart in shape; the loss on the devices' own test data falls."""
    result = run(Strategy.card(card, "cohort.size=6"), rounds=6)
    assert isinstance(result, Result)
    losses = [result.evaluate_metrics_clientapp[r]["eval_loss"] for r in range(1, 7)]
    assert losses[-1] < 0.9 * losses[0]
    assert len(result.records) == 6


def test_everybody_in_one_round_is_flowers_fedavg() -> None:
    """With all twelve nodes in the cohort, the mean by examples is what FedAvg makes, to float32."""
    ours = run(Strategy.card("uniform", "cohort.size=12"), rounds=3)
    theirs = FedAvg().start(
        EiffelGrid(flower_apps.app, 12), flower_apps.initial(), 3,
        train_config=ConfigRecord({**CONFIG, "local-steps": 5}),
    )  # fmt: skip
    np.testing.assert_allclose(ours.arrays["w"].numpy(), theirs.arrays["w"].numpy(), atol=1e-6)
    for round_ in (1, 2, 3):
        mine, stock = ours.train_metrics_clientapp[round_], theirs.train_metrics_clientapp[round_]
        assert dict(mine) == pytest.approx(dict(stock), rel=1e-5)
        mine, stock = ours.evaluate_metrics_clientapp[round_], theirs.evaluate_metrics_clientapp[round_]
        assert dict(mine) == pytest.approx(dict(stock), rel=1e-5)


def test_the_same_seed_makes_the_same_choices() -> None:
    first, again, other = (run(Strategy.card("uniform", "cohort.size=3", f"seed={s}")) for s in (1, 1, 2))
    assert first.arrays["w"].numpy().tobytes() == again.arrays["w"].numpy().tobytes()
    assert first.arrays["w"].numpy().tobytes() != other.arrays["w"].numpy().tobytes()


def test_the_apps_own_numbers_are_sent_and_never_changed() -> None:
    heard = []
    app = ClientApp()

    @app.train()
    def train(message, context):
        heard.append({**message.content["config"], "ours": dict(message.content["eiffel"])})
        message.content["config"]["lr"] = 9.0
        return flower_apps.train(message, context)

    mine = ConfigRecord(CONFIG)
    Strategy.card("uniform", "cohort.size=4", score_every=0).start(
        EiffelGrid(app, 6), flower_apps.initial(), 2, train_config=mine
    )
    assert mine == ConfigRecord(CONFIG)
    assert len(heard) == 8
    assert all(told["lr"] == 0.1 and told["local-steps"] == told["ours"]["steps"] for told in heard)
    assert [told["server-round"] for told in heard] == [1] * 4 + [2] * 4


def test_records_reach_every_sink_while_the_run_goes(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    class Sink:
        def __init__(self) -> None:
            self.rounds, self.ended = [], False

        def record(self, record, clients=None) -> None:
            self.rounds.append((record["round"], sorted(clients)))

        def summary(self, summary) -> None:
            self.status = summary["status"]

        def close(self) -> None:
            self.ended = True

    sink = Sink()
    run(Strategy.card("uniform", "cohort.size=3", folder=tmp_path / "run", sinks=[sink]), nodes=5, rounds=3)
    assert [r for r, _ in sink.rounds] == [1, 2, 3]
    assert (sink.status, sink.ended) == ("finished", True)
    rows = pq.read_table(tmp_path / "run" / "clients.parquet").to_pydict()
    assert len(rows["device"]) == 15  # 5 devices, 3 rounds
    assert sum(status == 0 for status in rows["status"]) == 9  # 3 delivered in each
    assert json.loads((tmp_path / "run" / "devices.json").read_text()) == {str(k): str(k) for k in range(5)}
    record = json.loads((tmp_path / "run" / "records.jsonl").read_text().splitlines()[0])
    assert record["delivered"] == 3
    assert record["bytes"] > 0
    assert record["metrics"]["train_loss"]["coverage"] == 1.0
    assert record["scores"]["last"]["clients"] == 5


def test_a_run_ends_when_its_record_says_so() -> None:
    strategy = Strategy.card("uniform", stop=lambda row: "enough" if row["round"] == 2 else "")
    result = run(strategy, rounds=50)
    assert (result.rounds, result.why) == (2, "enough")
    assert len(result.records) == 2


def test_the_server_may_measure_the_model_itself() -> None:
    seen = []

    def central(round_, arrays):
        seen.append(round_)
        return MetricRecord({"norm": float(np.abs(arrays["w"].numpy()).sum())})

    result = run(Strategy.card("uniform"), rounds=2, evaluate_fn=central)
    assert seen == [0, 1, 2]
    assert result.evaluate_metrics_serverapp[0]["norm"] == 0.0
    assert result.evaluate_metrics_serverapp[2]["norm"] > 1.0


def test_a_node_that_fails_is_recorded_and_the_others_go_on() -> None:
    moods = {1: "raises"}
    grid = EiffelGrid(flower_apps.odd, 4, node_config=lambda part: {"mood": moods.get(part, "fine")})
    from flwr.app import Array, ArrayRecord

    start = ArrayRecord({"w": Array(np.zeros(2, np.float32))})
    result = Strategy.card("uniform", "cohort.size=4").start(grid, start, 2)
    assert [row["lost"] for row in result.records] == [{"failed": 1}] * 2
    # Nodes 0, 2 and 3 return their own number: the mean is 5/3.
    assert result.arrays["w"].numpy().tolist() == pytest.approx([5 / 3, 5 / 3])


def test_no_nodes_are_a_typed_error_in_time() -> None:
    class Nobody(EiffelGrid):
        def get_node_ids(self):
            return []

    began = time.monotonic()
    with pytest.raises(NotEnoughNodes, match="not enough nodes"):
        Strategy.card("uniform", waits=Waits(nodes_s=0.5)).start(
            Nobody(flower_apps.app, 3), flower_apps.initial(), 2
        )
    assert time.monotonic() - began < 5


def test_a_deadline_leaves_the_slow_ones_out() -> None:
    """Nodes 3 and 4 sleep a second; the grid runs one at a time; half a second suffices for the other three."""
    moods = {3: "slow", 4: "slow"}
    grid = EiffelGrid(flower_apps.odd, 5, node_config=lambda part: {"mood": moods.get(part, "fine")})
    from flwr.app import Array, ArrayRecord

    start = ArrayRecord({"w": Array(np.zeros(2, np.float32))})
    strategy = Strategy.card("uniform", "cohort.size=5", "cohort.deadline_s=0.5", score_every=0)
    result = strategy.start(grid, start, 1)
    assert result.records[0]["delivered"] >= 3
    assert result.records[0]["seconds"] < 1.8


def test_under_somebody_elses_loop_it_chooses_and_learns_the_same() -> None:
    """Flower's own start() calls configure_* and aggregate_*: the model is that of our loop."""
    from flwr.serverapp.strategy import Strategy as FlowerStrategy

    theirs = Strategy.card("uniform", "cohort.size=4", "seed=5")
    result = FlowerStrategy.start(
        theirs, EiffelGrid(flower_apps.app, 8), flower_apps.initial(), 3, train_config=ConfigRecord(CONFIG)
    )
    ours = run(Strategy.card("uniform", "cohort.size=4", "seed=5"), nodes=8, rounds=3)
    np.testing.assert_allclose(result.arrays["w"].numpy(), ours.arrays["w"].numpy(), atol=1e-7)
    assert result.train_metrics_clientapp[3]["train_loss"] > 0
    assert result.evaluate_metrics_clientapp[3] == ours.evaluate_metrics_clientapp[3]


def test_a_federation_may_grow(tmp_path: Path) -> None:
    """Two more nodes come after round 2: they take part, and the first ones keep their history."""

    class Growing(EiffelGrid):
        there = 4

        def get_node_ids(self):
            return range(FIRST_NODE, FIRST_NODE + self.there)

    grid = Growing(flower_apps.app, 6)

    def grow(row):
        grid.there = 6 if row["round"] >= 2 else 4
        return ""

    strategy = Strategy.card("eiffel", "cohort.size=4", stop=grow, folder=tmp_path)
    result = strategy.start(grid, flower_apps.initial(), 8, train_config=ConfigRecord(CONFIG))
    assert [row["candidates"] for row in result.records] == [4, 4, 6, 6, 6, 6, 6, 6]
    assert result.records[-1]["participants"] == 6


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("no_such",), "no_such"),
        (("eiffel", "cohort.sice=3"), "cohort.size"),
        (("eiffel", "waits.poll=1"), "poll"),
        (("eiffel", "cohort.size=0.5"), "cohort"),
    ],
)
def test_a_bad_card_is_an_error_in_words(words: tuple[str, ...], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        Strategy.card(*words)


SCRIPT = """
import sys, time
from pathlib import Path
import flower_apps
from flwr.app import ConfigRecord
from eiffel.flower import EiffelGrid, Strategy
from eiffel.worlds.devices import build_fleet
from eiffel.flower.composing import composed

def dawdle(row):
    # The test kills this process while it is in round 4.
    if row["round"] == 3 and sys.argv[2] == "die":
        print("third", flush=True)
        time.sleep(60)
    return ""

fleet = build_fleet(composed("sim", ["fleet=phones"])["fleet"], 12, 6, 0)
grid = EiffelGrid(flower_apps.app, 12, fleet=fleet)
strategy = Strategy.card("eiffel", "cohort.size=4", folder=sys.argv[1], resume=True, stop=dawdle)
strategy.start(grid, flower_apps.initial(), 6, train_config=ConfigRecord({"lr": 0.1}))
"""


def test_a_server_killed_in_round_four_resumes_to_the_same_end(tmp_path: Path) -> None:
    """kill -9 after the third round's record; resumed, it ends with the records and weights of a run never hurt."""
    script = tmp_path / "serve.py"
    script.write_text(textwrap.dedent(SCRIPT))
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).resolve().parents[2])])
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}

    def serve(folder: str, how: str) -> subprocess.Popen:
        command = [sys.executable, str(script), str(tmp_path / folder), how]
        with open(tmp_path / f"{folder}-{how}.txt", "w") as said:
            return subprocess.Popen(command, env=env, stdout=said, stderr=said, start_new_session=True)

    whole = serve("whole", "live")
    hurt = serve("hurt", "die")
    until = time.monotonic() + 120
    while "third" not in (tmp_path / "hurt-die.txt").read_text():
        assert time.monotonic() < until, (tmp_path / "hurt-die.txt").read_text()
        time.sleep(0.1)
    os.kill(hurt.pid, signal.SIGKILL)
    hurt.wait(10)
    assert len((tmp_path / "hurt" / "records.jsonl").read_text().splitlines()) == 3
    assert serve("hurt", "live").wait(120) == 0, (tmp_path / "hurt-live.txt").read_text()
    assert whole.wait(120) == 0
    texts = [(tmp_path / name / "records.jsonl").read_text() for name in ("whole", "hurt")]
    assert texts[0] == texts[1]
    models = [np.load(tmp_path / name / "model.npz") for name in ("whole", "hurt")]
    for name in ("last", "ema"):
        assert models[0][name].tobytes() == models[1][name].tobytes()


def test_a_query_handler_is_no_need() -> None:
    """An app with a query handler of another make is known by its id."""
    app = ClientApp()

    @app.query()
    def query(message, context):
        return Message(RecordDict({"mine": MetricRecord({"speed": 3})}), reply_to=message)

    app.train()(flower_apps.train)
    app.evaluate()(flower_apps.evaluate)

    class Unknown(EiffelGrid):
        def key(self, node):
            return ""

    result = Strategy.card("uniform", "cohort.size=3").start(
        Unknown(app, 4), flower_apps.initial(), 2, train_config=ConfigRecord(CONFIG)
    )
    assert [row["delivered"] for row in result.records] == [3, 3]
