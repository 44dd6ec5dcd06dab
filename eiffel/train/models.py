"""The models of the federated papers, and a door for a user's own.

logistic, mlp (two hidden layers of 200: "2NN"), cnn and the character LSTM are those of McMahan et al.,
"Communication-Efficient Learning of Deep Networks from Decentralized Data" (AISTATS 2017).
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class Samples(Protocol):
    """What a model must know of its data; `eiffel.data.federated.Federated` is one."""

    @property
    def x(self) -> NDArray[Any]:
        """(M, ...) features, or (M, L) tokens."""
        ...

    @property
    def y(self) -> NDArray[np.int64]:
        """(M,) classes, or (M, L) next tokens."""
        ...

    @property
    def classes(self) -> int:
        """Number of classes, or of tokens."""
        ...


Card = Mapping[str, Any]


def logistic(card: Card, data: Samples) -> nn.Module:
    """Multinomial logistic regression on the flattened features."""
    del card
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(data.x.shape[1:]), data.classes))


def mlp(card: Card, data: Samples) -> nn.Module:
    """ReLU layers of the widths `hidden` (default [200, 200])."""
    widths = [math.prod(data.x.shape[1:]), *(int(h) for h in card.get("hidden") or (200, 200))]
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], data.classes))


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(channels, height, width) of one sample; a flat sample of a square number of pixels is a grey image."""
    if len(shape) == 1 and math.isqrt(shape[0]) ** 2 == shape[0]:
        return 1, math.isqrt(shape[0]), math.isqrt(shape[0])
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    raise ValueError(f"model.kind cnn needs images; a sample here has the shape {shape}: take mlp instead")


class Image(nn.Module):
    """Samples of any layout as (B, C, H, W) with the channels next to each other in memory.

    Convolutions then keep to that order, which makes a step of `cnn` 1.14 times as fast on a CPU (measured
    on AVX-512); parameters keep theirs, so nothing else notices.
    """

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.shape = channels, height, width

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, ...) with C H W numbers a sample."""
        channels, height, width = self.shape
        x = x.reshape(-1, channels, height, width)
        if channels > 1:
            return x.contiguous(memory_format=torch.channels_last)
        # One channel is in that order as it lies; only its strides must say so.
        return x.contiguous().as_strided(x.shape, (height * width, 1, width, 1))


def cnn(card: Card, data: Samples) -> nn.Module:
    """5x5 convolutions `channels` (default [32, 64]), each with ReLU and 2x2 pooling, then `hidden` (512)."""
    channels, height, width = image_shape(data.x.shape[1:])
    layers: list[nn.Module] = [Image(channels, height, width)]
    for filters in card.get("channels") or (32, 64):
        layers += [nn.Conv2d(channels, int(filters), 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
        channels, height, width = int(filters), height // 2, width // 2
    if height * width == 0:
        raise ValueError(f"model.channels has too many layers for images of {data.x.shape[1:]}: take fewer")
    hidden = _width(card, 512)
    layers += [nn.Flatten(), nn.Linear(channels * height * width, hidden), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, data.classes))


class CharLSTM(nn.Module):
    """Embedding, stacked LSTM, linear: logits (B, L, C) of every next token, or (B, C) of the last."""

    def __init__(self, tokens: int, embed: int, hidden: int, layers: int, every: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, embed)
        self.lstm = nn.LSTM(embed, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, tokens)
        self.every = every

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (B, L) int64."""
        states, _ = self.lstm(self.embed(tokens))
        out: Tensor = self.head(states if self.every else states[:, -1])
        return out


def lstm(card: Card, data: Samples) -> nn.Module:
    """Character LSTM: `embed` (8), `layers` (2) of `hidden` (256)."""
    hidden, layers = _width(card, 256), int(card.get("layers") or 2)
    return CharLSTM(data.classes, int(card.get("embed") or 8), hidden, layers, data.y.ndim == 2)


def _width(card: Card, default: int) -> int:
    """`hidden` as one number; a list (another kind's) counts by its last entry."""
    hidden = card.get("hidden") or default
    return int(hidden if isinstance(hidden, int) else list(hidden)[-1])


MODELS: dict[str, Callable[[Card, Samples], nn.Module]] = {
    "logistic": logistic,
    "mlp": mlp,
    "cnn": cnn,
    "lstm": lstm,
}


def own(path: str, options: Mapping[str, Any]) -> nn.Module:
    """A user's module: `package.mod:callable`, called with the options. ValueError says what went wrong."""
    where, _, name = path.partition(":")
    try:
        made = getattr(importlib.import_module(where), name)(**options)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"model.module is {path!r}; write package.mod:callable ({error})") from error
    if not isinstance(made, nn.Module):
        raise ValueError(
            f"model.module {path!r} made a {type(made).__name__}; it must return a torch.nn.Module"
        )
    return made


def build(card: Card, data: Samples) -> nn.Module:
    """The module a model card describes, freshly initialised from torch's generator.

    Keys: `kind` (logistic, mlp, cnn, lstm) with that kind's numbers, or `module: "package.mod:callable"`
    with `options`. Raises ValueError for a kind that does not exist or data that do not suit it.
    """
    if card.get("module"):
        return own(str(card["module"]), card.get("options") or {})
    kind = str(card.get("kind"))
    if kind not in MODELS:
        raise ValueError(
            f"model.kind is {kind!r}; it must be one of {', '.join(MODELS)}, or set model.module"
        )
    if kind != "lstm" and data.y.ndim != 1:
        raise ValueError(f"model.kind {kind} predicts one class a sample; token sequences need lstm")
    return MODELS[kind](card, data)


def initial(card: Card, data: Samples, seed: int) -> nn.Module:
    """`build` under a seed, leaving torch's own generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(card, data)
