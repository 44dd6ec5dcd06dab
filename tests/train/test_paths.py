"""The fast paths compute what the ordinary one does, and say why they are or are not taken."""

from __future__ import annotations

import numpy as np
import pytest

from eiffel.core.model import Local
from eiffel.train import trainer

MODELS = [{"kind": "logistic"}, {"kind": "mlp", "hidden": [16]}, {"kind": "mlp", "hidden": [16, 8]}]
LOCALS = [
    Local(lr=0.3, batch=10),
    Local(lr=0.3, batch=7, mu=0.5),
    Local(lr=0.3, objective="propfair", options={"M": 2.0}),
    Local(lr=0.1, objective="tilted", options={"t": 2.0}, mu=0.1),
]


@pytest.mark.parametrize("model", MODELS, ids=["logistic", "one hidden", "two hidden"])
@pytest.mark.parametrize("local", LOCALS, ids=["plain", "proximal", "propfair", "tilted"])
def test_all_paths_agree(blobs, plan_of, model, local):
    """Three rounds of 1 to 6 steps on 3 to 40 samples: updates within 1e-5."""
    results = []
    for path in ("ordinary", "closed", "vmap"):
        engine = trainer(blobs, model, {"kind": "single", "path": path, "chunk": 6}, 0)
        params = engine.initial(4)
        for k in range(3):
            plan = plan_of(params, range(20), [1 + d % 6 for d in range(20)], k, local, full=True)
            got = engine.train(plan, plan.chosen, plan.steps, 0)
            params = params - got.sums[0]
        results.append((got.full, got.sumsq, got.reports.first_loss, got.sums))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert b == pytest.approx(a, abs=1e-5, rel=1e-5)


OWN = """
from torch import nn

class Two(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.inner, self.outer = nn.Linear(12, width), nn.Linear(width, 4)
    def forward(self, x):
        return self.outer(self.inner(x).tanh())

def noisy():
    return nn.Sequential(nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 4))

def half():
    return nn.Linear(12, 4).half()
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A user's own models, importable."""
    (tmp_path / "my_models.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return "my_models"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"kind": "logistic"}, "closed path, 5 devices at once: 52 parameters in linear layers"),
        ({"kind": "mlp", "hidden": [600, 600]}, "parameters are too many"),
        ({"module": "my_models:Two", "options": {"width": 5}}, "vmap path"),
        ({"module": "my_models:noisy"}, "ordinary path: it keeps buffers"),
    ],
)
def test_the_choice_is_a_rule_and_says_why(blobs, own, model, words):
    engine = trainer(blobs, model, {"kind": "single", "chunk": 5}, 0)
    assert words in engine.note


@pytest.mark.parametrize("path", ["closed", "vmap", "nonsense"])
def test_a_path_that_cannot_be_taken_is_refused(blobs, own, path):
    with pytest.raises(ValueError, match=f"engine.path .*{path}"):
        trainer(blobs, {"module": "my_models:noisy"}, {"kind": "single", "path": path}, 0)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"module": "my_models:half"}, "float16"),
        ({"module": "my_models:absent"}, "package.mod:callable"),
        ({"module": "math:sqrt", "options": {}}, "math:sqrt"),
        ({"module": "builtins:dict"}, "made a dict"),
        ({"kind": "transformer"}, "one of logistic, mlp, cnn, lstm"),
    ],
)
def test_models_that_cannot_be_built_are_refused(blobs, own, model, words):
    with pytest.raises(ValueError, match=words):
        trainer(blobs, model, {}, 0)


def test_statistics_and_dropout_are_the_devices_own(blobs, own, plan_of):
    """Running statistics start from the server's for every device and come back in the update; dropout is
    seeded by (seed, round, device). So device 3 does the same whoever trained before it."""
    engine = trainer(blobs, {"module": "my_models:noisy"}, {"kind": "single"}, 0)
    start = engine.initial(0)
    assert (
        engine.size == (12 * 6 + 6) + 12 + (6 * 4 + 4) + 12
    )  # two linear layers, scale and shift, statistics
    plan = plan_of(start, [1, 3], [2, 2], full=True)
    both = engine.train(plan, plan.chosen, plan.steps, 0)
    alone = engine.train(plan, np.array([3]), np.array([2]), 0)
    assert np.array_equal(both.full[1], alone.full[0])
    assert both.full[0][-12:].any()
    assert not np.array_equal(engine.train(plan, np.array([3]), np.array([2]), 1).full[0], alone.full[0])


@pytest.mark.parametrize(
    ("shape", "kind", "classes"),
    [((1, 28, 28), "cnn", 10), ((64,), "cnn", 10), ((3, 16, 16), "cnn", 5), ((20,), "lstm", 30)],
)
def test_the_larger_models_learn(federation, plan_of, shape, kind, classes):
    """Some steps on four devices' own data: the loss falls."""
    random = np.random.default_rng(0)
    tokens = kind == "lstm"
    x = random.integers(0, classes, (40, *shape)) if tokens else random.normal(size=(40, *shape))
    y = x if tokens else random.integers(0, classes, 40)
    data = federation(x if tokens else x.astype(np.float32), y, classes, [10] * 4)
    model = {"kind": kind, "channels": [4, 8], "hidden": 16, "layers": 1}
    engine = trainer(data, model, {"kind": "single"}, 0)
    assert "ordinary path" in engine.note
    params = engine.initial(0)
    before = engine.score(params).loss.mean()
    for k in range(4):
        plan = plan_of(params, range(4), [5] * 4, k, Local(lr=0.5 if tokens else 0.1))
        params = params - engine.train(plan, plan.chosen, plan.steps, 0).sums[0]
    assert engine.score(params).loss.mean() < before
