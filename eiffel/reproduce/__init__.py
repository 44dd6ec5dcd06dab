"""Results that anybody can make again: files of sims/, their runs, tables, gates and one page."""

from eiffel.reproduce.command import main

__all__ = ["main"]
