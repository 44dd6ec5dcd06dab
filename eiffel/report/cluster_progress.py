"""How far a run of the cluster is: a line that is redrawn on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Self, TextIO

from eiffel.report.units import fitting

MODES = ("auto", "off")
WIDTH = 24


class Progress:
    """Called after every decision with the jobs that have ended and the time (s) of the trace.

    Silent for the first `quiet_s` seconds, so that short runs say nothing. Raises ValueError for an unknown mode.
    """

    def __init__(
        self, name: str, jobs: int, mode: str = "auto", *, quiet_s: float = 2.0, out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        if mode not in MODES:
            raise ValueError(f"progress is {mode!r}; it must be one of {', '.join(MODES)}")
        self._name, self._jobs, self._off = name, max(1, jobs), mode == "off"
        self._out, self._clock = out or sys.stderr, clock
        self._live = self._out.isatty()
        self._every = 0.2 if self._live else 10.0
        self._begun = clock()
        self._next = self._begun + quiet_s
        self._drawn = 0

    def __enter__(self) -> Self:
        return self

    def __call__(self, ended: int, now: float) -> None:
        """Say how far it is, if it is time to."""
        if self._off or self._clock() < self._next:
            return
        self._next = self._clock() + self._every
        line = self._line(ended, now)
        print(
            f"\r{line:<{self._drawn}}" if self._live else line,
            end="" if self._live else "\n",
            file=self._out,
            flush=True,
        )
        self._drawn = len(line)

    def __exit__(self, *_: object) -> None:
        if self._live and self._drawn:
            print("\r" + " " * self._drawn, end="\r", file=self._out, flush=True)

    def _line(self, ended: int, now: float) -> str:
        """The bar, the jobs that have ended, the time in the trace and at the desk."""
        done = ended / self._jobs
        spent = self._clock() - self._begun
        bar = ("█" * round(WIDTH * done)).ljust(WIDTH, "·")
        return (
            f"{self._name} {bar} {ended:,} of {self._jobs:,} jobs ended, {fitting('seconds', now).text(now)} "
            f"of the trace in {fitting('seconds', spent).text(spent)}"
        )
