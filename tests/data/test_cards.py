"""Cards load from their real source, with the figures that are published or were measured.

A card whose source is not on this machine is skipped with the reason its own error gives. Readers of what no
package brings (npz, csv, Shakespeare's texts) are tested on files made for it.
"""

import time
from pathlib import Path

import numpy as np
import pytest

from eiffel.data import DataError, MissingData, load
from eiffel.data.load import PARTITIONS, READERS

ROOT = Path(__file__).resolve().parents[2]
CARDS = sorted(path.stem for path in (ROOT / "datasets").glob("*.yaml"))
OWN = ("npz", "csv", "hub")
KEYS = {
    "name", "reader", "path", "partition", "alpha", "shards", "sigma", "min_samples", "clients", "parts", "test",
    "model", "local", "steps", "rounds", "cohort", "options",
}  # fmt: skip


def here(card, **changes):
    """The card's data, or a skip that says why not."""
    try:
        return load(card, **changes)
    except MissingData as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", CARDS)
def test_cards_have_every_key_so_that_each_can_be_overridden(card, name):
    found = card(name)
    assert set(found) == KEYS
    assert found["name"] == name
    assert found["reader"] in READERS
    assert found["partition"] in PARTITIONS
    assert found["model"]["kind"] in ("logistic", "mlp", "cnn", "lstm")
    assert set(found["local"]) == {"lr", "batch"}
    text = (ROOT / "datasets" / f"{name}.yaml").read_text()
    assert "Source" in text.split("name:")[0]
    assert "icence" in text.split("name:")[0]


@pytest.mark.parametrize("name", [name for name in CARDS if name not in (*OWN, "landmine", "shakespeare")])
def test_cards_load_and_say_where_from(card, name):
    found = card(name)
    data = here(found, seed=1)
    assert data.name == name
    assert all(len(digest) == 64 for digest in data.sources.values())
    assert data.sources or name.startswith("synthetic")
    both = np.concatenate([data.train.index, data.test.index])
    assert np.unique(both).size == both.size
    assert data.x.flags.c_contiguous
    again = load(found, seed=1)
    np.testing.assert_array_equal(data.x, again.x)
    np.testing.assert_array_equal(data.train.index, again.train.index)


def test_digits_figures(card):
    data = here(card("digits"), seed=1)
    assert data.x.shape == (1797, 64)
    assert (data.x.min(), data.x.max()) == (0, 1)
    assert np.bincount(data.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert len(data) == 50
    assert (data.train.sizes + data.test.sizes).sum() == 1797
    assert (data.train.sizes + data.test.sizes).min() >= 10
    assert not np.array_equal(data.train.index, load(card("digits"), seed=2).train.index)


def test_digits_load_fast(card):
    here(card("digits"))
    start = time.process_time()
    load(card("digits"))
    assert time.process_time() - start < 0.3


def test_har_figures(card):
    """10,017 windows of 30 people, 269 to 404 each; 7,505 to train and 2,512 to test on."""
    start = time.process_time()
    data = here(card("har"), seed=1)
    assert time.process_time() - start < 3
    sizes = data.train.sizes + data.test.sizes
    assert data.x.shape == (10_017, 120)
    assert (len(data), sizes.min(), sizes.max()) == (30, 269, 404)
    assert (data.train.sizes.sum(), data.test.sizes.sum()) == (7505, 2512)
    assert np.unique(data.y).tolist() == [0, 1, 2, 3, 4, 5]
    assert len(load(card("har"), clients=12, seed=1)) == 12
    with pytest.raises(DataError, match=r"har: 31 clients asked for, but the data has 30 .*\(1 too few\)"):
        load(card("har"), clients=31)


def test_fashion_figures(card):
    """60,000 pictures, 6,000 a class, 196 features; 100 clients, each 80/20; the first picture is an ankle boot (9)."""
    start = time.process_time()
    data = here(card("fashion_mnist"), seed=1)
    assert time.process_time() - start < 2
    assert data.x.shape == (60_000, 196)
    assert np.bincount(data.y).tolist() == [6000] * 10
    assert data.y[0] == 9
    assert len(data) == 100
    assert data.test.sizes == pytest.approx(0.2 * (data.train.sizes + data.test.sizes), abs=0.5)
    assert data.x.max() <= 1


def test_fashion_can_be_dealt_to_a_thousand(card):
    data = here(card("fashion_mnist"), clients=1000, seed=1)
    sizes = data.train.sizes + data.test.sizes
    assert (len(data), sizes.sum()) == (1000, 60_000)
    assert sizes.min() >= 5


def test_fashion_split_of_agnostic_federated_learning(card):
    """T-shirt, pullover, shirt: three clients with 6,000 train and 1,000 test pictures each, classes 0, 1, 2."""
    options = {"classes": [[0], [2], [6]], "rows": "official"}
    data = here(card("fashion_mnist", partition="classes", options=options), clients=3)
    assert (data.train.sizes.tolist(), data.test.sizes.tolist()) == ([6000] * 3, [1000] * 3)
    assert [np.unique(data.y[data.train.of(i)]).tolist() for i in range(3)] == [[0], [1], [2]]
    assert data.classes == 3


def test_landmine_figures(card, shared_data):
    """29 fields, 1,464 spots, 89 of them mines (6 %), fields 6 and 8 without any."""
    data = load(card("landmine", path=shared_data / "fl"), seed=1)
    mines = [data.y[np.r_[data.train.of(i), data.test.of(i)]].sum() for i in range(29)]
    assert (len(data), data.x.shape) == (29, (1464, 9))
    assert sum(mines) == data.y.sum() == 89
    assert sum(count == 1 for count in mines) == 4
    assert [i + 1 for i, count in enumerate(mines) if count == 0] == [6, 8]
    assert all(data.y[data.test.of(i)].sum() >= 1 for i, count in enumerate(mines) if count >= 2)


def test_synthetic_figures(card):
    """100 clients of 50 or more; sigma 1 gives about 14,200 samples."""
    data = here(card("synthetic_1_1"), seed=1)
    assert len(data) == 100
    assert (data.train.sizes + data.test.sizes).sum() == pytest.approx(14_200, rel=0.1)
    assert (data.train.sizes + data.test.sizes).min() >= 50


@pytest.mark.parametrize("partition", [p for p in PARTITIONS if p != "natural"])
def test_digits_can_be_dealt_by_every_rule(card, partition):
    data = here(card("digits", partition=partition, clients=20, min_samples=5), seed=3)
    assert len(data) == 20


def test_synthetic_can_be_dealt_otherwise(card):
    assert len(here(card("synthetic_1_1", partition="shards", clients=10), seed=3)) == 10
