"""Seconds, joules and bytes of a task on a device: fetch the model, work on it, send the update.

A task has four phases, in this order, and every array of phases has them on axis 0:

    CONNECT   the fixed price of an exchange (waiting, the radio's tail)
    DOWN      the model comes in
    WORK      probing the incoming model (forward passes only) and tau local steps
    UP        the update goes out

The world charges with these functions and a policy predicts with them, so both agree by construction.
Everything is vectorised over devices: (K,) for the K devices of a cohort, (N,) for a whole fleet.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Floats, Ints, Local, Snapshot

CONNECT, DOWN, WORK, UP = range(4)
SCALAR_BYTES = 16
"""What a device sends beside its update: incoming loss, |update|^2, battery, examples, as four float32."""
FORWARD_SHARE = 1.0 / 3.0
"""What the forward pass costs of a training step: the backward pass is about twice as dear."""


def model_bytes(params: int) -> tuple[int, int]:
    """Bytes of one download and of one upload of a model of `params` float32 parameters."""
    return 4 * params, 4 * params + SCALAR_BYTES


def radio_seconds(size: float, mbps: NDArray[np.floating]) -> Floats:
    """Seconds to move `size` bytes at `mbps` (K,) megabits a second."""
    return np.asarray(8e-6 * size / np.asarray(mbps, np.float64))


def radio_joules(size: float, j_per_mb: NDArray[np.floating]) -> Floats:
    """Joules to move `size` bytes at `j_per_mb` (K,) joules a megabyte (10^6 bytes)."""
    return np.asarray(1e-6 * size * np.asarray(j_per_mb, np.float64))


def probe_steps(local: Local, examples: NDArray[np.integer]) -> Floats:
    """(K,) local steps that probing the incoming model costs as much as.

    A device probes `local.probe` of its samples (-1: all), never more than it has. A step handles
    `local.batch` samples forward and backward; the probe is forward only.
    """
    probed = examples if local.probe < 0 else np.minimum(examples, local.probe)
    return np.asarray(probed * (FORWARD_SHARE / local.batch), np.float64)


def predict(
    snapshot: Snapshot, steps: int, exchanges: float = 1.0
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(N,) seconds and (N,) joules of `steps` local steps and `exchanges` of a model, without a probe."""
    work, moved = np.float32(steps), np.float32(exchanges)
    return (
        work * snapshot.step_s + moved * snapshot.exchange_s,
        work * snapshot.step_j + moved * snapshot.exchange_j,
    )


def with_probe(
    snapshot: Snapshot, local: Local, task_s: NDArray[np.float32], task_j: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(N,) seconds and (N,) joules of these tasks and the loss probe before them, as a world charges them."""
    if not local.probe:
        return task_s, task_j
    work = probe_steps(local, snapshot.examples).astype(np.float32)
    return task_s + work * snapshot.step_s, task_j + work * snapshot.step_j


def progress(seconds: Floats, elapsed: Floats) -> Floats:
    """(4, K) share of every phase that is done `elapsed` (K,) seconds after the task began.

    seconds: (4, K) lengths of the phases. A phase of no length is done as soon as it is reached.

    >>> progress(np.array([[0.0], [2.0], [4.0], [2.0]]), np.array([4.0])).ravel().tolist()
    [1.0, 1.0, 0.5, 0.0]
    """
    ends = np.cumsum(seconds, axis=0)
    into = elapsed - (ends - seconds)
    spent = np.clip(into, 0.0, seconds)
    share = np.divide(spent, seconds, out=np.where(into >= 0, 1.0, 0.0), where=seconds > 0)
    return np.where(elapsed >= ends[-1], 1.0, share)


def drain(
    level: Floats, capacity: Floats, watts: float, seconds: Floats, joules: Floats
) -> tuple[Floats, Floats]:
    """What a task does to batteries of (K,) `level` joules while a charger gives `watts`.

    seconds, joules: (4, K) of the phases; joules are drawn evenly within a phase.
    Returns (K,) the level at the end, never below 0 nor above capacity, and (K,) the second at which the
    battery ran out (inf: it did not). A battery that ends at exactly 0 has sufficed.
    """
    flat_at = np.full(level.shape, np.inf)
    began = np.zeros(level.shape)
    for length, drawn in zip(seconds, joules, strict=True):
        net = drawn - watts * length
        short = (net > level) & np.isinf(flat_at)
        share = np.divide(level, net, out=np.zeros(level.shape), where=short)
        flat_at[short] = (began + length * share)[short]
        level = np.clip(level - net, 0.0, capacity)
        began = began + length
    return level, flat_at


def steps_done(share: Floats, steps: Ints, probed: Floats) -> Ints:
    """(K,) whole local steps finished when `share` (K,) of the WORK phase is done; the probe comes first."""
    done = np.floor(share * (steps + probed) - probed + 1e-9)
    return np.asarray(np.clip(done, 0, steps), np.int64)
