"""Our ClientApp: trains with the very code that the simulation trains with, and says what it took.

    train     the local steps it is told, within its time, unless its battery is below its own floor
    evaluate  accuracy and loss on its own test samples; with `probing`, the loss on its own training samples
    query     who it is, how much data it has, what it knows of its speed and battery

Answers hold one MetricRecord with "num-examples", as Flower's own strategies want it, and "eiffel" beside it,
so that this app also works under a server that knows nothing of Eiffel.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from eiffel.core.model import Local, Params, Plan, Reason, Trained
from eiffel.flower import digest, wire
from eiffel.flower.power import Battery, read_battery
from eiffel.flower.site import Recipe, Site, Task, from_card

SPEED = "eiffel-speed"
"""Where the context's state keeps the seconds a local step takes here."""
PHONE_J = 55_440.0
"""Capacity of a battery that does not tell its own: a phone's, 4000 mAh at 3.85 V."""
MARGIN = 0.8
"""Of the time that is left, how much is planned for training: speeds vary."""
DEFAULTS: Mapping[str, Any] = {"round": 0, "seed": 0, "steps": 1, "lr": 0.1, "batch": 10}
"""Under a server that tells no more than its model."""


def client(recipe: Recipe = from_card) -> ClientApp:
    """A ClientApp around a recipe, see `eiffel.flower.site`."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        task = orders(message)
        site = recipe(context, task)
        figures = {**powers(context, site), "examples": site.examples}
        return reply(message, MetricRecord({wire.EXAMPLES: site.examples}), {**figures, "key": site.key})

    @app.train()
    def train(message: Message, context: Context) -> Message:
        began, task = time.monotonic(), orders(message)
        site = recipe(context, task)
        if why := unfit(context, site):
            return declined(message, site, why)
        arrays = message.content.array_records[next(iter(message.content.array_records))]
        start = flat(site, arrays)
        steps = affordable(site, task, start, context, began)
        if steps < 1:
            return declined(message, site, "deadline: not one local step fits into what is left of it")
        shift = message.content.array_records.get(wire.SHIFT)
        trained = work(site, task, start, steps, None if shift is None else shift[wire.FLAT].numpy())
        return trained_reply(message, context, site, trained, start, arrays, time.monotonic() - began)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        task = orders(message)
        site = recipe(context, task)
        start = flat(site, next(iter(message.content.array_records.values())))
        if task.get("probing"):
            told = work(site, task, start, 0).reports
            loss, figures = float(told.loss[0]), powers(context, site)
            figures |= {"loss": loss} if told.rms is None else {"loss": loss, "rms": float(told.rms[0])}
            return reply(message, MetricRecord({"loss": loss, wire.EXAMPLES: site.examples}), figures)
        accuracy, loss, examples = site.scores(start)
        record = MetricRecord({"accuracy": accuracy, "loss": loss, wire.EXAMPLES: examples})
        return reply(message, record, powers(context, site))

    return app


def orders(message: Message) -> Task:
    """What the server tells, checked against the code that runs here. Raises OtherCode."""
    told = message.content.get(wire.OURS)
    ours = {**DEFAULTS, **(told if isinstance(told, ConfigRecord) else {})}
    config = message.content.get(wire.CONFIG)
    if told is None and isinstance(config, ConfigRecord):
        ours |= {name: config[name] for name in ("lr", "batch") if name in config}
        ours |= {"steps": config.get("local-steps", 1), "round": config.get("server-round", 0)}
    digest.check(str(ours.get("code", "")))
    return ours


def reply(
    message: Message, metrics: MetricRecord, ours: Mapping[str, Any], model: ArrayRecord | None = None
) -> Message:
    """An answer: metrics as Flower's strategies want them, and what only ours reads."""
    content = RecordDict({wire.METRICS: metrics, wire.OURS: ConfigRecord(dict(ours))})
    if model is not None:
        content[wire.ARRAYS] = model
    return Message(content, reply_to=message)


def declined(message: Message, site: Site, why: str) -> Message:
    """An answer without a model, and why."""
    return reply(
        message, MetricRecord({wire.EXAMPLES: site.examples}), {"key": site.key, "declined": why, "steps": 0}
    )


def battery(context: Context) -> Battery | None:
    """The machine's battery, or what the node config says instead (battery = 0.4, charging = false)."""
    stated = context.node_config.get("battery")
    if stated is not None:
        return Battery(float(stated), bool(context.node_config.get("charging", False)))
    return read_battery()


