"""What becomes of a run: its folder, live progress, one page over many runs, figures, and answers."""

from eiffel.report.folder import RunFolder, Sink

__all__ = ["RunFolder", "Sink"]
