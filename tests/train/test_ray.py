"""The same bits from a Ray cluster of two nodes. Runs where ray is installed."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from eiffel.core.model import Local
from eiffel.train import trainer

MODEL = {"kind": "mlp", "hidden": [16]}


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="ray is installed here")
def test_without_ray_the_engine_says_what_to_install(blobs):
    with pytest.raises(ValueError, match="pip install ray"):
        trainer(blobs, MODEL, {"kind": "ray"}, 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_nodes_give_the_bits_of_one_process(blobs, plan_of):
    """Two nodes of one CPU each, an actor on either; whole updates and sums of two rows."""
    pytest.importorskip("ray", reason="ray is not installed: pip install ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    results = []
    try:
        for settings in ({"kind": "single"}, {"kind": "ray", "address": cluster.address}):
            engine = trainer(blobs, MODEL, {**settings, "path": "ordinary"}, 0)
            params = engine.initial(1)
            for k in range(2):
                weigh = lambda r: np.stack([r.examples / r.examples.sum(), r.loss])  # noqa: E731
                plan = plan_of(
                    params, range(20), [1 + d % 5 for d in range(20)], k, Local(probe=4), weigh, True
                )
                got = engine.train(plan, plan.chosen, plan.steps, 0)
                params = params - got.sums[0]
            results.append((params, got.sums, got.full, got.sumsq, engine.score(params).loss))
            engine.close()
        assert "2 workers" in engine.note
    finally:
        import ray

        ray.shutdown()
        cluster.shutdown()
    for a, b in zip(*results, strict=True):
        assert np.array_equal(a, b)
