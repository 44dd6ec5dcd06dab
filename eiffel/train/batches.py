"""Which of its own samples a device uses at which local step: a function of (seed, round, device) alone.

Philox is counter-based: a key names a stream, so a stream costs a microsecond to open, needs no history,
and two devices never share one. Nothing here knows torch; a device in the field draws the same batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.core.model import Ints

BATCHES, PROBE, NOISE = 0, 1, 2


class Draws:
    """One Philox generator, pointed at the stream of any (seed, round, device, purpose)."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=np.zeros(2, np.uint64))
        self._start: dict[str, Any] = dict(self._bits.state)
        self._key: NDArray[np.uint64] = self._start["state"]["key"]
        self._random = np.random.Generator(self._bits)

    def stream(self, seed: int, round_: int, device: int, purpose: int) -> np.random.Generator:
        """The generator at the start of that stream; the next call points the same object elsewhere."""
        self._key[0] = (int(seed) & 0xFFFFFFFF) << 32 | (int(round_) & 0xFFFFFFFF)
        self._key[1] = int(device) << 8 | purpose
        self._bits.state = self._start  # type: ignore[assignment]
        return self._random

    def batches(self, seed: int, round_: int, device: int, samples: int, batch: int, steps: int) -> Ints:
        """(steps, b) positions in 0..samples-1, b = min(batch, samples).

        Epoch after epoch a fresh permutation, cut into steps without a gap: a batch may straddle two
        epochs, every step costs the same, and each sample is used equally often, give or take one.
        """
        width = min(batch, samples)
        epochs = -(-steps * width // samples)
        random = self.stream(seed, round_, device, BATCHES)
        order = random.permutation(samples)
        if epochs > 1:
            order = np.concatenate([order, *(random.permutation(samples) for _ in range(epochs - 1))])
        return order[: steps * width].reshape(steps, width)

    def probe(self, seed: int, round_: int, device: int, samples: int, probe: int) -> Ints:
        """Positions of the samples on which the incoming model's loss is measured; -1: all of them."""
        if probe < 0 or probe >= samples:
            return np.arange(samples, dtype=np.int64)
        return self.stream(seed, round_, device, PROBE).permutation(samples)[:probe]

    def noise(self, seed: int, round_: int, device: int) -> int:
        """A seed for what a model draws itself, dropout for instance."""
        return int(self.stream(seed, round_, device, NOISE).integers(2**62))


def probed(probe: int, examples: Ints) -> Ints:
    """How many samples each device runs forward to measure its incoming loss; a world charges for them."""
    return np.asarray(examples if probe < 0 else np.minimum(probe, examples), dtype=np.int64)
