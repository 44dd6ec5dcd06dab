"""Real components on the loopback: a SuperLink, SuperNodes and their processes, and what can happen to them.

Slow for what it does: every message starts a Python process on its node. Nothing here may outlive its test.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from flower_network import Link, records, summary, wait_for

from eiffel.core.model import Status

pytestmark = pytest.mark.network


def links(tmp_path: Path, tls: bool) -> Iterator[Link]:
    link = Link(tmp_path, tls)
    try:
        yield link
    finally:
        link.close()
        try:
            wait_for("the end of every process", lambda: not link.left(), 30)
        finally:
            link.kill("")


@pytest.fixture
def link(tmp_path: Path) -> Iterator[Link]:
    yield from links(tmp_path, tls=False)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Link]:
    yield from links(tmp_path, tls=True)


def finished(link: Link, folder: Path, seconds: float) -> None:
    def over() -> bool:
        assert link.processes["link"].poll() is None, link.log("link")
        return summary(folder).get("status") in ("finished", "stopped", "failed")

    try:
        wait_for(f"the run in {folder.name}", over, seconds)
    except AssertionError as problem:
        raise AssertionError(f"{problem}\n{link.log('link')[-3000:]}") from None


def test_three_nodes_do_what_the_simulation_does(link: Link, root: Path, tmp_path: Path) -> None:
    """The bundle of this repository on a SuperLink and three SuperNodes: same plans, same weights to 1e-6.

    Once by the clock on the wall with a card that does not look at costs, once with Eiffel's on a virtual clock.
    """
    pytest.importorskip("torch")
    from eiffel.flower.composing import composed
    from eiffel.simulation import simulate

    common = "datasets=digits datasets.clients=3 datasets.steps=5 cohort.size=2 rounds=2 score_every=2 seed=3"
    link.serve()
    for k in range(3):
        link.node(f"node{k}", f"partition-id={k} num-partitions=3")
    runs = {"wall": f"strategies=uniform {common}", "virtual": f"strategies=eiffel {common}"}
    for clock, words in runs.items():
        link.run(root, f"{words} clock={clock} folder={tmp_path}/{clock}")
        finished(link, tmp_path / clock, 180)
        simulate(
            composed("sim", [*words.split(), "engine=single", "report.terminal=off"]),
            tmp_path / f"sim-{clock}",
        )
        here, there = tmp_path / clock, tmp_path / f"sim-{clock}"
        assert summary(here)["status"] == "finished", summary(here)
        assert [r["delivered"] for r in records(here)] == [2, 2]
        columns = [pq.read_table(f / "clients.parquet").to_pydict() for f in (here, there)]
        for name in ("round", "device", "status", "steps"):
            assert columns[0][name] == columns[1][name], name
        models = [np.load(folder / "model.npz") for folder in (here, there)]
        for name in ("last", "ema"):
            np.testing.assert_allclose(models[0][name], models[1][name], rtol=1e-6, atol=1e-6)


APP = """
[project]
name = "troubles"
version = "1.0.0"
license = "Apache-2.0"
dependencies = ["flwr>=1.42"]

[tool.flwr.app]
publisher = "tests"

[tool.flwr.app.components]
serverapp = "troubles.server:app"
clientapp = "troubles.client:app"

[tool.flwr.app.config]
overrides = ""
"""

SERVER = """
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from eiffel.flower import Strategy

app = ServerApp()

@app.main()
def main(grid, context):
    words = str(context.run_config["overrides"]).split()
    strategy = Strategy.card("uniform", *words[1:], folder=words[0], score_every=0)
    strategy.start(grid, ArrayRecord({"w": Array(np.zeros(3, np.float32))}), num_rounds=3)
"""

CLIENT = """
import time
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.query()
def query(message, context):
    return Message(RecordDict({"eiffel": ConfigRecord({"key": context.node_config["name"]})}), reply_to=message)

@app.train()
def train(message, context):
    turn, slow = message.content["config"]["server-round"], context.node_config.get("slow-from", 99)
    open(f"{context.node_config['marks']}/{context.node_config['name']}-{turn}", "w").close()
    if turn >= slow:
        time.sleep(120)
    arrays = ArrayRecord({"w": Array(np.full(3, context.node_config["number"], np.float32))})
    return Message(RecordDict({"arrays": arrays, "m": MetricRecord({"num-examples": 10})}), reply_to=message)
