"""Measures of a cluster run: completion times, queueing, fairness, utilisation.

They take arrays, not a run, so that they serve real clusters too. Times are s, J jobs; NaN: did not happen.
"""

from dataclasses import dataclass, fields

import numpy as np

from eiffel.core.jobs import Bools, Floats, Nodes, Trace


@dataclass(frozen=True, slots=True)
class JobMeasures:
    """Figures of one run. Hours unless the name says otherwise; means over the jobs that ended."""

    jobs: int
    ended: int
    rejected: int
    jct_mean: float
    jct_median: float
    jct_p95: float
    ttd: float  # from the first arrival to the last end (makespan)
    queue_mean: float  # JCT - time running
    first_mean: float  # first start - arrival
    rho_mean: float  # JCT / JCT in an equal isolated part of the cluster
    rho_p95: float
    rho_max: float
    cru: float  # GPU-s held / (GPUs x TTD)
    gru: float  # GPU-s in which steps were done / (GPUs x TTD)
    moves_mean: float  # starts and moves per job
    preemptions_mean: float
    decision_ms_mean: float
    decision_ms_max: float


def measure(
    trace: Trace, nodes: Nodes, *, start: Floats, finish: Floats, ran: Floats, busy: Floats, useful: float,
    moves: Floats, preemptions: Floats, admitted: Bools, decision_s: Floats, fair: Floats | None = None,
) -> JobMeasures:  # fmt: skip
    """Work out the figures. ran (J,) s running, busy (J,) GPU-s held, useful GPU-s in all, decision_s (T,) s.

    fair: (J,) s, JCT in isolation (`isolated_jct`), worked out if not given.
    """
    ended = admitted & np.isfinite(finish)
    if not ended.any():
        nothing = {f.name: float("nan") for f in fields(JobMeasures)[3:]}
        return JobMeasures(len(trace), 0, int((~admitted).sum()), **nothing)
    jct = (finish - trace.arrival)[ended]
    wait = np.maximum(jct - ran[ended], 0.0)
    span = float(finish[ended].max() - trace.arrival[admitted].min())
    alone = (isolated_jct(trace, nodes, admitted) if fair is None else fair)[ended]
    rho = np.where(alone > 0, jct / np.where(alone > 0, alone, 1.0), 1.0)
    area = nodes.total * max(span, 1e-300)
    ms = 1e3 * decision_s
    return JobMeasures(
        jobs=len(trace),
        ended=int(ended.sum()),
        rejected=int((~admitted).sum()),
        jct_mean=float(jct.mean()) / 3600,
        jct_median=float(np.median(jct)) / 3600,
        jct_p95=float(np.quantile(jct, 0.95)) / 3600,
        ttd=span / 3600,
        queue_mean=float(wait.mean()) / 3600,
        first_mean=float((start - trace.arrival)[ended].mean()) / 3600,
        rho_mean=float(rho.mean()),
        rho_p95=float(np.quantile(rho, 0.95)),
        rho_max=float(rho.max()),
        cru=float(busy.sum()) / area,
        gru=useful / area,
        moves_mean=float(moves[ended].mean()),
        preemptions_mean=float(preemptions[ended].mean()),
        decision_ms_mean=float(ms.mean()) if len(ms) else 0.0,
        decision_ms_max=float(ms.max(initial=0.0)),
    )


def isolated_jct(trace: Trace, nodes: Nodes, admitted: Bools | None = None) -> Floats:
    """(J,) completion time of every job if each of the m jobs present always owned 1/m of every device type.

    Fluid: job j runs at its mean rate over the GPUs of the cluster, times min(1, GPUs / (m gang)). The share is
    that of Gavel's isolated policy (Narayanan et al., OSDI 2020).
    """
    here = trace.on(nodes.types)
    capacity = nodes.capacity().astype(float)
    rate = np.where(here.gang[:, None] > nodes.largest(), here.spread, here.rate)
    mean = rate @ capacity / max(capacity.sum(), 1.0)
    joins = (mean > 0) & (np.ones(len(trace), bool) if admitted is None else admitted)
    need = np.where(joins, trace.work / np.where(mean > 0, mean, 1.0), np.inf)  # s at the full mean rate
    cap = capacity.sum() / trace.gang
    out = np.full(len(trace), np.nan)
    rows = np.flatnonzero(joins)
    now, head = 0.0, 0
    active = np.zeros(0, np.int64)
    while head < len(rows) or len(active):
        if not len(active):
            now = max(now, float(trace.arrival[rows[head]]))
        came = head
        while came < len(rows) and trace.arrival[rows[came]] <= now:
            came += 1
        active, head = np.concatenate([active, rows[head:came]]), came
        pace = np.minimum(1.0, cap[active] / len(active))
        left = need[active] / pace
        until = float(trace.arrival[rows[head]]) - now if head < len(rows) else np.inf
        step = min(float(left.min()), until)
        need[active] -= pace * step
        now += step
        ended = left <= step * (1 + 1e-12) + 1e-9
        out[active[ended]] = now - trace.arrival[active[ended]]
        active = active[~ended]
    return out
