"""Fashion-MNIST: 70,000 pictures of clothes, 28 x 28 pixels, 10 classes (Xiao, Rasul, Vollgraf 2017).

Read from its four idx files, gzip-compressed or not, wherever they were laid: nothing is downloaded.
"""

from __future__ import annotations

import functools
import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eiffel.data.federated import Ask, DataError, MissingData, Pool
from eiffel.data.sources import find, fingerprint, places, searched

CLASSES = 10
UNSIGNED_BYTE = 0x08
FOLDERS = (
    "/usr/share/datasets/fashion-mnist",
    "FashionMNIST/raw",
    "data/FashionMNIST/raw",
    "~/data/FashionMNIST/raw",
)
"""Debian's, then torchvision's below the roots that are usual."""


def read(ask: Ask) -> Pool:
    """x: (M, 1, 28, 28) pixels in [0, 1], or (M, (28 / p)^2) means over p x p pixels, p = options.pool > 1.

    options.rows: "train" (the 60,000 training pictures; every client's test part is cut from its own) or
    "official" (all 70,000 are dealt; the test parts are made of the 10,000 test pictures).

    Raises
    ------
    MissingData
        A file not found.
    DataError
        Files damaged or not the pinned ones; an option out of range.
    """
    rows, pool = ask.options.get("rows", "train"), ask.options.get("pool", 1)
    if rows not in ("train", "official"):
        raise DataError(f"datasets.options.rows is {rows!r}; it must be 'train' or 'official'")
    if not isinstance(pool, int) or pool < 1 or 28 % pool:
        raise DataError(f"datasets.options.pool is {pool!r}; it must divide 28: 1, 2, 4, 7, 14 or 28")
    paths = [
        _find(f"{name}-{kind}-ubyte", ask)
        for name in (("train", "t10k") if rows == "official" else ("train",))
        for kind in ("images-idx3", "labels-idx1")
    ]
    sources = {path.name: fingerprint(path, ask.options) for path in paths}
    x, labels, first = _decoded(tuple(map(str, paths)), tuple(sources.values()), pool)
    test = None if rows == "train" else np.arange(len(labels)) >= first
    return Pool(x, labels, CLASSES, sources, test=test)


@functools.lru_cache(maxsize=1)
def _decoded(
    paths: tuple[str, ...], seen: tuple[str, ...], pool: int
) -> tuple[NDArray[np.float32], NDArray[np.int64], int]:
    """Pixels, labels, and how many of them the first two files hold; kept while the process lives, for a sweep
    deals the same pictures anew with every run. seen: the files' sha256, so that a changed file is read again.
    """
    sets = [_set(Path(paths[i]), Path(paths[i + 1])) for i in range(0, len(paths), 2)]
    images, labels = (np.concatenate(one) if len(sets) > 1 else one[0] for one in zip(*sets, strict=True))
    return pooled(images, pool), labels.astype(np.int64), len(sets[0][1])


def pooled(images: NDArray[np.uint8], size: int) -> NDArray[np.float32]:
    """(M, H, W) bytes -> 0..1: (M, 1, H, W) if size is 1, else (M, features) means of size x size squares."""
    count, height, width = images.shape
    if size == 1:
        return images.reshape(count, 1, height, width) * np.float32(1 / 255)
    sums = np.zeros((count, height // size, width // size), np.float32)
    for row in range(size):
        for column in range(size):
            sums += images[:, row::size, column::size]
    return sums.reshape(count, -1) * np.float32(1 / (255 * size * size))


def idx(data: bytes, name: str) -> NDArray[np.uint8]:
    """Parse an idx file of bytes: 0, 0, 8, number of dimensions; big-endian sizes; then the bytes.

    Raises
    ------
    DataError
        Not an idx file, or not as long as its header says.
    """
    if len(data) < 4 or data[:3] != bytes((0, 0, UNSIGNED_BYTE)):
        raise DataError(
            f"{name}: not an idx file of bytes: it begins with {data[:4].hex(' ') or 'nothing'}, not 00 00 08"
        )
    head = 4 + 4 * data[3]
    if len(data) < head:
        raise DataError(f"{name}: it ends within its header, after {len(data)} bytes: fetch it again")
    shape = tuple(np.frombuffer(data[4:head], ">u4").astype(int).tolist())
    if len(data) - head != (need := int(np.prod(shape))):
        raise DataError(
            f"{name}: its header promises {need} bytes of shape {shape}, "
            f"it holds {len(data) - head}: fetch it again"
        )
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


def _set(pictures: Path, names: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (M, H, W) and labels (M,) of two files that belong together."""
    images, labels = idx(_bytes(pictures), str(pictures)), idx(_bytes(names), str(names))
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        raise DataError(
            f"fashion_mnist: {pictures.name} has images of shape {images.shape} "
            f"and labels of shape {labels.shape}"
        )
    return images, labels


def _find(name: str, ask: Ask) -> Path:
    where = places(ask.path, "fashion-mnist", *FOLDERS)
    path = find(where, [f"{name}.gz", name])
    if path is None or path.name not in (f"{name}.gz", name):
        raise MissingData(
            f"fashion_mnist: no {name}(.gz) in {searched(where)}. Two ways to get it: on Debian or Ubuntu "
            "`apt install dataset-fashion-mnist`; or let torchvision fetch it "
            "(torchvision.datasets.FashionMNIST('data', download=True)) "
            "and set datasets.path=data/FashionMNIST/raw"
        )
    return path


def _bytes(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not read: {error}; fetch it again") from error
