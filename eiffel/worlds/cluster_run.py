"""What a run of the cluster world leaves behind: per job, per decision, and who sat where when."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eiffel.core.jobs import Bools, Floats, Ints, Nodes, Refusal, Trace
from eiffel.core.refusals import words


@dataclass(frozen=True, slots=True)
class Sittings:
    """Who sat where when (the bars of a Gantt chart): L stretches of one gang part on one node."""

    job: Ints  # (L,) row of the trace
    node: Ints  # (L,)
    count: Ints  # (L,) GPUs
    copy: Ints  # (L,) 0, or the copy of a forked job
    start: Floats  # (L,) s
    end: Floats  # (L,) s


@dataclass(frozen=True, slots=True)
class Timeline:
    """One row per decision, T in all; each holds until the next."""

    time: Floats  # (T,) s
    seconds: Floats  # (T,) s until the next decision
    running: Ints  # (T,) jobs
    waiting: Ints  # (T,) jobs
    busy: Floats  # (T, R) GPU-s held in this stretch, restarts included
    useful: Floats  # (T, R) GPU-s of it in which steps were done
    service: Ints  # (T, R) GPUs in service
    decision: Floats  # (T,) s that the decision took


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """The result of `simulate`. Times are s since the start of the trace; NaN: it never happened."""

    policy: str
    trace: Trace  # with the rates that were true
    nodes: Nodes
    slot_s: float
    restart_s: float
    start: Floats  # (J,) first start
    finish: Floats  # (J,)
    ran: Floats  # (J,) s of useful running
    busy: Floats  # (J,) GPU-s held
    done: Floats  # (J,) steps done, those lost to node failures included
    lost: Floats  # (J,) steps lost to node failures and done again
    moves: Ints  # (J,) starts and moves that cost a restart
    preemptions: Ints  # (J,) times it was stopped before its end
    refused: Ints  # (J,) Refusal at admission, NONE if admitted
    waited: Floats  # (J, len(Refusal)) s waited for each reason
    last: "LastRefusal"
    timeline: Timeline
    sittings: Sittings
    complete: bool  # every admitted job ended

    @property
    def admitted(self) -> Bools:
        """(J,) jobs that were let in."""
        return np.asarray(self.refused == Refusal.NONE)

    def rejections(self) -> Iterator[tuple[str, str]]:
        """Yield (job id, why) of every job refused at admission."""
        for j in np.flatnonzero(~self.admitted):
            yield self.trace.id[j], self._admission(int(j))

    def _admission(self, j: int) -> str:
        gang, best = int(self.trace.gang[j]), int(self.nodes.capacity().max(initial=0))
        if self.refused[j] == Refusal.UNRUNNABLE:
            return "unrunnable: its rate is 0 on every device type of this cluster"
        if gang > self.nodes.total:
            return f"needs {gang} > total {self.nodes.total}"
        return f"needs {gang} > {best}, the most of any one type; a policy that mixes types (hadar) could place it"

    def explain(self, job: str) -> str:
        """Say in words what became of a job and why it waited. Raises ValueError for an unknown id."""
        if job not in self.trace.id:
            raise ValueError(f"no job {job!r} in this run of {len(self.trace)} jobs")
        j = self.trace.id.index(job)
        if not self.admitted[j]:
            return f"job {job}: refused at admission: {self._admission(j)}"
        lines = [
            f"job {job} ({self.trace.model[j]}, {self.trace.gang[j]} GPUs): arrived {self.trace.arrival[j]:.0f} s, "
            f"first ran {self.start[j]:.0f} s, ended {self.finish[j]:.0f} s; "
            f"{self.moves[j]} starts and moves, {self.preemptions[j]} preemptions"
        ]
        for code in np.flatnonzero(self.waited[j] > 0):
            lines.append(f"  waited {self.waited[j, code]:.0f} s: {Refusal(int(code)).name.lower()}")
        if self.last.why[j] != Refusal.NONE:
            lines.append(f"  last time at {self.last.time[j]:.0f} s: {self.last.words(self, j)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class LastRefusal:
    """The latest refusal of every job."""

    time: Floats  # (J,) s
    why: Ints  # (J,) Refusal
    limit: Ints  # (J,) device type
    price: Floats  # (J,)
    value: Floats  # (J,)
    free: Ints  # (J,) GPUs of that type that were free

    def words(self, run: ClusterRun, j: int) -> str:
        """The latest refusal of job j as a sentence."""
        kind = int(self.limit[j])
        return words(
            int(self.why[j]), type_=run.nodes.types[kind] if kind >= 0 else "?", gang=int(run.trace.gang[j]),
            free=int(self.free[j]), price=float(self.price[j]), value=float(self.value[j]),
        )  # fmt: skip
