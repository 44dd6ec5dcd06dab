"""Gangs onto nodes: whole gangs on one node where possible, least fragmentation, no needless moves.

A gang that lies on one node runs at `rate`; one that is spread over nodes, or over device types, runs at the
smallest `spread` rate of the types it touches (a synchronous barrier waits for the slowest).
"""

from dataclasses import dataclass

import numpy as np

from eiffel.core.jobs import NOWHERE, Bools, Floats, Ints, Nodes, Rows

FAR = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Gangs:
    """The gangs of a placement: K of them, one per (job, copy)."""

    job: Ints  # (K,) row of the job
    first: Ints  # (K,) its first placement row
    parts: Ints  # (K,) on how many nodes it lies
    speed: Floats  # (K,) steps/s


def gangs(rows: Rows, rate: Floats, spread: Floats, nodes: Nodes) -> Gangs:
    """Split placement rows into gangs and give the speed of each. rate, spread: (J, R) steps/s."""
    if not len(rows):
        none = np.zeros(0, np.int64)
        return Gangs(none, none, none, np.zeros(0))
    new = np.ones(len(rows), bool)
    new[1:] = (np.diff(rows.job) != 0) | (np.diff(rows.copy) != 0)
    first = np.flatnonzero(new)
    parts = np.diff(np.append(first, len(rows)))
    kind = nodes.type[rows.node]
    alone = np.repeat(parts == 1, parts)
    pace = np.where(alone, rate[rows.job, kind], spread[rows.job, kind])
    return Gangs(rows.job[first], first, parts, np.minimum.reduceat(pace, first))


def best_fit(free: Ints, gang: int) -> int:
    """Return the node with the least room that still holds the gang, -1 if none does. free: (H,)."""
    fits = free >= gang
    return int(np.where(fits, free, FAR).argmin()) if fits.any() else -1


def scatter(free: Ints, gang: int) -> tuple[Ints, Ints]:
    """Lay a gang over the emptiest nodes, its last part by best fit: (nodes, counts). Needs sum(free) >= gang."""
    order = np.argsort(-free, kind="stable")
    before = np.cumsum(free[order])
    full = int(np.searchsorted(before, gang))  # nodes taken whole; the next one gives the rest
    chosen, left = list(order[:full]), gang - int(before[full - 1]) if full else gang
    rest = free.copy()
    rest[chosen] = 0
    last = best_fit(rest, left)
    counts = np.append(free[order[:full]], left)
    return np.append(order[:full], last), counts


def place(counts: Ints, held: Rows, nodes: Nodes, free: Ints) -> Rows:
    """Lay jobs on nodes. counts (J, R): how many GPUs of each type a job gets; free (H,): GPUs in service.

    Type by type, larger gangs first. A job that already holds the right number of GPUs of a type stays, unless
    a larger gang needs its node: then the gang goes where the fewest GPUs are displaced, ties to the node with
    the least room. With powers of two every gang that fits a node ends on one node. Raises ValueError if a
    type is asked for more than it has.
    """
    asked, offered = counts.sum(axis=0), nodes.capacity(free)
    if np.any(asked > offered):
        r = int(np.argmax(asked > offered))
        raise ValueError(
            f"{asked[r]} GPUs of {nodes.types[r]!r} are to be placed, {offered[r]} are in service"
        )
    stay = _staying(counts, held, nodes, free)
    kept = held.where(stay)
    rows = [kept]
    kept_gpus = np.zeros_like(counts)
    np.add.at(kept_gpus, (kept.job, nodes.type[kept.node]), kept.count)
    fresh = (counts > 0) & (kept_gpus == 0)
    for r in np.flatnonzero(fresh.any(axis=0)).tolist():
        mine = np.flatnonzero(nodes.type == r)
        gone, moved = _lay(np.flatnonzero(fresh[:, r]), counts[:, r], kept, nodes.type, mine, free[mine])
        if gone:
            rows[0] = rows[0].where(~(np.isin(rows[0].job, gone) & (nodes.type[rows[0].node] == r)))
        rows.append(moved)
    columns = [np.concatenate([getattr(part, name) for part in rows]) for name in ("job", "node", "count")]
    return Rows.of(*columns) if len(columns[0]) else NOWHERE


