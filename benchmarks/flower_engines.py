"""What a round costs in Flower's messages alone: 100 clients that do nothing, in EiffelGrid and in Flower's engine.

    python benchmarks/flower_engines.py            both, where Ray is installed
    python benchmarks/flower_engines.py --no-ray   EiffelGrid alone

A round is 100 train messages with a model of 10,000 float32 there and back, through `push_messages` and
`pull_messages`. Beside it, a whole round of the strategy over such a grid: observe, decide, messages, validate,
aggregate, record. Times are the median of the rounds after the first; compare ratios, not milliseconds.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import threading
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from eiffel.flower import EiffelGrid, Strategy

CLIENTS, PARAMS, ROUNDS = 100, 10_000, 9
TARGET_MS = 50.0

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    content = RecordDict({"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 10})})
    return Message(content, reply_to=message)


def model() -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros(PARAMS, np.float32))})


def rounds(grid: Grid, nodes: list[int], count: int) -> list[float]:
    """Seconds of each of `count` no-op rounds of the nodes."""
    record, spent = model(), []
    for number in range(count):
        began = time.perf_counter()
        messages = [
            Message(RecordDict({"arrays": record, "config": ConfigRecord({"round": number})}), node, "train")
            for node in nodes
        ]
        replies = list(grid.send_and_receive(messages, timeout=600))
        spent.append(time.perf_counter() - began)
        assert len(replies) == len(nodes)
    return spent


def in_process(size: int) -> float:
    grid = EiffelGrid(app, size)
    nodes = list(grid.get_node_ids())[:: max(1, size // CLIENTS)][:CLIENTS]
    return statistics.median(rounds(grid, nodes, ROUNDS)[1:])


def strategy_round(size: int) -> float:
    """Seconds of a whole round of the uniform card: the median of the rounds after the first."""
    ends: list[float] = []

    def tick(row: dict) -> str:
        ends.append(time.perf_counter())
        return ""

    strategy = Strategy.card("uniform", f"cohort.size={CLIENTS}", score_every=0, stop=tick)
    strategy.start(EiffelGrid(app, size), model(), num_rounds=ROUNDS)
    return statistics.median(np.diff(ends))


def with_ray(size: int, report: Callable[[float], None]) -> None:
    """The same rounds in Flower's simulation engine of `size` nodes."""
    from flwr.simulation import run_simulation

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        while len(list(grid.get_node_ids())) < size:
            time.sleep(0.1)
        nodes = list(grid.get_node_ids())[:CLIENTS]
        count = 4 if size <= 1000 else 2
        report(statistics.median(rounds(grid, nodes, count)[1:]))

    logging.getLogger("ray").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    run_simulation(server, app, size, backend_config={"client_resources": {"num_cpus": 1}})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--no-ray", action="store_true", help="leave Flower's engine out")
    parser.add_argument(
        "--ray-nodes", type=int, nargs="*", default=[100, 1000], help="sizes for Flower's engine"
    )
    chosen = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print(
        f"{CLIENTS} clients, {PARAMS} float32, milliseconds a round (target of EiffelGrid: {TARGET_MS:g})\n"
    )
    ours = {size: in_process(size) * 1e3 for size in (100, 1000, 100_000)}
    for size, ms in ours.items():
        verdict = "" if size == 100 else "  ok" if ms < TARGET_MS else "  MISSED"
        print(f"EiffelGrid     N = {size:>7,}   {ms:9.1f}{verdict}")
    for size in (1000, 100_000):
        print(f"whole round    N = {size:>7,}   {strategy_round(size) * 1e3:9.1f}")
    if chosen.no_ray or find_spec("ray") is None:
        print("Flower's engine: left out" if chosen.no_ray else "Flower's engine: Ray is not installed")
        return
    for size in chosen.ray_nodes:
        thread = threading.Thread(target=with_ray, args=(size, lambda s, n=size: _said(n, s, ours)))
        thread.start()
        thread.join()


def _said(size: int, seconds: float, ours: dict[int, float]) -> None:
    ratio = seconds * 1e3 / ours[size] if size in ours else float("nan")
    print(
        f"Flower's own   N = {size:>7,}   {seconds * 1e3:9.1f}   {ratio:.0f} times EiffelGrid's", flush=True
    )


if __name__ == "__main__":
    main()
