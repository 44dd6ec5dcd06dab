"""The hub's reader: on local parquet, offline, if its library is installed; images by hand without it."""

import importlib.util
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from eiffel.data import DataError, MissingData, hub, load


def parquet(path):
    values = pa.array(np.arange(240.0)[:, None].repeat(3, 1).tolist())
    table = pa.table(
        {"features": values, "label": np.arange(240) % 4, "who": [f"w{i // 24}" for i in range(240)]}
    )
    pq.write_table(table, path)
    return path


def test_hub_without_its_library_says_what_to_install(card, monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    with pytest.raises(
        MissingData, match=r"hub: flwr-datasets is not installed: pip install 'eiffel-fl\[hub\]'"
    ):
        load(card("hub"))


@pytest.mark.filterwarnings("default")  # its dependencies' own deprecations are not ours to fix
def test_hub_reads_local_parquet_offline(card, tmp_path, monkeypatch):
    if importlib.util.find_spec("flwr_datasets") is None:
        pytest.skip("flwr-datasets is not installed (pip install 'eiffel-fl[hub]')")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hub"))
    file = parquet(tmp_path / "own.parquet")
    options = {"dataset": "parquet", "data_files": {"train": str(file)}, "x": "features", "client": "who"}
    data = load(card("hub", partition="natural", clients=None, options=options))
    assert data.clients == tuple(f"w{i}" for i in range(10))
    assert (data.train.sizes + data.test.sizes).tolist() == [24] * 10
    assert data.x[:, 0].tolist() == list(range(240))
    assert list(data.sources) == ["own.parquet"]
    dealt = load(card("hub", clients=5, options=options))
    assert (dealt.train.sizes + dealt.test.sizes).sum() == 240
    for wrong, said in (
        ({"label": "class"}, "no column 'class'"),
        ({"dataset": None}, "set datasets.options.dataset"),
    ):
        with pytest.raises(DataError, match=said):
            load(card("hub", options=options | wrong))


def test_images_by_hand():
    """Grey (M, H, W) gets one channel, colour (M, H, W, 3) has its channels moved before; bytes become 0..1."""
    grey = hub._features({"image": [np.full((2, 4), 51, np.uint8)] * 3}, "image", "f")
    assert grey.shape == (3, 1, 2, 4)
    assert np.unique(grey) == pytest.approx([0.2])
    colour = np.zeros((2, 4, 3), np.uint8)
    colour[:, :, 2] = 255
    moved = hub._features({"image": [colour]}, "image", "f")
    assert moved.shape == (1, 3, 2, 4)
    assert moved[0].mean((1, 2)).tolist() == [0, 0, 1]
    assert hub._features({"v": [[1.5, 2.5]]}, "v", "f").tolist() == [[1.5, 2.5]]


@pytest.mark.parametrize(
    ("values", "said"), [([[1, 2], [3]], "is not one array"), ([1.0, 2.0], r"has shape \(2,\)")]
)
def test_columns_that_are_no_array_are_named(values, said):
    with pytest.raises(DataError, match=f"f: column 'v' {said}"):
        hub._features({"v": values}, "v", "f")
