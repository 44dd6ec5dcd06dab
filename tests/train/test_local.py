"""Many workers, killed workers, no workers: the same bits."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from eiffel.core.model import Local as Task
from eiffel.train import trainer

MODEL = {"kind": "mlp", "hidden": [16]}


def weigh(reports):
    """Two rows: by samples, and by the incoming loss."""
    return np.stack([reports.examples / reports.examples.sum(), reports.loss])


@pytest.fixture
def rounds(plan_of):
    """Train all 20 devices for some rounds with unequal steps; final model, what came back, scores."""

    def run(engine, count=3, before=lambda k: None):
        params, out = engine.initial(1), []
        for k in range(count):
            before(k)
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


CNN = {"kind": "cnn", "channels": [4], "hidden": 8}


@pytest.mark.parametrize(("path", "workers", "model"), [("ordinary", 4, CNN), ("closed", 2, MODEL)])
def test_one_two_and_four_workers_give_the_same_bits(blobs, rounds, path, workers, model):
    """The cut into blocks and the order of the sums do not know how many workers there are."""
    data = replace(blobs, x=blobs.x[:, :9].copy())  # nine features are a picture of 3 x 3
    settings = {"path": path, "chunk": 3}
    alone = rounds(trainer(data, model, {**settings, "workers": 1}, 0))
    engine = trainer(data, model, {**settings, "workers": workers, "patience": 0}, 0)
    try:
        same(alone, rounds(engine))
        assert len(engine.crew.pids) == workers
    finally:
        engine.close()


@pytest.fixture(scope="module")
def pair(blobs):
    """An engine whose two workers are up from the start."""
    engine = trainer(blobs, MODEL, {"workers": 2, "patience": 0, "path": "ordinary"}, 0)
    yield engine
    engine.close()


def test_a_killed_worker_is_replaced_and_its_block_done_again(blobs, rounds, pair):
    """kill -9 in every second round, later and later in it; a warning shows, and two workers are enough."""
    expected = rounds(trainer(blobs, MODEL, {"kind": "single", "path": "ordinary"}, 0), 15)
    rounds(pair, 1)
    killed, killers = [], []

    def kill():
        if pids := list(pair.crew.pids.values()):
            killed.append(pids[len(killed) % len(pids)])
            os.kill(killed[-1], signal.SIGKILL)

    def before(k):
        # A block may lose RETRIES workers and no more. Each round starts only after the last shot has been fired,
        # so that no block is hit twice however slow the machine is.
        while killers:
            killers.pop().join()
        if k % 2:
            killers.append(threading.Timer(0.002 * k, kill))
            killers[-1].start()

    got = rounds(pair, 15, before)
    before(0)
    assert killed
    assert not set(killed) & set(pair.crew.pids.values())
    same(expected, got)


def test_small_work_starts_no_process(blobs, rounds):
    """Default patience: a second of work done alone comes first, so three tiny rounds never get there."""
    engine = trainer(blobs, MODEL, {"workers": 2}, 0)
    rounds(engine)
    assert engine.crew._forge is None
    engine.close()


def test_workers_take_over_when_the_work_lasts(blobs, rounds):
    """After 0.1 s of work done alone workers are forged, and come in whenever they are ready: the same bits."""
    expected = rounds(trainer(blobs, MODEL, {"kind": "single", "path": "ordinary"}, 0))
    engine = trainer(blobs, MODEL, {"workers": 2, "patience": 0.1, "path": "ordinary"}, 0)
    try:
        until = time.monotonic() + 60
        while len(engine.crew.pids) < 2 and time.monotonic() < until:
            same(expected, rounds(engine))
        assert len(engine.crew.pids) == 2
        same(expected, rounds(engine))
    finally:
        engine.close()


def test_workers_that_cannot_start_leave_the_work_to_one_process(blobs, rounds, monkeypatch, caplog):
    """The forge is an interpreter that ends at once; the run goes on, and says so in one line."""
    monkeypatch.setattr("sys.executable", "/bin/false")
    engine = trainer(blobs, MODEL, {"workers": 2, "patience": 0, "path": "ordinary"}, 0)
    rounds(engine)
    engine.close()
    assert [r.getMessage() for r in caplog.records] == [
        "worker processes could not start; training goes on in one process"
    ]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "fast"}, "engine.kind is 'fast'; it must be one of local, single"),
        ({"workers": 0}, "engine.workers is 0"),
        ({"device": "cuda"}, "torch sees no GPU"),
    ],
)
def test_engines_that_do_not_exist_are_refused(blobs, settings, words):
    if "device" in settings and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match=words):
        trainer(blobs, MODEL, settings, 0)


def test_an_error_in_a_worker_comes_back_as_one(rounds, plan_of, pair):
    """A number that is none fails in the worker; the message arrives, and work goes on afterwards."""
    local = Task(objective="tilted", options={"t": "x"})
    plan = plan_of(pair.initial(0), range(20), [1] * 20, local=local)
    with pytest.raises(RuntimeError, match="TypeError"):
        pair.train(plan, plan.chosen, plan.steps, 0)
    assert not pair.crew.pids
    rounds(pair, 1)
    assert len(pair.crew.pids) == 2


def test_a_worker_that_hangs_is_not_waited_for_for_ever(rounds, plan_of, pair, monkeypatch):
    """Both workers are stopped; after the budget the round fails, and the next one has new workers."""
    rounds(pair, 1)
    for pid in pair.crew.pids.values():
        os.kill(pid, signal.SIGSTOP)
    plan = plan_of(pair.initial(0), range(20), [1] * 20)
    monkeypatch.setattr(pair.crew, "budget", 0.3)
    with pytest.raises(TimeoutError, match=r"engine\.budget"):
        pair.train(plan, plan.chosen, plan.steps, 0)
    monkeypatch.undo()
    assert not pair.crew.pids
    rounds(pair, 1)
    assert len(pair.crew.pids) == 2


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


def test_close_leaves_no_process_and_no_descriptor(blobs, rounds, pair):
    """Every worker, the forge, and every descriptor that was opened are gone."""
    rounds(pair, 1)
    opened = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    pids = [*pair.crew.pids.values(), pair.crew._forge.process.pid]
    assert len(pids) == 3
    pair.close()
    assert not any(alive(p) for p in pids)
    if opened:
        assert len(os.listdir("/proc/self/fd")) <= opened - 4  # two workers, the forge, the board
