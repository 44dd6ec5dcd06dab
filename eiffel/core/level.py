"""The lowest level at which everybody can be served: max-min, makespan and finish-time fairness in one routine.

Job j must reach the rate b_j(theta) = a_j / (c_j theta - d_j) steps/s; the smallest theta for which all fit on
the devices is
  makespan               a = remaining steps, c = 1, d = 0:              theta = T (s)
  max-min fairness       a = the rate that is fair,  c = 1, d = 0:       1/theta = the least normalised rate
  finish-time fairness   a = remaining steps, c = fair finish (s), d = elapsed (s):  theta = the largest rho
The objectives are Gavel's (Narayanan et al., OSDI 2020); the way of solving is ours. Jobs that are alike are
merged into classes, and per class only prices are searched: at prices p a job reaches rate b at least cost on
the lower envelope of the points (0, 0) and (X_jr, w_j p_r), in closed form. Column generation with an R x R basis
finds the prices; theta rises by Newton steps on the infeasibility certificates, so it is exact, not bisected.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Served:
    """How rates can be served: `load` <= 1 means they fit."""

    share: Floats  # (J, R) time shares, sum over r <= 1
    load: float  # the largest share of a device class that is used
    bound: float  # no way of serving has a smaller load
    price: (
        Floats  # (R,) per GPU; price @ capacity = 1. With bound > 1: the certificate that it cannot be done
    )


@dataclass(frozen=True, slots=True)
class Level:
    """The lowest level, who gets which share of time, and what limits it."""

    theta: float  # NaN when there is nobody to serve
    share: Floats  # (J, R)
    price: Floats  # (R,) of device time; 0: that class does not limit anybody
    left_out: NDArray[np.bool_]  # (J,) jobs with rate 0 everywhere, not part of the program


@dataclass(frozen=True, slots=True)
class _Menu:
    """At a fixed theta: the mixing weight of every pair (lower point, upper point) for each of n classes."""

    mix: (
        Floats  # (n, R+1, R) share of time on the upper type; NaN-free, `bar` marks pairs that do not serve b
    )
    bar: Floats  # (n, R+1, R) 0, or inf where the pair cannot reach b
    rate: Floats  # (n, R)
    need: Floats  # (n,) GPUs of the whole class: gang x members
    capacity: Floats  # (R,)


def serve(rate: Floats, gang: Ints, capacity: Floats, demand: Floats, tolerance: float = 1e-9) -> Served:
    """Serve every job its `demand` (J,) steps/s with the least load, or show by prices that it cannot be done.

    Raises ValueError if a job's demand exceeds its best rate, naming the row.
    """
    top = rate.max(axis=1, initial=0.0)
    if np.any(demand > top * (1 + 1e-9)):
        row = int(np.argmax(demand > top * (1 + 1e-9)))
        raise ValueError(f"job {row} is to get {demand[row]} steps/s, more than its best rate {top[row]}")
    live = capacity > 0
    menu = _menu(rate[:, live], gang.astype(float), capacity[live].astype(float), np.minimum(demand, top))
    share, load, bound, price = _least_load(menu, [np.ones(live.sum())], tolerance, stop_above=np.inf)[:4]
    return Served(_widen(share, live), load, bound, _widen(price / capacity[live], live))


def level(
    rate: Floats, gang: Ints, capacity: Floats, a: Floats, c: Floats | None = None, d: Floats | None = None,
    price: Floats | None = None,
) -> Level:  # fmt: skip
    """Find the smallest theta at which every job j can have a_j / (c_j theta - d_j) steps/s.

    rate (J, R) steps/s, gang (J,), capacity (R,) GPUs, a (J,) >= 0, c (J,) > 0, d (J,) >= 0. Jobs whose rate
    is 0 on every class are left out and marked. price (R,): prices of a like program, from which the search
    starts. Relative accuracy of theta 1e-8.
    """
    jobs = len(gang)
    c = np.ones(jobs) if c is None else c
    d = np.zeros(jobs) if d is None else d
    live = np.asarray(capacity) > 0
    left_out = rate[:, live].max(axis=1, initial=0.0) <= 0
    inside = np.flatnonzero(~left_out & (a > 0))
    if not len(inside):
        return Level(float("nan"), np.zeros(rate.shape), np.zeros(len(capacity)), left_out)
    table = np.column_stack([rate[inside][:, live], gang[inside], a[inside], c[inside], d[inside]])
    kinds, member, count = _merge(table)
    reach = kinds[:, : live.sum()]
    offered = np.asarray(capacity, float)[live]
    warm = np.ones(len(offered)) if price is None or price[live].sum() <= 0 else price[live] * offered
    theta, share, price = _rise(reach, kinds[:, -4] * count, offered, kinds[:, -3:], warm)
    wide = np.zeros(rate.shape)
    wide[inside] = _widen(share, live)[member]
    return Level(theta, wide, _widen(price, live), left_out)


def _merge(table: Floats) -> tuple[Floats, Ints, Floats]:
    """Rows that are equal become one: (classes, class of every row, members)."""
    packed = np.ascontiguousarray(table).view(np.dtype((np.void, table.shape[1] * 8))).ravel()
    _, first, member, count = np.unique(packed, return_index=True, return_inverse=True, return_counts=True)
    return table[first], member.astype(np.int64), count.astype(float)


def _widen(narrow: Floats, live: NDArray[np.bool_]) -> Floats:
    wide = np.zeros((*narrow.shape[:-1], len(live)))
    wide[..., live] = narrow
    return wide


def _menu(rate: Floats, need: Floats, capacity: Floats, b: Floats) -> _Menu:
    low = np.concatenate([np.zeros((len(rate), 1)), rate], axis=1)[:, :, None]
    high = rate[:, None, :]
    b_ = b[:, None, None]
    fits = (low < b_) & (b_ <= high)
    mix = np.where(fits, (b_ - low) / np.where(high > low, high - low, 1.0), 0.0)
    bar = np.where(fits, 0.0, np.inf)
    bar[b <= 0, 0, :] = 0.0  # nothing to serve: the null point with share 0
    return _Menu(mix, bar, rate, need, capacity)


def _cheapest(menu: _Menu, price: Floats) -> tuple[Floats, Floats, Floats]:
    """Cheapest way to serve at `price` (R,) of a whole class: (pair (n,), cost per device (n,), load (R,))."""
    start = np.concatenate([[0.0], price])[:, None]
    cost = start + menu.mix * (price[None, :] - start)
    cost += menu.bar
    n, kinds = menu.rate.shape
    flat = cost.reshape(n, -1)
    pair = flat.argmin(axis=1)
    row = np.arange(n)
    upper, lower = pair % kinds, pair // kinds
    part = menu.mix.reshape(n, -1)[row, pair]
    load = np.bincount(upper, weights=part * menu.need, minlength=kinds)
    load += np.bincount(lower, weights=(1 - part) * menu.need, minlength=kinds + 1)[1:]
    return pair, flat[row, pair], load / menu.capacity


def _envelope(menu: _Menu, price: Floats) -> tuple[Floats, Floats]:
    """Least cost per device (n,) of the demand, and what the last step/s of it costs (left derivative).

    At a corner of the envelope several chords meet; left of it the steepest of them is the envelope.
    """
    points = np.concatenate([np.zeros((len(menu.rate), 1)), menu.rate], axis=1)[:, :, None]
    rise = price[None, :] - np.concatenate([[0.0], price])[:, None]
    cost = (np.concatenate([[0.0], price])[:, None] + menu.mix * rise + menu.bar).reshape(len(menu.rate), -1)
    least = cost.min(axis=1)
    run = menu.rate[:, None, :] - points
    slope = (rise / np.where(run > 0, run, 1.0)).reshape(cost.shape)
    tied = cost <= least[:, None] + 1e-12 * (np.abs(least[:, None]) + price.max())
    return least, np.where(tied, slope, 0.0).max(axis=1)


def _shares(menu: _Menu, pair: Ints) -> Floats:
    n, kinds = menu.rate.shape
    row = np.arange(n)
    part = menu.mix.reshape(n, -1)[row, pair]
    share = np.zeros((n, kinds + 1))
    share[row, pair // kinds] += 1 - part
    share[row, pair % kinds + 1] += part
    return share[:, 1:]


def _least_load(
    menu: _Menu, seeds: list[Floats], tolerance: float, stop_above: float
) -> tuple[Floats, float, float, Floats, list[Floats]]:
    """Column generation for min over ways to serve of the largest load.

    The restricted program max sum z, sum_k z_k load_k <= 1 has R rows; its basis starts from the slacks and its
    duals q are the prices (per whole class, so that load is in units of capacity). Stops when the bound meets
    the load, or as soon as the bound is surely above `stop_above` (most of the gap is closed).
    Returns (share, load, bound, price summing to 1, the prices that made the basis).
    """
    kinds = len(menu.capacity)
    basis, gain = np.eye(kinds), np.zeros(kinds)
    made: list[tuple[Floats, Floats] | None] = [None] * kinds  # (pair, price) of every basis column
    queue = list(seeds)
    bound, best = 0.0, np.ones(kinds) / kinds
    price = best
    for _ in range(400):
        inverse: Floats = np.asarray(np.linalg.inv(basis), float)
        q = gain @ inverse
        if queue:
            price = queue.pop()
        elif q.min() < -1e-12:  # a slack wants in
            r = int(q.argmin())
            _pivot(basis, gain, made, inverse, np.eye(kinds)[r], 0.0, None)
            continue
        else:
            price = np.maximum(q, 0.0)
        price = price / price.sum()
        pair, _, load = _cheapest(menu, price / menu.capacity)
        value = float(price @ load)
        if value > bound:
            bound, best = value, price
        ceiling = 1.0 / q.sum() if q.sum() > 0 and q.min() >= -1e-12 else np.inf
        if not queue and ceiling < np.inf and _settled(bound, ceiling, stop_above, tolerance):
            break
        if q @ load < 1 - 1e-14:
            _pivot(basis, gain, made, inverse, load, 1.0, (pair, price))
    z = np.linalg.inv(basis).sum(axis=1) * gain
    share = np.zeros(menu.rate.shape)
    for weight, column in zip(z / max(z.sum(), 1e-300), made, strict=True):
        if column is not None and weight > 0:
            share += weight * _shares(menu, column[0].astype(np.int64))
    load_now = float((menu.need @ share / menu.capacity).max())
    return share, load_now, bound, best, [column[1] for column in made if column is not None]


def _settled(bound: float, ceiling: float, stop_above: float, tolerance: float) -> bool:
    """At the optimum; or surely above the limit, and near enough to the optimum for a good Newton step."""
    above = bound > stop_above and bound - stop_above > 0.5 * (ceiling - stop_above)
    return above or ceiling - bound <= tolerance * ceiling


def _pivot(
    basis: Floats, gain: Floats, made: list[tuple[Floats, Floats] | None],
    inverse: Floats, column: Floats, worth: float, source: tuple[Floats, Floats] | None,
) -> None:  # fmt: skip
    """Bring a column into the basis by the ratio test (in place)."""
    step, now = inverse @ column, inverse.sum(axis=1)
    ratio = np.where(step > 1e-12, np.maximum(now, 0.0) / np.where(step > 1e-12, step, 1.0), np.inf)
    out = int(ratio.argmin())
    basis[:, out], gain[out], made[out] = column, worth, source


def _rise(
    rate: Floats, need: Floats, capacity: Floats, acd: Floats, warm: Floats
) -> tuple[float, Floats, Floats]:
    """Raise theta from below until everybody can be served. Returns (theta, share (n, R), price (R,) per GPU)."""
    a, c, d = acd.T
    top = rate.max(axis=1)
    theta = float(((a / top + d) / c).max())
    seeds = [np.ones(len(capacity)), warm]
    theta = _newton(rate, need, capacity, acd, theta, warm / warm.sum() / capacity)
    for _ in range(100):
        menu = _menu(rate, need, capacity, np.minimum(a / np.maximum(c * theta - d, 1e-300), top))
        share, load, bound, price, seeds = _least_load(menu, seeds, 1e-9, stop_above=1.0)
        if load <= 1 + 1e-8 or bound <= 1 + 1e-10:
            break
        theta = _newton(rate, need, capacity, acd, theta, price / capacity)
        seeds = [*seeds, price]
    scarce = price if bound > 1 - 1e-6 else np.zeros(len(price))
    return theta, share / max(load, 1.0), scarce / capacity


def _newton(rate: Floats, need: Floats, capacity: Floats, acd: Floats, theta: float, price: Floats) -> float:
    """Raise theta to where serving at these prices costs what all devices cost; convex, so it never overshoots."""
    a, c, d = acd.T
    top = rate.max(axis=1)
    budget = float(price @ capacity)
    for _ in range(30):
        span = np.maximum(c * theta - d, 1e-300)
        b = np.minimum(a / span, top)
        menu = _menu(rate, need, capacity, b)
        cost, slope = _envelope(menu, price)
        over = float(cost @ need) - budget
        if over <= 1e-12 * budget:
            break
        theta += over / float((need * slope * a * c / span**2).sum())
    return theta
