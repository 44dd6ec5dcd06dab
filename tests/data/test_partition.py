"""Who holds which sample: every rule's promise, and every refusal with its figures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eiffel.data import DataError, Parts
from eiffel.data import partition as rule

QUICK = settings(max_examples=50, deadline=None)


def rng(seed=0):
    return np.random.default_rng(seed)


def sizes(owner, clients):
    return np.bincount(owner[owner >= 0], minlength=clients)


def table(owner, y, clients):
    """(clients, classes) counts."""
    counts = np.zeros((clients, int(y.max()) + 1), int)
    np.add.at(counts, (owner, y), 1)
    return counts


labels = st.integers(40, 400).flatmap(
    lambda m: st.integers(0, 2**32 - 1).map(lambda s: rng(s).integers(0, 5, m))
)

# Every rule that deals all samples, on labels y to n clients.
ALL = {
    "iid": lambda y, n, r: rule.iid(len(y), n, 2, r),
    "quantity": lambda y, n, r: rule.quantity(len(y), n, 1.0, 2, r),
    "dirichlet": lambda y, n, r: rule.dirichlet(y, n, 1.0, 1, r),
    "shards": lambda y, n, r: rule.shards(y, n, 2, 1, r),
}


@pytest.mark.parametrize("name", ALL)
@QUICK
@given(y=labels, clients=st.integers(1, 8), seed=st.integers(0, 1000))
def test_every_sample_has_exactly_one_owner_and_the_seed_decides(name, y, clients, seed):
    """One owner a row: the parts are disjoint and together the whole; the same seed deals the same."""
    owner = ALL[name](y, clients, rng(seed))
    parts = Parts.of_owner(owner, clients)
    assert sorted(np.concatenate([parts.of(i) for i in range(clients)]).tolist()) == list(range(len(y)))
    assert (parts.sizes >= 1).all()
    assert len(parts) == clients
    np.testing.assert_array_equal(owner, ALL[name](y, clients, rng(seed)))


@QUICK
@given(samples=st.integers(20, 500), clients=st.integers(1, 10), seed=st.integers(0, 99))
def test_iid_sizes_differ_by_at_most_one(samples, clients, seed):
    found = sizes(rule.iid(samples, clients, 2, rng(seed)), clients)
    assert found.max() - found.min() <= 1


@QUICK
@given(y=labels, clients=st.integers(2, 6), seed=st.integers(0, 99), order=st.integers(0, 99))
def test_dirichlet_counts_depend_on_the_class_sizes_not_on_the_order_of_samples(y, clients, seed, order):
    """Shuffled samples: other rows, but client i still holds as many of class c."""
    shuffled = rng(order).permutation(y)
    before, after = (rule.dirichlet(one, clients, 0.5, 1, rng(seed)) for one in (y, shuffled))
    np.testing.assert_array_equal(table(before, y, clients), table(after, shuffled, clients))


@QUICK
@given(least=st.integers(2, 15), seed=st.integers(0, 99))
def test_dirichlet_and_quantity_keep_their_floor(least, seed):
    y = np.arange(300) % 3
    assert sizes(rule.dirichlet(y, 8, 1.0, least, rng(seed)), 8).min() >= least
    assert sizes(rule.quantity(300, 8, 2.0, least, rng(seed)), 8).min() >= least


def test_alpha_decides_how_uneven_the_mixture_is():
    """Share of a client's largest class: near 1/10 of 10 classes when alpha is large, near 1 when small."""
    y = np.repeat(np.arange(10), 1000)

    def largest(alpha):
        counts = table(rule.dirichlet(y, 20, alpha, 1, rng(3)), y, 20)
        return (counts.max(1) / counts.sum(1)).mean()

    assert largest(1000.0) < 0.13
    assert 0.2 < largest(1.0) < 0.5
    assert largest(0.05) > 0.7


def test_dirichlet_shares_have_the_mean_and_the_spread_of_the_distribution():
    """A share is Beta(a, (N - 1) a): mean 1/N, variance (1/N)(1 - 1/N)/(N a + 1). N = 4, a = 1: .25 and .0375."""
    y, shares = np.zeros(1000, int), []
    for seed in range(400):
        shares.append(sizes(rule.dirichlet(y, 4, 1.0, 1, rng(seed)), 4) / 1000)
    assert np.mean(shares) == pytest.approx(0.25)
    assert np.var(shares) == pytest.approx(0.0375, rel=0.1)


def test_shards_by_hand():
    """12 samples of 3 classes, 3 clients x 2 shards of 2: sorted by class, a shard never mixes two classes."""
    y = np.array([2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1])
    owner = rule.shards(y, 3, 2, 2, rng(1))
    assert sizes(owner, 3).tolist() == [4, 4, 4]
    assert (np.count_nonzero(table(owner, y, 3), axis=1) <= 2).all()
    assert (table(owner, y, 3) % 2 == 0).all()


