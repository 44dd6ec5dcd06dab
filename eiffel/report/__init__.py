"""What becomes of a run: its folder, live progress, one page over many runs, figures, and answers.

Everything here reads Records, and nothing below this package logs to any of it.
"""

from eiffel.report.folder import RunFolder, Sink
from eiffel.report.kinds import explain, figures, report, table
from eiffel.report.sinks import Report, Sinks, open_sinks

__all__ = ["Report", "RunFolder", "Sink", "Sinks", "explain", "figures", "open_sinks", "report", "table"]
