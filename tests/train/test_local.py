"""Many workers, killed workers, no workers: the same bits."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

from eiffel.core.model import Local as Task
from eiffel.train import trainer

MODEL = {"kind": "mlp", "hidden": [16]}


def weigh(reports):
    """Two rows: by samples, and by the incoming loss."""
    return np.stack([reports.examples / reports.examples.sum(), reports.loss])


@pytest.fixture
def rounds(plan_of):
    """Train all 20 devices for some rounds with unequal steps; final model, what came back, scores."""

    def run(engine, count=3):
        params, out = engine.initial(1), []
        for k in range(count):
            plan = plan_of(params, range(20), [1 + d % 7 for d in range(20)], k, Task(probe=5), weigh, True)
            out.append(engine.train(plan, plan.chosen, plan.steps, 3))
            params = params - out[-1].sums[0]
        return params, out, engine.score(params)

    return run


def same(a, b):
    """Bit for bit."""
    assert np.array_equal(a[0], b[0])
    for x, y in zip(a[1], b[1], strict=True):
        for field in ("sumsq", "weights", "sums", "full"):
            assert np.array_equal(getattr(x, field), getattr(y, field)), field
        for field in ("device", "examples", "steps", "loss", "first_loss"):
            assert np.array_equal(getattr(x.reports, field), getattr(y.reports, field)), field
    assert np.array_equal(a[2].loss, b[2].loss)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("path", ["ordinary", "closed", "vmap"])
def test_one_two_and_four_workers_give_the_same_bits(blobs, rounds, path):
    """The cut into blocks and the order of the sums do not know how many workers there are."""
    results = []
    for workers in (1, 2, 4):
        engine = trainer(blobs, MODEL, {"workers": workers, "patience": 0, "path": path, "chunk": 3}, 0)
        try:
            results.append(rounds(engine))
            if workers > 1:
                assert len(engine.crew.pids) == workers
        finally:
            engine.close()
    same(results[0], results[1])
    same(results[0], results[2])


def test_a_killed_worker_is_replaced_and_its_block_done_again(blobs, rounds):
    """kill -9 again and again while rounds run; nothing but a warning shows."""
    settings = {"workers": 2, "patience": 0, "path": "ordinary"}
    alone = trainer(blobs, MODEL, {"kind": "single", "path": "ordinary"}, 0)
    expected = rounds(alone, 40)
    engine = trainer(blobs, MODEL, settings, 0)
    killed, stop = [], threading.Event()

    def killer():
        while not stop.wait(0.02):
            if len(killed) < 6 and (pids := list(engine.crew.pids.values())):
                killed.append(pids[len(killed) % len(pids)])
                os.kill(killed[-1], signal.SIGKILL)

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        got = rounds(engine, 40)
    finally:
        stop.set()
        thread.join()
        engine.close()
    assert killed
    same(expected, got)


def test_close_leaves_no_process_and_no_descriptor(blobs, rounds):
    """Every worker, the forge, and every descriptor that was opened are gone."""
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    engine = trainer(blobs, MODEL, {"workers": 2, "patience": 0}, 0)
    rounds(engine, 1)
    pids = [*engine.crew.pids.values(), engine.crew._forge.process.pid]
    engine.close()
    deadline = time.monotonic() + 5
    while any(alive(p) for p in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(alive(p) for p in pids)
    assert len(os.listdir("/proc/self/fd")) <= len(before) if before else True


def test_small_work_starts_no_process(blobs, rounds):
    """Default patience: a second of work done alone comes first, so three tiny rounds never get there."""
    engine = trainer(blobs, MODEL, {"workers": 2}, 0)
    rounds(engine)
    assert engine.crew._forge is None
    engine.close()


def test_an_error_in_a_worker_comes_back_as_one(blobs, rounds, plan_of):
    """A number that is none fails in the worker; the message arrives, and nobody stays behind."""
    engine = trainer(blobs, MODEL, {"workers": 2, "patience": 0, "path": "ordinary"}, 0)
    plan = plan_of(engine.initial(0), range(20), [1] * 20, local=Task(objective="tilted", options={"t": "x"}))
    with pytest.raises(RuntimeError, match="TypeError"):
        engine.train(plan, plan.chosen, plan.steps, 0)
    assert not engine.crew.pids
    rounds(engine, 1)
    engine.close()


def test_memory_mapped_samples_are_shared_as_they_are(blobs, tmp_path):
    """A slice of a mapped file keeps its place in the file."""
    from eiffel.train.board import attach, share

    np.save(tmp_path / "x.npy", np.arange(60, dtype=np.float32).reshape(20, 3))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")[5:]
    fd, places = share([mapped, np.arange(4)])
    try:
        x, y = attach(fd, places)
    finally:
        os.close(fd)
    assert places[0].path is not None
    assert np.array_equal(x, mapped)
    assert y.tolist() == [0, 1, 2, 3]
