"""Policies that are an order: jobs take the best device type that has room, one after another."""

import numpy as np

from eiffel.core.jobs import Floats, Ints, Plan, Refusal, Snapshot
from eiffel.core.market import fill
from eiffel.core.placement import place
from eiffel.core.refusals import verdict


def open_rates(snapshot: Snapshot) -> Floats:
    """(J, R) rates, -inf where a job cannot run: rate 0, or a gang larger than what is in service."""
    fits = (snapshot.rate > 0) & (snapshot.gang[:, None] <= snapshot.capacity)
    return np.where(fits, snapshot.rate, -np.inf)


def kinds_held(snapshot: Snapshot) -> Ints:
    """(J, R) GPUs that each job holds of each type."""
    have = np.zeros((len(snapshot), len(snapshot.nodes.types)), np.int64)
    np.add.at(have, (snapshot.held.job, snapshot.nodes.type[snapshot.held.node]), snapshot.held.count)
    return have


def as_counts(take: Ints, gang: Ints, kinds: int) -> Ints:
    """(J, R) GPUs of each type from the type that each job takes (-1: none)."""
    counts = np.zeros((len(gang), kinds), np.int64)
    placed = np.flatnonzero(take >= 0)
    counts[placed, take[placed]] = gang[placed]
    return counts


def in_order(snapshot: Snapshot, order: Ints, score: Floats, until: float = 0.0) -> Plan:
    """Plan: in this order each job takes the type it scores highest among those with room; then nodes.

    score (J, R), -inf: not there. Jobs that do not fit are passed over. If nobody is left waiting the plan
    holds until something happens.
    """
    take, _ = fill(score, snapshot.gang, snapshot.capacity, order)
    counts = as_counts(take, snapshot.gang, score.shape[1])
    rows = place(counts, snapshot.held, snapshot.nodes, snapshot.free)
    content = bool((take == np.where(np.isfinite(score), score, -np.inf).argmax(axis=1)).all())
    return verdict(snapshot, rows, code=Refusal.NO_ROOM, until=np.inf if content else until)
