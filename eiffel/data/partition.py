"""Who holds which sample. Every rule returns (M,) the client of each row, -1 for a row that nobody holds.

So a deal is disjoint by construction. Rules are vectorised, seeded by the generator they are given, and
say at once what is impossible and by how much. `least` is the fewest samples a client may hold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eiffel.data.federated import DataError, Ints

MAX_DRAWS = 1000
"""Dirichlet draws tried before giving up on `least`; fewer where a draw is large (see `_draws`)."""


def iid(samples: int, clients: int, least: int, rng: np.random.Generator) -> Ints:
    """Deal shuffled rows evenly: sizes differ by at most one."""
    enough(samples, clients, least)
    return _deal(rng.permutation(samples), _even(samples, clients), samples)


def quantity(samples: int, clients: int, sigma: float, least: int, rng: np.random.Generator) -> Ints:
    """Unequal sizes, equal mixture: beyond `least` each, shares in proportion to lognormal(0, sigma)."""
    enough(samples, clients, least)
    if sigma < 0:
        raise DataError(f"sigma is {sigma}; it must be 0 or more")
    sizes = (
        least + _shares(rng.lognormal(0.0, sigma, clients)[None], np.array([samples - clients * least]))[0]
    )
    return _deal(rng.permutation(samples), sizes, samples)


def dirichlet(y: Ints, clients: int, alpha: float, least: int, rng: np.random.Generator) -> Ints:
    """Share each class over the clients in proportions drawn from a symmetric Dirichlet(alpha).

    Small alpha: few clients hold most of a class. Redrawn until every client holds `least` samples, at
    most MAX_DRAWS times. Only the (classes, clients) table of counts is drawn again, so a draw is cheap.
    (Hsu, Qi, Brown 2019, "Measuring the effects of non-identical data distribution"; class by class, as in
    Li, Diao, Chen, He 2022, "Federated learning on non-IID data silos".)
    """
    _one_label(y, "dirichlet")
    enough(len(y), clients, least)
    if not alpha > 0 or not np.isfinite(alpha):
        raise DataError(f"alpha is {alpha}; it must be a positive number (small: uneven, large: like iid)")
    found, totals = np.unique(y, return_counts=True)
    best, draws = -1, _draws(found.size * clients)
    for _ in range(draws):
        counts = _shares(rng.dirichlet(np.full(clients, alpha), found.size), totals)
        best = max(best, fewest := int(counts.sum(0).min()))
        if fewest >= least:
            return _deal(by_class(y, rng), counts.ravel(), len(y), clients)
    raise DataError(
        f"Dirichlet({alpha:g}) over {clients} clients: in {draws} draws the smallest client never had more "
        f"than {best} of the {least} samples asked for; lower min_samples"
        f"{f' to {best}' if best >= 2 else ''}, raise alpha, or take fewer clients"
    )


def shards(y: Ints, clients: int, each: int, least: int, rng: np.random.Generator) -> Ints:
    """Sort by class, cut into clients x each shards (sizes differ by at most one), give each client `each`.

    (McMahan et al. 2017, "Communication-efficient learning of deep networks from decentralized data": the
    pathological split, with each = 2.)
    """
    _one_label(y, "shards")
    if each < 1:
        raise DataError(f"shards is {each}; every client needs at least 1")
    total = clients * each
    if total > len(y):
        raise DataError(
            f"{clients} clients x {each} shards = {total} shards, but there are only {len(y)} samples "
            f"({total - len(y)} too few)"
        )
    enough(len(y), clients, least)
    sizes = _even(len(y), total)
    if (fewest := int(sizes.min()) * each) < least:
        raise DataError(
            f"shards hold {sizes.min()} samples, so a client may get only {fewest} of the {least} asked for; "
            "lower min_samples or clients"
        )
    owner = rng.permutation(total) % clients
    rows = np.empty(len(y), np.int64)
    rows[by_class(y, rng)] = np.repeat(owner, sizes)
    return rows


def class_sets(
    y: Ints, sets: Sequence[Sequence[int]], clients: int, least: int, rng: np.random.Generator
) -> Ints:
    """Client i holds the classes of sets[i mod S]; those who name a class share it evenly.

    Rows of a class that nobody names are left out.

    With sets [[0], [2], [6]] and 3 clients of Fashion-MNIST this is the split of Mohri, Sivek, Suresh 2019,
    "Agnostic federated learning": T-shirt, pullover, shirt.
    """
    _one_label(y, "classes")
    if clients < len(sets):
        raise DataError(
            f"{len(sets)} class sets for {clients} clients: {len(sets) - clients} sets would have no client"
        )
    owner = np.full(len(y), -1, np.int64)
    for label in sorted({label for one in sets for label in one}):
        rows = rng.permutation(np.flatnonzero(y == label))
        holders = np.array([i for i in range(clients) if label in sets[i % len(sets)]])
        if rows.size < holders.size:
            raise DataError(
                f"class {label} has {rows.size} samples for {holders.size} clients "
                f"({holders.size - rows.size} too few)"
            )
        owner[rows] = np.repeat(holders, _even(rows.size, holders.size))
    if (fewest := int(np.bincount(owner[owner >= 0], minlength=clients).min())) < least:
        raise DataError(
            f"the smallest client would have {fewest} of the {least} samples asked for; "
            "lower min_samples or clients"
        )
    return owner


def natural(
    owner: Ints, keys: Sequence[str], clients: int | None, least: int, rng: np.random.Generator
) -> tuple[Ints, tuple[str, ...]]:
    """Keep the source's own clients: those with `least` samples, and of these `clients` drawn at random.

    Returns the owner of each row and the names kept, in the source's order.
    """
    sizes = np.bincount(owner[owner >= 0], minlength=len(keys))
    kept = np.flatnonzero(sizes >= least)
    wanted = len(kept) if clients is None else clients
    if wanted > kept.size or not kept.size:
        raise DataError(
            f"{max(wanted, 1)} clients asked for, but the data has {len(keys)} and {kept.size} of them hold "
            f"at least {least} samples ({max(wanted, 1) - kept.size} too few); "
            f"ask for at most {kept.size}{' or lower min_samples' if kept.size < len(keys) else ''}"
        )
    kept = np.sort(rng.choice(kept, wanted, replace=False))
    number = np.full(len(keys) + 1, -1, np.int64)
    number[kept] = np.arange(wanted)
    return number[owner], tuple(keys[i] for i in kept.tolist())


def enough(samples: int, clients: int, least: int) -> None:
    """Refuse a deal for which there are not enough samples.

    Raises
    ------
    DataError
        Naming samples, clients and how many samples are missing.
    """
    if clients < 1:
        raise DataError(f"clients is {clients}; it must be at least 1")
    if short := max(0, clients * least - samples):
        raise DataError(
            f"{clients} clients x at least {least} samples = {clients * least}, "
            f"but there are only {samples} samples ({short} too few); "
            + (f"ask for at most {samples // least} clients or " if samples >= least else "")
            + "lower min_samples, or let devices share parts (datasets.parts=N)"
        )


def by_class(y: Ints, rng: np.random.Generator) -> Ints:
    """(M,) rows sorted by class, shuffled within each class."""
    order = rng.permutation(len(y))
    return order[np.argsort(y[order], kind="stable")]


def _deal(order: Ints, sizes: Ints, samples: int, clients: int | None = None) -> Ints:
    """Give consecutive runs of `order` to clients 0, 1, ... (around again when there are more runs)."""
    owner = np.empty(samples, np.int64)
    owner[order] = np.repeat(np.arange(sizes.size) % (clients or sizes.size), sizes)
    return owner


def _even(total: int, parts: int) -> Ints:
    """`parts` sizes that sum to `total` and differ by at most one."""
    return np.diff(np.arange(parts + 1) * total // parts)


def _shares(weights: NDArray[np.float64], totals: Ints) -> Ints:
    """Whole numbers (rows, N) in proportion to weights; row r sums to totals[r] (each within 1 of exact)."""
    summed = np.cumsum(weights, axis=1)
    ends = np.rint(summed / summed[:, -1:] * totals[:, None]).astype(np.int64)
    ends[:, 1:] -= ends[:, :-1].copy()
    return ends


def _draws(cells: int) -> int:
    """How many tables of this many cells may be drawn: about a second's worth, 20 at least."""
    return int(np.clip(30_000_000 // cells, 20, MAX_DRAWS))


def _one_label(y: Ints, rule: str) -> None:
    if y.ndim != 1:
        raise DataError(
            f"partition={rule} needs one class per sample; this data set has {y.shape[1]}; "
            "use iid, quantity or natural"
        )
