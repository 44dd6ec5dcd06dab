"""Versions of everything that can change a figure, for the summary of a run."""

from __future__ import annotations

import platform
from importlib import metadata

ALWAYS = ("eiffel-fl", "numpy", "scipy")
TRAINING = ("torch", "scikit-learn")


def versions(*more: str) -> dict[str, str]:
    """Versions of Python, the machine's architecture, `ALWAYS` and these distributions, where installed."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in (*ALWAYS, *more):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
