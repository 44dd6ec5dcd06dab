"""Room for devices that join a federation that is under way: a state of N devices becomes one of more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def widen(state: Any, template: Any) -> Any:
    """`state` with the shapes of `template`, a fresh state of more devices of the same method.

    Where an array of the template is longer along its first axis (the devices), the state's rows come first and
    the template's rest, which belongs to the newcomers, follows. A type that counts over devices says itself how
    it widens, in a method `widened(template)`.
    """
    if hasattr(state, "widened"):
        return state.widened(template)
    if is_dataclass(state) and not isinstance(state, type):
        parts = {f.name: widen(getattr(state, f.name), getattr(template, f.name)) for f in fields(state)}
        return type(state)(**parts)
    if isinstance(state, Mapping):
        return {key: widen(value, template.get(key)) for key, value in state.items()}
    if isinstance(state, np.ndarray) and isinstance(template, np.ndarray) and state.shape != template.shape:
        return np.concatenate([state, template[len(state) :].astype(state.dtype)])
    return state
