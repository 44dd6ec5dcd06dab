"""Prices for device time: market clearing, exponential prices, budgets by dual ascent.

Agents (jobs, or devices of a federation) buy device time. J agents, R device classes; `value` (J, R) is what
one GPU of class r is worth to agent j, `gang` (J,) how many it takes at once, `capacity` (R,) how many there
are. Prices are dual variables in the unit of `value`. `level` and `serve`, the max-min side, live in
`core.level` and are exported here too.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from eiffel.core.level import Level, Served, level, serve

__all__ = [
    "Clearing", "Level", "Served", "alpha", "ascend", "clear", "exponential", "fill", "level", "purchase", "serve",
]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Number = TypeVar("Number", float, Floats)


def ascend(price: Number, used: Number, budget: Number, step: float = 0.1) -> Number:
    """Return max(0, price + step * (used / budget - 1)): one step of dual ascent on a budget.

    The price rises while more than the budget is used and decays to 0 while less is. `budget` > 0; an infinite
    budget costs nothing. Raises ValueError for a budget <= 0 or NaN.
    """
    if not np.all(np.asarray(budget) > 0):
        raise ValueError(f"budget is {budget}; it must be > 0 (inf: no limit)")
    moved = np.maximum(0.0, np.asarray(price) + step * (np.asarray(used) / np.asarray(budget) - 1.0))
    return moved if isinstance(moved, np.ndarray) and moved.ndim else float(moved)  # type: ignore[return-value]


def exponential(used: Floats, capacity: Floats, low: Floats, high: Floats) -> Floats:
    """Price per GPU when `used` of `capacity` are taken: low (high/low)^(used/capacity).

    Equal to `low` when empty and `high` when full. Our reconstruction of Hadar's price function (Sultana et
    al., IPDPS 2024; the form is that of OASiS, Bao et al., INFOCOM 2018).
    """
    return np.asarray(low * (high / low) ** (used / capacity), float)


def purchase(used: Floats, take: Floats, capacity: Floats, low: Floats, high: Floats) -> Floats:
    """What `take` GPUs cost when bought one after another at rising exponential prices (a geometric sum)."""
    growth = (high / low) ** (1.0 / capacity)
    first = exponential(used, capacity, low, high)
    flat = np.isclose(growth, 1.0, rtol=1e-12, atol=0.0)
    ratio = np.where(flat, take, (growth**take - 1.0) / np.where(flat, 1.0, growth - 1.0))
    return np.asarray(first * ratio, float)


def alpha(capacity: Floats, low: Floats, high: Floats, gang: int = 1) -> float:
    """Half of the competitive factor of exponential prices: welfare >= OPT / (2 alpha).

    alpha = max(1, max_r c_r (q_r - 1) q_r^(gang - 1)), q_r = (high_r / low_r)^(1 / c_r), `gang` the largest one;
    for gangs of 1 it tends to the textbook ln(high / low) as capacities grow. It holds, in any order of jobs, if
    every value per GPU is <= high and sum_r c_r low_r q_r^(gang - 1) <= OPT / 2. Proof in docs/cluster-maths.md.
    """
    size = np.asarray(capacity, float)
    growth = (np.asarray(high, float) / np.asarray(low, float)) ** (1.0 / size)
    return float(max(1.0, np.max(size * (growth - 1.0) * growth ** (gang - 1))))


def fill(score: Floats, gang: Ints, room: Ints, order: Ints) -> tuple[Ints, Ints]:
    """Serve agents one after another in `order`: each takes its best class that still has room, or nothing.

    `score` (J, R), -inf where an agent may not go. Returns the class of every agent (-1: none) and the room
    left. Same result as the obvious loop, in at most R x (distinct gang sizes) vectorised passes: whenever a
    gang w fails to fit in class r, no later gang >= w fits there either.
    """
    take = np.full(len(gang), -1, np.int64)
    left = np.array(room, np.int64)
    queue, points, size = order, score[order], gang[order]
    while len(queue) and left.any():
        open_ = (points > -np.inf) & (size[:, None] <= left)
        some = open_.any(axis=1)
        if not some.all():
            queue, points, size, open_ = queue[some], points[some], size[some], open_[some]
        if not len(queue):
            break
        best = np.where(open_, points, -np.inf).argmax(axis=1)
        demand = np.zeros(points.shape, np.int64)
        demand[np.arange(len(queue)), best] = size
        full = (np.cumsum(demand, axis=0) > left).any(axis=1)
        stop = int(full.argmax()) if full.any() else len(queue)
        take[queue[:stop]] = best[:stop]
        left = left - demand[:stop].sum(axis=0)
        queue, points, size = queue[stop:], points[stop:], size[stop:]
    return take, left


@dataclass(frozen=True, slots=True)
class Clearing:
    """What `clear` found. `value` <= optimum <= `bound`; the gap is at most one gang per class."""

    price: Floats  # (R,) clearing prices
    take: Ints  # (J,) class of every agent, -1: none. Whole gangs
    room: Ints  # (R,) GPUs left over
    value: float  # what the whole gangs placed are worth together
    bound: float  # dual objective: no placement, not even a fractional one, is worth more
    exact: bool  # False: the coordinate descent stalled and HiGHS found the prices


def clear(
    value: Floats, gang: Ints, capacity: Ints, price: Floats | None = None, sweeps: int = 60
) -> Clearing:
    """Find prices at which the demand for every device class just fits, and the whole gangs that buy.

    Solves max sum_j w_j V_jr x_jr, sum_r x_jr <= 1, sum_j w_j x_jr <= C_r in its dual by exact coordinate
    descent: with the other prices fixed, agent j pays t_j = V_jr - max(0, max_{s != r} V_js - p_s) for class r,
    and p_r is the t at which demand passes C_r. O(R J log J) a sweep; `price` is a warm start. Agents then buy
    in the order of their surplus. The duality gap is checked; if it exceeds one gang per class the prices come
    from HiGHS. Entries of `value` <= 0 or not finite, and classes smaller than the gang, are not for sale.
    """
    worth = np.where((value > 0) & np.isfinite(value) & (gang[:, None] <= capacity), value, -np.inf)
    start = np.zeros(len(capacity)) if price is None else np.array(price, float)
    found = _descend(worth, gang, capacity, start, sweeps)
    result = _buy(worth, gang, capacity, found, True)
    best = np.where(worth > -np.inf, worth, 0.0).max(axis=1, initial=0.0) * gang
    if result.bound - result.value > len(capacity) * best.max(initial=0.0) + 1e-9 * abs(result.bound):
        result = _buy(worth, gang, capacity, _by_highs(worth, gang, capacity), False)
    return result


def _descend(worth: Floats, gang: Ints, capacity: Ints, price: Floats, sweeps: int) -> Floats:
    scale = max(1e-300, float(np.max(worth, initial=0.0)))
    for _ in range(sweeps):
        before = price.copy()
        for r in range(len(price)):
            price[r] = _clearing_price(worth, gang, capacity, price, r)
        if np.max(np.abs(price - before), initial=0.0) <= 1e-6 * scale:
            break
    return price


def _clearing_price(worth: Floats, gang: Ints, capacity: Ints, price: Floats, r: int) -> float:
    other = np.delete(worth - price, r, axis=1).max(axis=1, initial=0.0)
    pays = worth[:, r] - other
    keen = np.flatnonzero(pays > 0)
    keen = keen[np.argsort(-pays[keen])]
    passed = np.searchsorted(np.cumsum(gang[keen]), capacity[r], side="right")
    return float(pays[keen[passed]]) if passed < len(keen) else 0.0


def _buy(worth: Floats, gang: Ints, capacity: Ints, price: Floats, exact: bool) -> Clearing:
    surplus = worth - price
    gain = surplus.max(axis=1, initial=-np.inf)
    tie = 1e-7 * max(1e-300, float(np.max(worth, initial=0.0)))
    surplus = np.where(surplus >= -tie, surplus, -np.inf)
    take, room = fill(surplus, gang, capacity, np.argsort(-gain, kind="stable"))
    placed = np.flatnonzero(take >= 0)
    bought = float((worth[placed, take[placed]] * gang[placed]).sum())
    bound = float(price @ capacity + (np.maximum(gain, 0.0) * gang).sum())
    return Clearing(price, take, room, bought, bound, exact)


def _by_highs(worth: Floats, gang: Ints, capacity: Ints) -> Floats:
    """Clearing prices as the capacity duals of the linear program, solved by HiGHS."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    job, kind = np.nonzero(worth > -np.inf)
    size, column = gang[job].astype(float), np.arange(len(job))
    rows = np.concatenate([job, len(gang) + kind])
    entries = np.concatenate([np.ones(len(job)), size])
    shape = (len(gang) + len(capacity), len(job))
    limits = csr_array((entries, (rows, np.concatenate([column, column]))), shape=shape)
    ends = np.concatenate([np.ones(len(gang)), capacity.astype(float)])
    solved = linprog(-worth[job, kind] * size, A_ub=limits, b_ub=ends, bounds=(0, None), method="highs")
    prices: Floats = np.maximum(0.0, -np.asarray(solved.ineqlin.marginals, float)[len(gang) :])
    return prices
