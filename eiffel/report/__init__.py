"""What becomes of a run: its folder, live progress, one page over many runs, figures, and answers.

Everything here reads Records, and nothing below this package logs to any of it.
"""

from eiffel.report.answer import explain
from eiffel.report.console import table
from eiffel.report.folder import RunFolder, Sink
from eiffel.report.page import report
from eiffel.report.paper import figures
from eiffel.report.sinks import Report, Sinks, open_sinks

__all__ = ["Report", "RunFolder", "Sink", "Sinks", "explain", "figures", "open_sinks", "report", "table"]
