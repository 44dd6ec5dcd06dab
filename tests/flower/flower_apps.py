"""Apps as their authors write them: they know nothing of Eiffel. Imported by tests and by their processes."""

from __future__ import annotations

import os
import time

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

TRUTH = np.array([[1.0, -2.0], [0.5, 1.5], [-1.0, 0.25]])


def samples(part: int, count: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Linear data of a client, a little noisy: x (n, 3), y (n, 2)."""
    rng = np.random.default_rng([7, part])
    x = rng.normal(size=(count + part, 3))
    return x, x @ TRUTH + 0.01 * rng.normal(size=(len(x), 2))


def descend(w: np.ndarray, part: int, steps: int, lr: float) -> tuple[np.ndarray, float]:
    """Full-batch gradient descent on the mean squared error; the trained weights and the loss before."""
    x, y = samples(part)
    first = float(np.mean((x @ w - y) ** 2))
    w = w.astype(np.float64)
    for _ in range(steps):
        w = w - lr * 2 * x.T @ (x @ w - y) / len(x)
    return w.astype(np.float32), first


app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    part = int(context.node_config["partition-id"])
    (name, array), *_ = message.content["arrays"].items()
    w, loss = descend(array.numpy(), part, int(config.get("local-steps", 5)), float(config.get("lr", 0.05)))
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(samples(part)[0])})
    return Message(
        RecordDict({"arrays": ArrayRecord({name: Array(w)}), "metrics": metrics}), reply_to=message
    )


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    x, y = samples(1000 + int(context.node_config["partition-id"]))
    w = next(iter(message.content["arrays"].values())).numpy()
    near = float(np.mean(np.abs(x @ w - y) < 0.1))
    metrics = MetricRecord(
        {"eval_loss": float(np.mean((x @ w - y) ** 2)), "eval_acc": near, "num-examples": len(x)}
    )
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def initial() -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros((3, 2), np.float32))})


# An app that misbehaves as its node config says, for workers and for failures.

odd = ClientApp()


@odd.train()
def odd_train(message: Message, context: Context) -> Message:
    mood = context.node_config.get("mood", "fine")
    turn = int(context.state["turn"]["n"]) + 1 if "turn" in context.state else 1
    context.state["turn"] = ConfigRecord({"n": turn})
    if mood == "raises":
        raise ValueError("the disk is full")
    if mood == "dies":
        os._exit(3)
    if mood == "greedy":  # empties the records it was given, as keep_input=False does
        message.content["arrays"].to_numpy_ndarrays(keep_input=False)
        message.content["config"].clear()
    if mood == "slow":
        time.sleep(1.0)
    metrics = MetricRecord({"num-examples": 10, "turn": turn})
    arrays = ArrayRecord({"w": Array(np.full(2, context.node_config["partition-id"], np.float32))})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
