"""Opens the sinks that a card of the group `report` asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eiffel.report.folder import Columns, RunFolder, Sink
from eiffel.report.terminal import Terminal


@dataclass(frozen=True, slots=True)
class Report:
    """A card of the group `report`.

    terminal: auto (a bar on a terminal, else lines), plain (lines) or off. every_s: seconds between lines.
    wandb: whether to log there; project, group (None: the sweep's folder), mode (None: online with a key,
    else offline) are wandb's.
    """

    terminal: str = "auto"
    every_s: float = 5.0
    wandb: bool = False
    project: str = "eiffel"
    group: str | None = None
    mode: str | None = None


class Sinks:
    """Several sinks as one. The run's folder comes first: what it could not write, nobody else is told."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.each = tuple(sinks)

    def record(self, record: Mapping[str, Any], clients: Columns | None = None) -> None:
        """Give every sink the round."""
        for sink in self.each:
            sink.record(record, clients)

    def summary(self, summary: Mapping[str, Any]) -> None:
        """Give every sink the summary."""
        for sink in self.each:
            sink.summary(summary)

    def close(self) -> None:
        """Close every sink, also when one of them fails."""
        failures = []
        for sink in self.each:
            try:
                sink.close()
            except Exception as error:  # one sink's trouble must not keep the others open
                failures.append(error)
        if failures:
            raise failures[0]


def open_sinks(
    card: Report,
    run: Path,
    *,
    rounds: int,
    name: str,
    config: Mapping[str, Any] | None = None,
    after: int = 0,
) -> Sinks:
    """The run folder, the terminal, and wandb where asked for.

    run: the run's folder. rounds: planned. name: what the run is called. config: resolved, for wandb.
    after: the last round done before a resume (0 at a fresh start); the folder is cut back to it.
    """
    folder = RunFolder(run)
    folder.truncate(after)
    sinks: list[Sink] = [folder, Terminal(rounds, name, card.terminal, card.every_s)]
    if card.wandb:
        from eiffel.report.wandb_sink import Wandb

        about = {"group": card.group, "mode": card.mode}
        sinks.append(Wandb(run, project=card.project, name=name, config=config, after=after, **about))
    return Sinks(sinks)
