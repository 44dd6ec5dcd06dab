"""Finding source files and knowing them by their sha256."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from eiffel.data.federated import DataError


def sha256(path: Path) -> str:
    """Hexadecimal sha256 of a file; remembered while the process lives and the file's size and time stay."""
    status = path.stat()
    return _sha256(str(path), status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _sha256(path: str, size: int, mtime_ns: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(path: Path, options: Mapping[str, Any]) -> str:
    """sha256 of a source, held against the card's pin (`options.sha256`: {file name: sha256}) if it has one.

    Raises
    ------
    DataError
        The file is not the one the card was written for.
    """
    found = sha256(path)
    pinned = (options.get("sha256") or {}).get(path.name)
    if pinned is not None and pinned != found:
        raise DataError(
            f"{path}: its sha256 is {found}, but the card expects {pinned}. "
            "The file is damaged or another version: fetch it again, "
            "or, if you trust this one, set datasets.options.sha256=null"
        )
    return found


def places(path: Path | None, folder: str, *more: str | Path) -> list[Path]:
    """Where to look: `path` alone if the user gave one, else $EIFFEL_DATA/folder, $EIFFEL_DATA, more."""
    if path is not None:
        return [path]
    root = os.environ.get("EIFFEL_DATA")
    own = [Path(root) / folder, Path(root)] if root else []
    return own + [Path(place).expanduser() for place in more]


def find(where: Iterable[Path], names: Iterable[str]) -> Path | None:
    """The first existing file among places x names; a place may also be the file itself."""
    names = tuple(names)
    for place in where:
        if place.is_file():
            return place
        if hit := next((place / name for name in names if (place / name).is_file()), None):
            return hit
    return None


def searched(where: Iterable[Path]) -> str:
    """The places searched, for an error message."""
    return ", ".join(str(place) for place in where) or "any known place (EIFFEL_DATA is not set)"
