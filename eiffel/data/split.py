"""Every client's own train and test part."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eiffel.data.federated import DataError, Ints


def held_out(
    owner: Ints, fraction: float, rng: np.random.Generator, group: Ints | None = None, ordered: bool = False
) -> NDArray[np.bool_]:
    """(M,) the rows for testing: the fraction of each (client, group), rounded, 1 at least of 2 or more.

    owner: (M,) client of each row, -1 for nobody's. ordered: the last rows of each group (rows ascend in
    time), else random ones. A client whose groups are all too small to give a test row gives its last row.

    Raises
    ------
    DataError
        The fraction is not between 0 and 1, or a client has fewer than 2 samples.
    """
    if not 0 < fraction < 1:
        raise DataError(f"test is {fraction}; the test fraction must be more than 0 and less than 1")
    sizes = np.bincount(owner[owner >= 0])
    if few := np.flatnonzero(sizes < 2).tolist():
        raise DataError(
            f"{len(few)} clients have fewer than 2 samples, so no train and test part "
            f"(client number {few[0]} has {sizes[few[0]]}); min_samples=2 leaves such clients out"
        )
    when = np.arange(owner.size) if ordered else rng.permutation(owner.size)
    kind = np.zeros_like(owner) if group is None else group
    order = np.lexsort((when, kind, owner))
    order = order[owner[order] >= 0]
    test = np.zeros(owner.size, np.bool_)
    test[order] = _last(owner[order], kind[order], fraction)
    _ensure(test, owner, order)
    return test


def _last(owner: Ints, kind: Ints, fraction: float) -> NDArray[np.bool_]:
    """Mark the last rows of each run of equal (owner, kind)."""
    new = np.concatenate(([True], (np.diff(owner) != 0) | (np.diff(kind) != 0)))
    start = np.flatnonzero(new)
    size = np.diff(np.append(start, owner.size))
    count = np.where(size > 1, np.clip(np.rint(fraction * size).astype(np.int64), 1, size - 1), 0)
    from_end = np.repeat(start + size, size) - np.arange(owner.size)
    return np.asarray(from_end <= np.repeat(count, size))


def _ensure(test: NDArray[np.bool_], owner: Ints, order: Ints) -> None:
    """Clients whose groups are all singletons have no test row yet: their last row becomes one."""
    tested = np.bincount(owner[order], test[order])
    last = order[np.append(np.flatnonzero(np.diff(owner[order])), order.size - 1)]
    test[last[tested[owner[last]] == 0]] = True