def _staying(counts: Ints, held: Rows, nodes: Nodes, free: Ints) -> Bools:
    """(P,) rows that stay: same GPUs of that type, on nodes in service, not spread where one node would do."""
    if not len(held):
        return np.zeros(0, bool)
    kind = nodes.type[held.node]
    have, parts = np.zeros_like(counts), np.zeros_like(counts)
    np.add.at(have, (held.job, kind), held.count)
    np.add.at(parts, (held.job, kind), 1)
    scattered = (parts > 1) & (counts <= nodes.largest())
    stay = (have == counts)[held.job, kind] & ~scattered[held.job, kind] & (held.copy == 0)
    crowded = np.bincount(held.node[stay], weights=held.count[stay], minlength=len(free)) > free
    lost = np.unique(held.job[stay & crowded[held.node]])
    return np.asarray(stay & ~np.isin(held.job, lost) if len(lost) else stay, bool)


@dataclass(slots=True)
class _Floor:
    """The nodes of one type while gangs are laid: room for larger gangs, room for anybody, who sits where."""

    hard: Ints  # (n,) free if every smaller job that stays were displaced
    soft: Ints  # (n,) free as it is
    job: Ints  # (P,) jobs that stay, by row
    at: Ints  # (P,) their node, as an index into this floor
    count: Ints  # (P,)
    alive: Bools  # (P,)


def _lay(jobs: Ints, want: Ints, kept: Rows, kind: Ints, mine: Ints, room: Ints) -> tuple[list[int], Rows]:
    """Lay `jobs` on the nodes `mine`; returns the jobs displaced (their kept rows are void) and the new rows."""
    here = kind[kept.node] == kind[mine[0]]
    floor = _Floor(
        room.copy(), room.copy(), kept.job[here], np.searchsorted(mine, kept.node[here]), kept.count[here],
        np.ones(int(here.sum()), bool),
    )  # fmt: skip
    np.subtract.at(floor.soft, floor.at, floor.count)
    size = want[floor.job]
    waiting: dict[int, list[int]] = {}
    for job in jobs:
        waiting.setdefault(int(want[job]), []).append(int(job))
    gone: list[int] = []
    out: list[tuple[int, int, int]] = []
    sizes = sorted({*waiting, *np.unique(size).tolist()}, reverse=True)
    for gang in sizes:
        sit = floor.alive & (size == gang)
        np.subtract.at(floor.hard, floor.at[sit], floor.count[sit])
        for job in waiting.get(gang, []):
            for node, count in _choose(floor, gang):
                out.append((job, int(mine[node]), count))
                floor.hard[node] -= count
                floor.soft[node] -= count
                for other in _displace(floor, node, size, gang):
                    gone.append(other)
                    waiting.setdefault(int(want[other]), []).append(other)
    return gone, Rows.of(*zip(*out, strict=True)) if out else NOWHERE


def _choose(floor: _Floor, gang: int) -> list[tuple[int, int]]:
    """Where a gang goes: one node if one can hold it, else the nodes that give most room."""
    fits = floor.hard >= gang
    if fits.any():
        cost = np.maximum(gang - floor.soft, 0) * 1_000_000 + floor.hard
        return [(int(np.where(fits, cost, FAR).argmin()), gang)]
    roomy = np.maximum(floor.soft, 0)
    nodes, counts = scatter(roomy if roomy.sum() >= gang else floor.hard, gang)
    return [(int(n), int(c)) for n, c in zip(nodes, counts, strict=True) if c > 0]


def _displace(floor: _Floor, node: int, size: Ints, gang: int) -> list[int]:
    """Displace smaller jobs from an overfull node: one that just makes room, else the largest, again."""
    gone: list[int] = []
    while floor.soft[node] < 0:
        here = np.flatnonzero(floor.alive & (floor.at == node) & (size < gang))
        enough = here[floor.count[here] >= -floor.soft[node]]
        pick = enough[floor.count[enough].argmin()] if len(enough) else here[floor.count[here].argmax()]
        job = int(floor.job[pick])
        parts = np.flatnonzero(floor.alive & (floor.job == job))
        floor.alive[parts] = False
        np.add.at(floor.soft, floor.at[parts], floor.count[parts])
        gone.append(job)
    return gone
