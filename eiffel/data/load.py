"""From a card to a `Federated`: read, deal to clients, split, standardise."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eiffel.data import partition as rule
from eiffel.data.federated import Ask, DataError, Federated, Ints, Parts, Pool
from eiffel.data.split import held_out

READERS = {
    "digits": "eiffel.data.digits",
    "synthetic": "eiffel.data.synthetic",
    "fashion_mnist": "eiffel.data.fashion_mnist",
    "har": "eiffel.data.har",
    "landmine": "eiffel.data.landmine",
    "shakespeare": "eiffel.data.shakespeare",
    "npz": "eiffel.data.npz",
    "csv": "eiffel.data.table",
    "hub": "eiffel.data.hub",
}
"""reader -> module with `read(ask) -> Pool`; imported when asked for."""

PARTITIONS = ("iid", "dirichlet", "shards", "quantity", "classes", "natural")

Dealt = tuple[Pool, Ints, tuple[str, ...]]


def load(card: Mapping[str, Any], clients: int | None = None, seed: int = 0) -> Federated:
    """Load the data set of a card, dealt to `clients` clients (None: as many as the card says).

    The same card, clients and seed give the same data, bit for bit.

    Raises
    ------
    MissingData
        The source is not on this machine.
    DataError
        Source damaged or not the pinned one; a field out of range; a deal that is impossible.
    """
    name = str(card.get("name", card.get("reader")))
    wanted = card.get("clients") if clients is None else clients
    if wanted is not None and (not isinstance(wanted, int) or wanted < 1):
        raise DataError(f"datasets.clients is {wanted!r}; it must be a whole number of at least 1")
    reader = importlib.import_module(READERS[_choice(card, "reader", tuple(READERS))])
    path = None if card.get("path") is None else Path(str(card["path"])).expanduser()
    seed &= 0xFFFFFFFF  # as everywhere: generators take no negative seeds
    pool: Pool = reader.read(Ask(path, card.get("options") or {}, wanted, seed))
    try:
        pool, owner, keys = _deal(pool, card, wanted, np.random.default_rng([seed, 1]))
        test = _test_rows(pool, owner, card, np.random.default_rng([seed, 2]))
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    train, held = (Parts.of_owner(np.where(part, owner, -1), len(keys)) for part in (~test, test))
    x = _standardised(pool.x, train.index) if pool.standardise else pool.x
    return Federated(name, x, pool.y, pool.classes, train, held, keys, dict(pool.sources), pool.metric)


def _deal(pool: Pool, card: Mapping[str, Any], clients: int | None, rng: np.random.Generator) -> Dealt:
    """The pool (smaller and renumbered where a rule leaves classes out), the owner of each row, the keys."""
    kind = _choice(card, "partition", PARTITIONS)
    least = max(2, _whole(card, "min_samples", 2))
    if kind == "natural":
        if pool.owner is None:
            raise DataError(
                "partition=natural, but this data has no clients of its own; "
                "use iid, dirichlet, shards, quantity or classes"
            )
        return pool, *rule.natural(pool.owner, pool.keys, clients, _whole(card, "min_samples", 1), rng)
    if kind == "classes":
        return _deal_classes(pool, card, clients, least, rng)
    if clients is None:
        raise DataError(f"partition={kind} needs a number of clients: set datasets.clients")
    size, y = len(pool.y), pool.y
    if kind == "iid":
        owner = rule.iid(size, clients, least, rng)
    elif kind == "quantity":
        owner = rule.quantity(size, clients, _number(card, "sigma", 1.0), least, rng)
    elif kind == "dirichlet":
        owner = rule.dirichlet(y, clients, _number(card, "alpha", 0.3), least, rng)
    else:
        owner = rule.shards(y, clients, _whole(card, "shards", 2), least, rng)
    return pool, owner, _numbered(clients)


def _deal_classes(
    pool: Pool, card: Mapping[str, Any], clients: int | None, least: int, rng: np.random.Generator
) -> Dealt:
    """One set of classes a client (`options.classes`; none: one class each); labels are renumbered from 0."""
    sets = (card.get("options") or {}).get("classes") or [[label] for label in range(pool.classes)]
    try:
        sets = [[int(label) for label in one] for one in sets]
    except (TypeError, ValueError):
        raise DataError(f"options.classes is {sets!r}; give sets of classes such as [[0],[2],[6]]") from None
    used = sorted({label for one in sets for label in one})
    if not used or not all(sets) or not 0 <= used[0] <= used[-1] < pool.classes:
        raise DataError(
            f"options.classes is {sets}; give non-empty sets of classes 0..{pool.classes - 1}, "
            "such as [[0],[2],[6]]"
        )
    clients = len(sets) if clients is None else clients
    owner = rule.class_sets(pool.y, sets, clients, least, rng)
    if len(used) == pool.classes:
        return pool, owner, _numbered(clients)
    rows = np.flatnonzero(owner >= 0)
    smaller = replace(
        pool,
        x=pool.x[rows],
        y=np.searchsorted(used, pool.y[rows]),
        classes=len(used),
        group=None if pool.group is None else pool.group[rows],
        test=None if pool.test is None else pool.test[rows],
    )
    return smaller, owner[rows], _numbered(clients)


def _test_rows(
    pool: Pool, owner: Ints, card: Mapping[str, Any], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """(M,) the test rows: those the source names, else a fraction of each client's own."""
    if pool.test is not None:
        return pool.test
    return held_out(owner, _number(card, "test", 0.2), rng, pool.group, pool.ordered)


def _standardised(x: NDArray[Any], train: Ints) -> NDArray[np.float32]:
    """Mean 0 and standard deviation 1 over the train rows, feature by feature; constant features become 0."""
    rows = x[train].astype(np.float64)
    mean, deviation = rows.mean(0), rows.std(0)
    return np.ascontiguousarray((x - mean) / np.where(deviation > 1e-12, deviation, 1.0), dtype=np.float32)


def _numbered(clients: int) -> tuple[str, ...]:
    return tuple(str(i) for i in range(clients))


def _choice(card: Mapping[str, Any], key: str, known: tuple[str, ...]) -> str:
    value = str(card.get(key))
    if value not in known:
        near = difflib.get_close_matches(value, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise DataError(f"datasets.{key} is {value!r}; it must be one of {', '.join(known)}{hint}")
    return value


def _number(card: Mapping[str, Any], key: str, default: float) -> float:
    value = card.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"datasets.{key} is {value!r}; it must be a number")
    return float(value)


def _whole(card: Mapping[str, Any], key: str, default: int) -> int:
    value = _number(card, key, default)
    if value != int(value) or value < 0:
        raise DataError(f"datasets.{key} is {value:g}; it must be a whole number of 0 or more")
    return int(value)
