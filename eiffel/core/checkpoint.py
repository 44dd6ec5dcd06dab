"""Checkpoints: a state (nested dataclasses, dicts, arrays, scalars) as one atomic file, and back again.

A checkpoint is an uncompressed .npz, whose zip container carries a checksum of every array. The newest two
are kept; when the newest is damaged (cut short by a crash or a full disk), the one before it is used.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

_PREFIX = "checkpoint-"
_SUFFIX = ".npz"


class CheckpointError(ValueError):
    """No usable checkpoint, or one that does not fit the state it is loaded into."""


def flatten(tree: Any, path: str = "") -> dict[str, np.ndarray[Any, Any]]:
    """Every leaf of a state under its path ("policy.pace.tau"); None leaves are left out.

    >>> flatten({"a": {"b": 1}, "c": None})
    {'a.b': array(1)}
    """
    if tree is None:
        return {}
    if is_dataclass(tree) and not isinstance(tree, type):
        tree = {f.name: getattr(tree, f.name) for f in fields(tree)}
    if isinstance(tree, Mapping):
        flat: dict[str, np.ndarray[Any, Any]] = {}
        for key, value in tree.items():
            flat |= flatten(value, f"{path}.{key}" if path else str(key))
        return flat
    return {path: np.asarray(tree)}


def rebuild(template: Any, flat: Mapping[str, np.ndarray[Any, Any]], path: str = "") -> Any:
    """A state shaped like `template`, filled from `flat`.

    Dataclasses keep their type; dicts take whatever keys were saved; scalars take the template's type.
    Raises CheckpointError where a leaf of the template was not saved.
    """
    if is_dataclass(template) and not isinstance(template, type):
        at = f"{path}." if path else ""
        values = {f.name: rebuild(getattr(template, f.name), flat, at + f.name) for f in fields(template)}
        return type(template)(**values)
    if isinstance(template, Mapping):
        return _rebuild_mapping(template, flat, path)
    if path not in flat:
        if template is None or any(key.startswith(path + ".") for key in flat):
            return _unflatten(flat, path)
        raise CheckpointError(
            f"the checkpoint holds no {path!r}: it was written by another version or strategy"
        )
    value = flat[path]
    if isinstance(template, bool | int | float | str):
        return type(template)(value.item())
    return value


def _rebuild_mapping(template: Mapping[str, Any], flat: Mapping[str, Any], path: str) -> dict[str, Any]:
    at = f"{path}." if path else ""
    saved = {key[len(at) :].split(".")[0] for key in flat if key.startswith(at)}
    return {
        key: rebuild(template.get(key), flat, at + key) for key in [*template, *sorted(saved - set(template))]
    }


def _unflatten(flat: Mapping[str, np.ndarray[Any, Any]], path: str) -> Any:
    """What was saved under a path where the template says nothing: an array, a dict of them, or None."""
    if path in flat:
        return flat[path]
    at = path + "."
    keys = {key[len(at) :].split(".")[0] for key in flat if key.startswith(at)}
    return {key: _unflatten(flat, at + key) for key in sorted(keys)} if keys else None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: a temporary neighbour, flushed to disk, then renamed over `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_npz(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write named arrays as one uncompressed .npz, whole or not at all; never pickled: data, not code."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue())


def save(folder: Path, round_: int, tree: Any, keep: int = 2) -> Path:
    """Save a state as the checkpoint of `round_`; older ones than the newest `keep` are removed."""
    path = folder / f"{_PREFIX}{round_:06d}{_SUFFIX}"
    write_npz(path, flatten(tree))
    for old in _saved(folder)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def _saved(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{_PREFIX}*{_SUFFIX}"))


def load(folder: Path, template: Any) -> tuple[int, Any, list[str]]:
    """The newest usable checkpoint: (round, state, what was wrong with newer ones).

    Raises CheckpointError when the folder holds none that can be read.
    """
    complaints = []
    for path in reversed(_saved(folder)):
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as saved:
                flat = {key: saved[key] for key in saved.files}
        except (zipfile.BadZipFile, OSError, ValueError, EOFError) as problem:
            complaints.append(f"{path.name} is damaged ({problem}); going back to the one before it")
            continue
        return int(path.name[len(_PREFIX) : -len(_SUFFIX)]), rebuild(template, flat), complaints
    detail = "; ".join(complaints) or "there is none"
    raise CheckpointError(f"no usable checkpoint in {folder}: {detail}. Start the run anew")