def test_shards_need_not_divide_the_samples():
    """10 samples in 4 shards: 2, 3, 2, 3; a client of two shards holds 4 to 6."""
    owner = rule.shards(np.arange(10) // 5, 2, 2, 2, rng(0))
    assert sorted(sizes(owner, 2).tolist()) in ([4, 6], [5, 5])


def test_quantity_by_hand():
    """sigma 0: 10 samples for 4 clients, 1 each and 6 shared evenly (1.5 each, rounded where they add up)."""
    found = sizes(rule.quantity(10, 4, 0.0, 1, rng(0)), 4)
    assert found.sum() == 10
    assert set(found.tolist()) <= {2, 3}


def test_quantity_follows_sigma():
    spread = [np.log(sizes(rule.quantity(50_000, 200, s, 2, rng(0)), 200)).std() for s in (0.5, 1.0, 1.5)]
    assert spread == pytest.approx([0.5, 1.0, 1.5], rel=0.12)


def test_class_sets_by_hand():
    """Sets {0}, {1, 2}: client 0 has all of class 0, client 1 all of 1 and 2; class 3 is nobody's."""
    y = np.array([0, 1, 2, 3, 0, 1, 2, 3])
    assert rule.class_sets(y, [[0], [1, 2]], 2, 2, rng(0)).tolist() == [0, 1, 1, -1, 0, 1, 1, -1]


def test_class_sets_are_shared_by_all_who_name_them():
    """4 clients on 2 sets: clients 0 and 2 share class 0 (6 samples, 3 each), clients 1 and 3 class 1."""
    y = np.repeat([0, 1], 6)
    owner = rule.class_sets(y, [[0], [1]], 4, 2, rng(0))
    assert table(owner, y, 4).tolist() == [[3, 0], [0, 3], [3, 0], [0, 3]]


def test_natural_keeps_order_and_leaves_the_small_ones_out():
    """Clients b (3 rows) and d (2); a has 1 row: fewer than 2, left out; c none."""
    owner = np.array([1, 0, 1, 3, 1, 3])
    number, keys = rule.natural(owner, ("a", "b", "c", "d"), None, 2, rng(0))
    assert keys == ("b", "d")
    assert number.tolist() == [0, -1, 0, 1, 0, 1]


@QUICK
@given(wanted=st.integers(1, 12), seed=st.integers(0, 99))
def test_natural_draws_as_many_as_asked(wanted, seed):
    owner = np.repeat(np.arange(12), 3)
    number, keys = rule.natural(owner, [f"u{i}" for i in range(12)], wanted, 3, rng(seed))
    assert len(keys) == wanted
    assert list(keys) == sorted(keys, key=lambda k: int(k[1:]))
    assert sizes(number, wanted).tolist() == [3] * wanted
    kept = np.array([int(k[1:]) for k in keys])
    np.testing.assert_array_equal(kept[number[number >= 0]], owner[number >= 0])


Y = np.arange(20) % 4
TEXT = np.zeros((20, 80), int)
IMPOSSIBLE = {
    "11 clients x at least 2 samples = 22, but there are only 20 samples (2 too few); ask for at most 10 clients": (
        lambda: rule.iid(20, 11, 2, rng())
    ),
    "1 clients x at least 30 samples = 30, but there are only 20 samples (10 too few); lower min_samples": (
        lambda: rule.iid(20, 1, 30, rng())
    ),
    "clients is 0; it must be at least 1": lambda: rule.iid(20, 0, 2, rng()),
    "= 21, but there are only 20 samples (1 too few)": lambda: rule.quantity(20, 3, 1.0, 7, rng()),
    "sigma is -1.0; it must be 0 or more": lambda: rule.quantity(20, 3, -1.0, 2, rng()),
    "30 clients x at least 1 samples = 30": lambda: rule.dirichlet(Y, 30, 1.0, 1, rng()),
    "alpha is 0.0; it must be a positive number": lambda: rule.dirichlet(Y, 4, 0.0, 1, rng()),
    "the smallest client never had more than": lambda: rule.dirichlet(Y, 5, 0.01, 4, rng()),
    "needs one class per sample; this data set has 80": lambda: rule.dirichlet(TEXT, 5, 1.0, 2, rng()),
    "7 clients x 3 shards = 21 shards, but there are only 20 samples (1 too few)": (
        lambda: rule.shards(Y, 7, 3, 1, rng())
    ),
    "shards is 0; every client needs at least 1": lambda: rule.shards(Y, 3, 0, 1, rng()),
    "3 clients x at least 7 samples = 21": lambda: rule.shards(Y, 3, 2, 7, rng()),
    "shards hold 1 samples, so a client may get only 4 of the 6 asked for": lambda: rule.shards(
        Y, 3, 4, 6, rng()
    ),
    "3 class sets for 2 clients: 1 sets would have no client": (
        lambda: rule.class_sets(Y, [[0], [1], [2]], 2, 2, rng())
    ),
    "class 0 has 5 samples for 6 clients (1 too few)": lambda: rule.class_sets(Y, [[0]], 6, 1, rng()),
    "the smallest client would have 1 of the 2 samples": lambda: rule.class_sets(Y, [[0]], 4, 2, rng()),
    "the data has 2 and 1 of them hold at least 2 samples (1 too few); ask for at most 1": (
        lambda: rule.natural(np.array([0, 0, 1]), "ab", 2, 2, rng())
    ),
}


@pytest.mark.parametrize("said", IMPOSSIBLE)
def test_the_impossible_is_refused_with_figures(said):
    with pytest.raises(DataError) as error:
        IMPOSSIBLE[said]()
    assert said in str(error.value)


def test_dirichlet_gives_up_in_bounded_time_and_says_what_would_do():
    """The floor it names is one that its own draws reached: asking for that succeeds with the same seed."""
    y = np.arange(1000) % 10
    with pytest.raises(
        DataError, match=r"in 1000 draws .* never had more than \d+ of the 45 samples"
    ) as error:
        rule.dirichlet(y, 20, 0.3, 45, rng(5))
    possible = int(str(error.value).split("lower min_samples to ")[1].split(",")[0])
    assert sizes(rule.dirichlet(y, 20, 0.3, possible, rng(5)), 20).min() >= possible


def test_a_thousand_clients_of_sixty_thousand_samples_in_half_a_second():
    """The rules are vectorised: no loop over clients or samples."""
    import time

    y = np.arange(60_000) % 10
    start = time.process_time()
    owner = rule.dirichlet(y, 1000, 0.3, 1, rng(0))
    assert time.process_time() - start < 0.5
    assert np.unique(owner).size == 1000