def powers(context: Context, site: Site) -> dict[str, float]:
    """What the node states of itself, with its charge as it is now."""
    figures, held = dict(site.figures), battery(context)
    if held is not None:
        capacity = figures.get("capacity_j", held.capacity_j)
        figures["capacity_j"] = capacity if math.isfinite(capacity) else PHONE_J
        figures["battery_j"] = (
            held.charge * figures["capacity_j"] if not held.charging else figures["capacity_j"]
        )
    return figures


def unfit(context: Context, site: Site) -> str:
    """Why this node will not train now, or ''. The device has the last word on its own battery."""
    held, floor = battery(context), site.figures.get("floor", 0.0)
    if held is not None and not held.charging and held.charge < floor:
        return f"battery: {held.charge:.0%} left, its floor is {floor:.0%}"
    return ""


def flat(site: Site, record: ArrayRecord) -> Params:
    """(P,) the model that came, as the trainer holds it."""
    arrays = {name: array.numpy() for name, array in record.items()}
    if site.named is not None:
        return site.named.read(arrays, site.trainer.initial(0))
    if list(arrays) != [wire.FLAT]:
        raise ValueError(
            f"the server sent arrays {sorted(arrays)}; this app's recipe takes all parameters as one array"
        )
    return np.asarray(arrays[wire.FLAT], np.float32)


def model(site: Site, params: Params, came: ArrayRecord) -> ArrayRecord:
    """The trained model under the names by which it came."""
    if site.named is None:
        return wire.one_array(params)
    arrays = {name: array.numpy() for name, array in came.items()}
    return ArrayRecord({name: Array(a) for name, a in site.named.write(params, arrays).items()})


def affordable(site: Site, task: Task, start: Params, context: Context, began: float) -> int:
    """Local steps that fit into the time there is: at this node's speed, measured by one step if it is not known."""
    asked, limit = int(task["steps"]), float(task.get("limit_s", math.inf))
    if not math.isfinite(limit):
        return asked
    kept = context.state.get(SPEED)
    if isinstance(kept, MetricRecord):
        step_s = float(kept["step_s"])  # type: ignore[arg-type]
    else:
        at = time.monotonic()
        work(site, task, start, 1)
        step_s = time.monotonic() - at
    left = limit - (time.monotonic() - began)
    return max(0, min(asked, int(MARGIN * left / max(step_s, 1e-9))))


def work(
    site: Site, task: Task, start: Params, steps: int, shift: NDArray[np.float32] | None = None
) -> Trained:
    """Train this one device as the simulation would train it in a cohort; 0 steps measure the incoming loss."""
    device = np.array([int(task.get("device", site.part))], np.int64)
    options = {k.removeprefix("option."): float(v) for k, v in task.items() if k.startswith("option.")}
    numbers = {name: task[name] for name in ("lr", "batch", "mu", "probe", "objective") if name in task}
    plan = Plan(
        round=int(task["round"]),
        chosen=device,
        steps=np.array([steps], np.int64),
        reason=np.full(1, Reason.CHOSEN, np.uint8),
        params=start,
        local=Local(**numbers, options=options),
        weigh=lambda reports: np.ones((1, reports.device.size)),
        full=steps > 0,
        gradients=bool(task.get("gradients", False)),
        shift=None if shift is None else shift[None],
    )
    return site.trainer.train(plan, device, plan.steps, int(task["seed"]))


def trained_reply(
    message: Message,
    context: Context,
    site: Site,
    trained: Trained,
    start: Params,
    came: ArrayRecord,
    seconds: float,
) -> Message:
    """The trained model with what it took."""
    told, steps = trained.reports, int(trained.reports.steps[0])
    assert trained.full is not None
    context.state[SPEED] = MetricRecord({"step_s": seconds / steps})
    figures: dict[str, Any] = {
        **powers(context, site),
        "key": site.key,
        "examples": site.examples,
        "steps": steps,
        "seconds": seconds,
        "loss": float(told.loss[0]),
        "first_loss": float(told.first_loss[0]),
    }
    if told.rms is not None:
        figures["rms"] = float(told.rms[0])
    if trained.slopes is not None:
        figures |= {"beta": float(trained.slopes.beta[0]), "rho": float(trained.slopes.rho[0])}
    metrics = MetricRecord({wire.EXAMPLES: site.examples, "train_loss": float(told.first_loss[0])})
    answer = reply(message, metrics, figures, model(site, start - trained.full[0], came))
    if trained.slopes is not None:
        answer.content[wire.SLOPE] = wire.one_array(trained.slopes.gradient[0])
    return answer


app = client()
