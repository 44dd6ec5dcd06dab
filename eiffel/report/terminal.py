"""Live progress in the terminal: a bar where there is one to draw on, else a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TextIO

from eiffel.report.folder import Columns
from eiffel.report.read import dig, number
from eiffel.report.units import fitting, percent

MODES = ("auto", "plain", "off")


class Bar(Protocol):
    """What progress is drawn with."""

    def update(self, done: int, words: str) -> None:
        """Show so many rounds done."""
        ...

    def stop(self) -> None:
        """Leave the terminal as it was."""
        ...


class Terminal:
    """Follows a run.

    rounds: how many are planned. name: what the run is called. mode: auto (a bar on a terminal, else
    lines), plain (lines), off. every_s: seconds between lines. out: where to; clock: seconds, for tests.
    """

    def __init__(
        self,
        rounds: int,
        name: str = "run",
        mode: str = "auto",
        every_s: float = 5.0,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"report.terminal is {mode!r}; it must be one of {', '.join(MODES)}")
        self._rounds, self._name, self._every_s, self._clock = rounds, name, every_s, clock
        self._out = out or sys.stderr
        self._off = mode == "off"
        self._bar = _bar(name, rounds, self._out) if mode == "auto" and self._out.isatty() else None
        self._last: Mapping[str, Any] = {}
        self._accuracy = float("nan")
        self._told = self._begun = clock()

    def record(self, record: Mapping[str, Any], clients: Columns | None = None) -> None:
        """Show how far the run is."""
        self._last = record
        served = dig(record, f"scores.{dig(record, 'scores.served') or 'last'}.accuracy")
        self._accuracy = number(served) if served is not None else self._accuracy
        done = int(record["round"])
        if self._off:
            return
        if self._bar is not None:
            self._bar.update(done, self._words())
        elif self._clock() - self._told >= self._every_s:
            self._told = self._clock()
            self._say(f"{self._name}: round {done}/{self._rounds}  {self._words()}")

    def summary(self, summary: Mapping[str, Any]) -> None:
        """At the end, one line that says how the run ended and what it cost."""
        if self._off or summary.get("status") == "running":
            return
        self.close()
        took = self._clock() - self._begun
        done = self._last.get("round", 0)
        said = f"{self._name}: {summary.get('status')} after {done} rounds in {fitting('seconds', took).text(took)}"
        why = summary.get("why")
        words = self._words()
        self._say(said + (f" ({why})" if why else "") + (f"  {words}" if words else ""))

    def close(self) -> None:
        """Take the bar down."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _words(self) -> str:
        """Accuracy, traffic, energy and virtual time so far."""
        parts = [f"accuracy {percent(self._accuracy)}"] if self._accuracy == self._accuracy else []
        for kind, key in (("bytes", "total_bytes"), ("joules", "total_joules"), ("seconds", "total_s")):
            value = number(self._last.get(key))
            if value == value:
                parts.append(fitting(kind, value).text(value))
        return "  ".join(parts)

    def _say(self, line: str) -> None:
        """Print a line at once."""
        print(line, file=self._out, flush=True)


class _RichBar:
    """A bar drawn by rich."""

    def __init__(self, name: str, rounds: int, out: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[words]}"),
            console=Console(file=out),
            transient=True,
        )
        self._task = self._progress.add_task(name, total=rounds, words="")
        self._progress.start()

    def update(self, done: int, words: str) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=done, words=words)

    def stop(self) -> None:
        """Take it down and give the cursor back."""
        self._progress.stop()


def _bar(name: str, rounds: int, out: TextIO) -> Bar | None:
    """A bar, or None where rich is not installed."""
    try:
        return _RichBar(name, rounds, out)
    except ImportError:
        return None
