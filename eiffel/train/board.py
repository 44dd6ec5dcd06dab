"""Memory that processes share without a name: nothing is left behind, however they end.

A `Board` is a file that exists only as a descriptor (memfd on Linux, an unlinked temporary file elsewhere).
Worker processes inherit the descriptor and map it; when the last of them is gone, so is the memory.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LINE = 64  # bytes of a cache line: everything starts on one


def descriptor() -> int:
    """A new nameless file of size 0."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("eiffel", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Board:
    """Shared float32 memory that grows; given a descriptor, the one that another process made."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = descriptor() if fd is None else fd
        self._map: mmap.mmap | None = None
        self._size = 0

    def room(self, floats: int) -> None:
        """Make sure that many numbers fit; earlier contents stay."""
        size = -(-max(floats, 1) * 4 // mmap.PAGESIZE) * mmap.PAGESIZE
        if os.fstat(self.fd).st_size < size:
            os.ftruncate(self.fd, size)

    def floats(self, start: int, *shape: int) -> Tensor:
        """A tensor of this shape over the numbers from `start` on; shared, not copied."""
        count = int(np.prod(shape))
        if self._map is None or self._size < (start + count) * 4:
            self._size = os.fstat(self.fd).st_size
            self._map = mmap.mmap(self.fd, self._size)
        return torch.frombuffer(self._map, dtype=torch.float32, count=count, offset=start * 4).view(shape)

    def close(self) -> None:
        """Give the descriptor back; the memory goes with the last tensor over it."""
        self._map = None
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


@dataclass(frozen=True, slots=True)
class Place:
    """Where an array lies: in a file of its own, or (path None) in the shared descriptor."""

    path: str | None
    offset: int
    dtype: str
    shape: tuple[int, ...]


def _place(array: NDArray[Any], offset: int) -> Place:
    """A memory-mapped file is shared as it is; anything else will be written at `offset`."""
    if isinstance(array, np.memmap) and array.filename and array.flags.c_contiguous:
        root = array
        while isinstance(root.base, np.memmap):
            root = root.base
        skipped = array.ctypes.data - root.ctypes.data
        return Place(str(array.filename), int(root.offset) + skipped, array.dtype.str, array.shape)
    return Place(None, offset, array.dtype.str, array.shape)


def share(arrays: Sequence[NDArray[Any]]) -> tuple[int, list[Place]]:
    """Lay arrays out for other processes, once: a descriptor and every array's place."""
    fd, places, offset = descriptor(), list[Place](), 0
    for array in arrays:
        place = _place(array, offset)
        places.append(place)
        offset += 0 if place.path else -(-array.nbytes // LINE) * LINE
    os.ftruncate(fd, max(offset, 1))
    with mmap.mmap(fd, max(offset, 1)) as memory:
        for place, array in zip(places, arrays, strict=True):
            if place.path is None and array.size:
                flat = np.frombuffer(memory, place.dtype, array.size, place.offset)
                flat[:] = array.reshape(-1)
                del flat
    return fd, places


def attach(fd: int, places: Sequence[Place]) -> list[NDArray[Any]]:
    """The arrays of `share`, in another process, without a copy."""
    memory = mmap.mmap(fd, 0, access=mmap.ACCESS_COPY)
    arrays: list[NDArray[Any]] = []
    for place in places:
        if place.path is not None:
            shape, offset = place.shape, place.offset
            arrays.append(np.memmap(place.path, place.dtype, "c", offset, shape))
        else:
            count = int(np.prod(place.shape))
            flat = np.frombuffer(memory, place.dtype, count, place.offset)
            arrays.append(flat.reshape(place.shape))
    return arrays
