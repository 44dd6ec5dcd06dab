"""SenseTime's Helios logs, cluster_log.csv: job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,...

Hu et al., "Characterization and prediction of deep learning workloads in large-scale GPU datacenters",
SC 2021.
"""

from collections.abc import Sequence

import numpy as np

from eiffel.core.jobs import Trace
from eiffel.worlds.traces.lengths import from_lengths
from eiffel.worlds.traces.options import Options
from eiffel.worlds.traces.philly import virtual_cluster
from eiffel.worlds.traces.reading import read_table

OPTIONS = ("path", "vc", "states")
NEED = ("job_id", "vc", "gpu_num", "state", "submit_time", "duration")


def read(options: Options, types: Sequence[str]) -> Trace:
    """Read the GPU jobs: arrival counts from the earliest of them. CPU jobs (gpu_num 0) are left out.

    `states`: only jobs that ended so (COMPLETED, CANCELLED, FAILED, TIMEOUT, NODE_FAIL); all if not given.
    """
    table = virtual_cluster(read_table(options.text("path"), NEED), "vc", options)
    states = options.names("states")
    if states:
        table = table.keep(np.isin(np.array(table.text("state")), states))
    table = table.keep(table.whole("gpu_num") > 0)
    arrival, seconds = table.moment("submit_time"), table.number("duration")
    ids = table.unique("job_id")
    gang = table.whole("gpu_num", low=1)
    return from_lengths(ids, arrival - arrival.min(initial=np.inf), seconds, gang, options, types)
