"""Microsoft's Philly trace in the form of AdaptDL's philly.csv: timestamp,duration,num_gpus,gpu_time,cluster.

Jeon et al., "Analysis of large-scale multi-tenant GPU clusters for DNN training workloads", ATC 2019.
"""

from collections.abc import Sequence

import numpy as np

from eiffel.core.jobs import Trace
from eiffel.worlds.traces.lengths import from_lengths
from eiffel.worlds.traces.options import Options
from eiffel.worlds.traces.reading import Table, TraceError, read_table

OPTIONS = ("path", "vc")


def read(options: Options, types: Sequence[str]) -> Trace:
    """Read the trace: arrival counts from the earliest job, a job is its run time. Ids are data rows, from 0.

    `vc`: only the jobs of this virtual cluster (column `cluster`).
    """
    table = read_table(options.text("path"), ("timestamp", "duration", "num_gpus"))
    table = virtual_cluster(table, "cluster", options)
    arrival = table.moment("timestamp")
    ids = [str(k) for k in table.row]
    seconds, gang = table.number("duration"), table.whole("num_gpus", low=1)
    return from_lengths(ids, arrival - arrival.min(initial=np.inf), seconds, gang, options, types)


def virtual_cluster(table: Table, field: str, options: Options) -> Table:
    """Keep the rows of one virtual cluster if `vc` names one. Raises TraceError if it is not there."""
    if not options.given("vc"):
        return table
    if not table.has(field):
        raise TraceError("trace.vc needs this column", file=table.path, line=1, field=field)
    wanted, names = options.text("vc"), np.array(table.text(field))
    if not np.any(names == wanted):
        there = ", ".join(sorted(set(names.tolist())))
        raise options.fault("vc", f"{wanted!r} is not in {table.path}; it has {there}")
    return table.keep(names == wanted)
