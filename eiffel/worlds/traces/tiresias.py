"""The CSV of Tiresias' simulator: job_id,num_gpu,submit_time,iterations,model_name,duration,interval.

Gu et al., "Tiresias: a GPU cluster manager for distributed deep learning", NSDI 2019.
"""

from collections.abc import Sequence

from eiffel.core.jobs import Trace
from eiffel.worlds.traces.lengths import from_lengths
from eiffel.worlds.traces.options import Options
from eiffel.worlds.traces.reading import read_table

OPTIONS = ("path",)


def read(options: Options, types: Sequence[str]) -> Trace:
    """Read the trace: a job is its `duration`; iterations and interval are not used (its simulator does
    not either).
    """
    table = read_table(options.text("path"), ("job_id", "num_gpu", "submit_time", "duration"))
    model = table.text("model_name") if table.has("model_name") else None
    arrival, seconds = table.number("submit_time"), table.number("duration")
    gang = table.whole("num_gpu", low=1)
    return from_lengths(table.unique("job_id"), arrival, seconds, gang, options, types, model)
