"""A digest of the code that decides what a device computes, so that no node runs another version unnoticed.

A simulation engine may import the package from another folder than the one that was submitted, and a device may
carry an old installation: both would give wrong results without a word.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

DECIDES = ("core", "data", "train", "flower")
"""Folders of the package whose Python decides a device's answer; line ends do not count."""


class OtherCode(RuntimeError):
    """This node would run other code than the server was started with."""


PACKAGE = Path(__file__).resolve().parents[1]


@cache
def code_digest(package: Path = PACKAGE) -> str:
    """Hexadecimal SHA-256 of that code, first 16 digits."""
    total = hashlib.sha256()
    for path in sorted(p for folder in DECIDES for p in (package / folder).rglob("*.py")):
        text = path.read_bytes().replace(b"\r\n", b"\n")
        total.update(f"{path.relative_to(package).as_posix()} {len(text)}\n".encode() + text)
    return total.hexdigest()[:16]


def check(expected: str) -> None:
    """Raise OtherCode, saying where this node's code lies, unless it is what the server expects ('': no check)."""
    if expected and expected != code_digest():
        raise OtherCode(
            f"this node runs other code than the server: digest {code_digest()} of {PACKAGE}, the server has "
            f"{expected}. Install the same version of eiffel-fl on the node, or restart the simulation engine from "
            "the folder you submit"
        )
