"""Who sits where in the cluster world: which gangs stayed, who owes a restart, and the log of all sittings."""

from typing import Any

import numpy as np

from eiffel.core.jobs import NOWHERE, Bools, Floats, Ints, Rows
from eiffel.core.placement import Gangs
from eiffel.worlds.cluster_run import Sittings


class Seats:
    """The placement now, by row of the trace, and the sittings that are over."""

    def __init__(self, jobs: int, nodes: int) -> None:
        self.jobs, self.nodes = jobs, nodes
        self.held = NOWHERE
        self.debt: Floats = np.zeros(0)  # (gangs of held,) s of restart still to sit out
        self.since: Floats = np.zeros(0)  # (P of held,) s, since when each part sits there
        self.log: list[tuple[Any, ...]] = []

    def settle(
        self, new: Rows, crew: Gangs, now: float, restart: float, preemptions: Ints
    ) -> tuple[Floats, Ints]:
        """Take over a placement. Returns per gang (K,) the restart time still to sit out, and whether it moved.

        A gang stays if all its parts were one gang's parts before; then it keeps what is left of its restart.
        Parts that left are logged; jobs that lost all theirs count as preempted (in place).
        """
        moved, debt = np.ones(len(crew.job), np.int64), np.full(len(crew.job), restart)
        since, keep = np.full(len(new), now), np.zeros(len(self.held), bool)
        if len(self.held) and len(new):
            at, same = self._match(new)
            since[same] = self.since[at[same]]
            keep[at[same & (self.held.copy[at] == new.copy)]] = True
            since[same & (self.held.copy[at] != new.copy)] = now
            was = _gang_of(self.held)
            source = np.where(same, was[at], -1)
            low, high = np.minimum.reduceat(source, crew.first), np.maximum.reduceat(source, crew.first)
            stays = (low == high) & (low >= 0) & (np.bincount(was)[low] == crew.parts)
            moved[stays], debt[stays] = 0, self.debt[low[stays]]
        if not keep.all():
            self._sit(~keep, np.full(self.jobs, now))
            stopped = np.zeros(self.jobs, bool)
            stopped[self.held.job] = True
            stopped[new.job] = False
            preemptions[stopped] += 1
        self.held, self.since, self.debt = new, since, debt
        return debt, moved

    def _match(self, new: Rows) -> tuple[Ints, Bools]:
        """For each new part: a row of the old placement, and whether that is the same job, node and count."""
        old = self.held
        key, past = new.job * self.nodes + new.node, old.job * self.nodes + old.node
        order = np.argsort(past)
        at = order[np.minimum(np.searchsorted(past, key, sorter=order), len(past) - 1)]
        return at, np.asarray((past[at] == key) & (old.count[at] == new.count), bool)

    def leave(self, jobs: Ints, end: Floats) -> None:
        """Remove jobs (rows of the trace) from their seats; end (J,) s says when they left."""
        listed = np.zeros(self.jobs, bool)
        listed[jobs] = True
        gone = listed[self.held.job]
        self._sit(gone, end)
        self.debt = self.debt[np.unique(_gang_of(self.held)[~gone])]
        self.held, self.since = self.held.where(~gone), self.since[~gone]

    def _sit(self, gone: Bools, end: Floats) -> None:
        if gone.any():
            h = self.held.where(gone)
            self.log.append((h.job, h.node, h.count, h.copy, self.since[gone], end[h.job]))

    def sittings(self) -> Sittings:
        """All sittings that are over."""
        columns = [np.concatenate(c) for c in zip(*self.log, strict=True)] if self.log else [np.zeros(0)] * 6
        job, node, count, copy = (c.astype(np.int64) for c in columns[:4])
        return Sittings(job, node, count, copy, columns[4], columns[5])


def _gang_of(rows: Rows) -> Ints:
    """(P,) number of the gang that each placement row belongs to."""
    new = np.zeros(len(rows), np.int64)
    new[1:] = (np.diff(rows.job) != 0) | (np.diff(rows.copy) != 0)
    return np.cumsum(new)
