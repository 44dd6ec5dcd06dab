"""Small, hand-sized inputs that several tests share."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from eiffel.core.model import Local, Outcomes, Plan, Reports, Snapshot, Status, Trained


def snapshot(n: int, round_: int = 1, **columns: Any) -> Snapshot:
    """n equal devices: 10 samples, one second and joule per step and per exchange, half full batteries."""
    one = np.ones(n, np.float32)
    values: dict[str, Any] = {
        "reason": np.zeros(n, np.uint8),
        "examples": np.full(n, 10, np.int32),
        "step_s": one,
        "step_j": one,
        "exchange_s": one,
        "exchange_j": one,
        "battery_j": one * 100,
        "capacity_j": one * 200,
        "bytes_down": 40,
        "bytes_up": 56,
        "now": 0.0,
    }
    return Snapshot(round=round_, **(values | columns))


def reports(loss: Sequence[float], examples: Sequence[int] | None = None, **columns: Any) -> Reports:
    """Reports of devices 0..K-1 (or `device`), 10 samples and 1 step each unless said otherwise."""
    k = len(loss)
    return Reports(
        device=np.asarray(columns.get("device", range(k)), np.int64),
        examples=np.asarray(examples if examples is not None else [10] * k, np.int64),
        steps=np.asarray(columns.get("steps", [1] * k), np.int64),
        loss=np.asarray(loss, float),
        first_loss=np.asarray(columns.get("first_loss", loss), float),
    )


def trained(updates: Any, weights: Any, **columns: Any) -> Trained:
    """What a trainer returns for these updates (R, P) and weight rows (m, R)."""
    u, w = np.asarray(updates, np.float32), np.atleast_2d(np.asarray(weights, float))
    sumsq = (u.astype(float) ** 2).sum(1)
    w = np.where(np.isfinite(sumsq), w, 0.0)
    sums = (w @ np.where(np.isfinite(u), u, 0)).astype(np.float32)
    told = columns.pop("reports", None) or reports([np.nan] * len(u), **columns)
    return Trained(told, sumsq, w, sums)


def outcomes(
    round_: int, device: Any, loss: Any, updates: Any = None, weights: Any = None, **columns: Any
) -> Outcomes:
    """Everybody delivered, one second, joule and step each; updates of one parameter unless given."""
    device = np.asarray(device, np.int64)
    k = device.size
    told = reports(list(np.asarray(loss, float)), device=device, **columns)
    u = np.ones((k, 1)) if updates is None else updates
    w = np.full((1, k), 1.0 / max(k, 1)) if weights is None else weights
    return Outcomes(
        round=round_,
        start_s=0.0,
        end_s=1.0,
        device=device,
        status=np.full(k, Status.DELIVERED, np.uint8),
        steps=np.asarray(columns.get("steps", np.ones(k)), np.int64),
        seconds=np.ones(k),
        joules=np.ones(k),
        bytes_down=np.full(k, 40),
        bytes_up=np.full(k, 56),
        trained=trained(u, w, reports=told),
    )


def plan(chosen: Any, n: int, round_: int = 1, steps: int = 1, **columns: Any) -> Plan:
    """A plan for these of n devices."""
    chosen = np.asarray(chosen, np.int64)
    reason = np.ones(n, np.uint8)
    reason[chosen] = 0
    values: dict[str, Any] = {
        "params": np.zeros(1, np.float32),
        "local": Local(),
        "weigh": lambda told: np.ones((1, told.device.size)),
    }
    return Plan(round_, chosen, np.full(chosen.size, steps, np.int64), reason, **(values | columns))