"""


def troubles(tmp_path: Path) -> Path:
    app = tmp_path / "troubles"
    (app / "troubles").mkdir(parents=True)
    (app / "pyproject.toml").write_text(APP)
    for name, text in (("__init__", ""), ("server", SERVER), ("client", CLIENT)):
        (app / "troubles" / f"{name}.py").write_text(text)
    return app


def test_troubles_of_real_nodes(secure: Link, tmp_path: Path) -> None:
    """TLS, nodes authenticated by their keys, a deadline of 20 s, four nodes, three rounds:

    slow      works for two minutes: late in round 1, busy afterwards
    killed    kill -9 while it works on round 2: never counted again
    leaver    stopped by SIGTERM right after it pushed its answer to round 2; back as another node for round 3
    steady    answers always
    """
    marks, folder, deadline = tmp_path / "marks", tmp_path / "run", 20
    marks.mkdir()
    link = secure
    link.serve("--enable-supernode-auth")
    node = {
        "slow": "number=1 slow-from=1", "killed": "number=2 slow-from=2", "leaver": "number=3", "steady": "number=4",
    }  # fmt: skip
    for name, more in node.items():
        link.authenticated(name, f'name="{name}" marks="{marks}" {more}')
    # Somebody without a registered key is not let in.
    stranger = link.node("stranger", 'name="stranger"')
    words = (
        f"{folder} cohort.size=4 cohort.deadline_s={deadline} waits.least=2 waits.gather_s=60 waits.hold=6"
    )
    link.run(troubles(tmp_path), words)

    wait_for("round 2 on the node to be killed", lambda: (marks / "killed-2").exists(), 150)
    link.end("killed", signal.SIGKILL)

    def pushed() -> bool:
        return "Sent successfully" in link.log("leaver").partition("ROUND 2]")[2]

    wait_for("the leaver's answer to round 2", pushed, deadline)
    os.kill(link.processes["leaver"].pid, signal.SIGTERM)
    link.authenticated("back", f'name="leaver" marks="{marks}" number=3')
    finished(link, folder, 3 * deadline + 60)

    rows = pq.read_table(folder / "clients.parquet").to_pydict()
    names = json.loads((folder / "devices.json").read_text())
    fate = {
        (names[str(d)], r): None if s is None else Status(s).name
        for d, r, s in zip(rows["device"], rows["round"], rows["status"], strict=True)
    }
    assert sorted(names.values()) == ["killed", "leaver", "slow", "steady"]
    assert [fate["steady", r] for r in (1, 2, 3)] == ["DELIVERED"] * 3
    assert [fate["slow", r] for r in (1, 2, 3)] == ["LATE", None, None]
    assert fate["killed", 1] == "DELIVERED"
    assert fate["killed", 2] in ("LATE", "LEFT")
    assert fate["killed", 3] is None
    # What is pushed just before leaving is in the ledger as what became of it; the next round counts it.
    assert fate["leaver", 2] in ("DELIVERED", "LEFT")
    assert fate["leaver", 3] == "DELIVERED"
    told = records(folder)
    assert [r["round"] for r in told] == [1, 2, 3]
    assert all(r["seconds"] <= deadline + 3 for r in told)
    assert told[2]["refused"].get("busy", 0) >= 1
    assert stranger.poll() is not None or "stranger" not in names.values()
    # The mean of what was delivered in the last round: leaver's 3 and steady's 4.
    assert np.load(folder / "model.npz")["last"].tolist() == pytest.approx([3.5] * 3)


def test_a_server_killed_with_its_link_goes_on_from_its_checkpoint(link: Link, tmp_path: Path) -> None:
    """kill -9 of the SuperLink and its ServerApp after round 1 of 3; a new link, the same folder: rounds 2 and 3."""
    marks, folder = tmp_path / "marks", tmp_path / "run"
    marks.mkdir()
    app = troubles(tmp_path)
    server = app / "troubles" / "server.py"
    server.write_text(SERVER.replace("score_every=0)", "score_every=0, resume=True)"))
    link.serve()
    link.node("a", f'name="a" marks="{marks}" number=1')
    link.run(app, f"{folder} waits.gather_s=1")
    wait_for("round 1", lambda: len(records(folder)) >= 1, 120)
    link.kill("flwr-serverapp")
    for name in ("link", "a"):
        link.end(name)
    before = records(folder)
    wait_for("the end of every process", lambda: not link.left(), 30)
    assert summary(folder)["status"] == "running"
    shutil.rmtree(link.home / "link" / "flwr", ignore_errors=True)
    link.serve()
    link.node("a", f'name="a" marks="{marks}" number=1')
    link.run(app, f"{folder} waits.gather_s=1")
    finished(link, folder, 120)
    after = records(folder)
    assert [r["round"] for r in after] == [1, 2, 3]
    assert after[: len(before)] == before
    assert after[-1]["total_bytes"] == sum(r["bytes"] for r in after)
