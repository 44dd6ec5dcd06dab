"""Readers on files small enough to check by hand, and what they say of bad ones."""

import gzip
import struct

import numpy as np
import pytest

from eiffel.data import DataError, load
from eiffel.data import fashion_mnist as fm
from eiffel.data import shakespeare as play
from eiffel.data.federated import Ask
from eiffel.data.sources import sha256


def idx(array):
    """0 0 8 dimensions, big-endian sizes, bytes."""
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


# --- idx files -------------------------------------------------------------------------------------------


def test_idx_of_two_images():
    images = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    np.testing.assert_array_equal(fm.idx(idx(images), "f"), images)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not an idx file of bytes: it begins with nothing"),
        (b"\x1f\x8b\x08\x00", "it begins with 1f 8b 08 00, not 00 00 08"),
        (
            idx(np.zeros((2, 2, 2), np.uint8))[:-3],
            "its header promises 8 bytes of shape (2, 2, 2), it holds 5",
        ),
        (idx(np.zeros((2, 2, 2), np.uint8)) + b"x", "it holds 9: fetch it again"),
        (bytes((0, 0, 8, 3)) + b"\x00\x00", "it ends within its header, after 6 bytes"),
    ],
)
def test_idx_refuses_what_is_not_whole(data, said):
    with pytest.raises(DataError) as error:
        fm.idx(data, "f")
    assert said in str(error.value)
    assert str(error.value).startswith("f: ")


def test_pooling_by_hand():
    """Means of the 2 x 2 squares of 0..15: (0+1+4+5)/4 = 2.5, then 4.5, 10.5, 12.5; as shares of 255."""
    images = np.arange(16, dtype=np.uint8).reshape(1, 4, 4)
    assert fm.pooled(images, 2).ravel() * 255 == pytest.approx([2.5, 4.5, 10.5, 12.5])
    assert fm.pooled(images, 1).shape == (1, 1, 4, 4)
    assert fm.pooled(images, 1).dtype == fm.pooled(images, 2).dtype == np.float32


def lay_fashion(folder, name, count, compress=True):
    folder.mkdir(parents=True, exist_ok=True)
    images = np.arange(count * 784).astype(np.uint8).reshape(count, 28, 28)
    for kind, array in (("images-idx3", images), ("labels-idx1", (np.arange(count) % 10).astype(np.uint8))):
        file = folder / f"{name}-{kind}-ubyte{'.gz' if compress else ''}"
        file.write_bytes(gzip.compress(idx(array)) if compress else idx(array))
    return images


@pytest.mark.parametrize("place", ["env/fashion-mnist", "env", "here/data/FashionMNIST/raw"])
@pytest.mark.parametrize("compress", [True, False])
def test_fashion_is_found_where_people_lay_it(bare, monkeypatch, card, place, compress):
    images = lay_fashion(bare / place, "train", 40, compress)
    monkeypatch.setattr(fm, "FOLDERS", fm.FOLDERS[1:])  # without the system's
    monkeypatch.setenv("EIFFEL_DATA", str(bare / "env"))
    data = load(
        card("fashion_mnist", partition="iid", clients=4, options={"sha256": None, "pool": 1}), seed=1
    )
    assert data.x.shape == (40, 1, 28, 28)
    np.testing.assert_allclose(data.x[:, 0], images / 255, rtol=1e-6)
    assert (data.train.sizes + data.test.sizes).tolist() == [10] * 4
    assert set(data.sources) == {p.name for p in (bare / place).iterdir()}


def test_official_test_pictures_are_the_test_part(bare, card):
    """40 training pictures and 20 test pictures of 3 of the 10 classes: 4 and 2 each, labels 0, 1, 2."""
    for name, count in (("train", 40), ("t10k", 20)):
        lay_fashion(bare, name, count)
    changes = {"sha256": None, "rows": "official", "classes": [[0], [2], [6]]}
    data = load(
        card("fashion_mnist", path=bare, partition="classes", clients=3, min_samples=2, options=changes)
    )
    assert (data.classes, data.train.sizes.tolist(), data.test.sizes.tolist()) == (3, [4, 4, 4], [2, 2, 2])
    assert [np.unique(data.y[data.train.of(i)]).tolist() for i in range(3)] == [[0], [1], [2]]


def test_fashion_not_found_names_places_and_ways(bare, monkeypatch, card):
    monkeypatch.setattr(fm, "find", lambda where, names: None)
    monkeypatch.setenv("EIFFEL_DATA", "/mine")
    with pytest.raises(DataError) as error:
        load(card("fashion_mnist"))
    for part in (
        "/mine/fashion-mnist",
        "/usr/share/datasets/fashion-mnist",
        "apt install dataset-fashion-mnist",
        "torchvision",
    ):
        assert part in str(error.value)


def test_another_file_under_a_pinned_name_is_refused(bare, card):
    lay_fashion(bare, "train", 40)
    with pytest.raises(DataError) as error:
        load(card("fashion_mnist", path=bare))
    found = sha256(bare / "train-images-idx3-ubyte.gz")
    for part in (
        str(bare / "train-images-idx3-ubyte.gz"),
        found,
        "b0564c3eedabfbf8",
        "datasets.options.sha256=null",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("option", "said"), [({"pool": 3}, "must divide 28"), ({"rows": "all"}, "must be 'train' or 'official'")]
)
def test_fashion_refuses_options(card, option, said):
    with pytest.raises(DataError, match=said):
        load(card("fashion_mnist", options=option))


def test_a_damaged_gzip_is_named(bare, card):
    lay_fashion(bare, "train", 40)
    file = bare / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz: not read: .*fetch it again"):
        load(card("fashion_mnist", path=bare, options={"sha256": None}))


# --- sha256 ----------------------------------------------------------------------------------------------


def test_sha256_of_abc_and_of_a_changed_file(tmp_path):
    """FIPS 180-2's example; a change of the file is seen although hashes are remembered."""
    file = tmp_path / "f"
    file.write_bytes(b"abc")
    assert sha256(file) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256(file) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    file.write_bytes(b"")
    assert sha256(file) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


# --- digits ----------------------------------------------------------------------------------------------


def test_digits_file_by_hand(bare, card):
    """Two rows of 64 pixels and a digit; 16 becomes 1."""
    rows = [",".join([str(p)] * 64 + [str(d)]) for p, d in ((16, 3), (8, 9))]
    (bare / "digits.csv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    data = load(
        card(
            "digits",
            path=bare,
            partition="iid",
            clients=1,
            min_samples=2,
            options={"sha256": None, "image": True},
        )
    )
    assert data.x.shape == (2, 1, 8, 8)
    assert data.x[:, 0, 0, 0].tolist() == [1.0, 0.5]
    assert data.y.tolist() == [3, 9]


@pytest.mark.parametrize(
    ("text", "said"), [("1,2,x", "not a table of numbers"), ("1,2\n3,4", "expected 65 columns")]
)
def test_digits_refuses_another_table(bare, card, text, said):
    (bare / "digits.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(DataError, match=said):
        load(card("digits", path=bare, options={"sha256": None}))


def test_digits_not_found(bare, card):
    with pytest.raises(DataError, match=r"no digits.csv.gz in .*nowhere; install scikit-learn"):
        load(card("digits", path=bare / "nowhere"))


# --- landmine --------------------------------------------------------------------------------------------


def cells(arrays):
    found = np.empty((1, len(arrays)), object)
    for k, one in enumerate(arrays):
        found[0, k] = one
    return found


def lay_mines(folder, ys):
    from scipy.io import savemat

    xs = [np.arange(len(y) * 9, dtype=float).reshape(-1, 9) for y in ys]
    savemat(folder / "landmine29.mat", {"X": cells(xs), "Y": cells([np.array(y)[:, None] for y in ys])})


def test_mines_are_split_from_mines_and_empty_spots_alike(tmp_path, card):
    """Field 1: 2 mines (1 tested) and 8 empty (0.3 of 8 = 2.4 -> 2 tested). Labels -1, +1 become 0, 1."""
    lay_mines(tmp_path, [[1, 1] + [-1] * 8, [1, -1, -1, 1, -1, -1]])
    data = load(card("landmine", path=tmp_path, min_samples=2, options={"sha256": None}))
    assert (data.metric, data.classes, data.clients) == ("auroc", 2, ("field01", "field02"))
    assert np.bincount(data.y[data.test.of(0)]).tolist() == [2, 1]
    assert np.bincount(data.y[data.train.of(0)]).tolist() == [6, 1]
    train = data.x[data.train.index]
    np.testing.assert_allclose(train.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(train.std(0), 1, atol=1e-5)


def test_mines_labels_must_be_plus_or_minus_one(tmp_path, card):
    lay_mines(tmp_path, [[1, 0, -1]])
    with pytest.raises(DataError, match=r"cell 1: .*Y must be -1 or \+1"):
        load(card("landmine", path=tmp_path, options={"sha256": None}))


def test_mines_not_found_and_not_matlab(bare, card):
    with pytest.raises(DataError, match=r"nowhere.*gingsmith/fmtl.*set datasets.path"):
        load(card("landmine", path=bare / "nowhere"))
    (bare / "landmine29.mat").write_bytes(b"no matlab file" * 20)
    with pytest.raises(
        DataError, match=r"landmine29.mat: not read: .*expected a MATLAB file with cells X and Y"
    ):
        load(card("landmine", path=bare, options={"sha256": None}))


# --- Shakespeare -----------------------------------------------------------------------------------------

TEXT = """A TRAGEDY

DRAMATIS PERSONAE.

ROMEO.
Not spoken: before act one.

ACT I.

SCENE I. A street.

[Enter Anna.]

ANNA.
Good morrow, cousin.
Is the day so young?

Ben.
[Aside.] No.
But new struck nine.

ANNA.
Ay me!

Exeunt.

A line without a role.
"""


def test_roles_by_hand(tmp_path):
    file = tmp_path / "play.txt"
    file.write_text(TEXT)
    assert play.speeches(file) == {
        "ANNA": "Good morrow, cousin.\nIs the day so young?\nAy me!",
        "BEN": "But new struck nine.",
    }


def test_windows_do_not_overlap_and_y_is_one_further():
    """200 characters: (200 - 1) // 80 = 2 windows; y is x moved by one. A foreign character becomes a space."""
    text = "".join(play.ALPHABET[i % 80] for i in range(199)) + "é"
    x, y = play.windows(text)
    assert x.shape == y.shape == (2, 80)
    assert x[0].tolist() == list(range(80))
    assert y[0].tolist() == [*range(1, 80), 0]
    np.testing.assert_array_equal(np.append(x.ravel()[1:], y[-1, -1]), y.ravel())
    assert play.windows("é" * 81)[0][0, 0] == play.ALPHABET.index(" ")
    assert len(set(play.ALPHABET)) == 80


def test_plays_become_clients_split_in_time(tmp_path, card):
    """ANNA speaks 805 characters: 10 windows, the last 2 are the test part; BEN has one window: left out."""
    (tmp_path / "one_gut.txt").write_text("ACT I\n\nANNA.\n" + "x" * 805 + "\n\nBEN.\n" + "y" * 100 + "\n")
    (tmp_path / "poem_gut.txt").write_text("ROSES.\nare red\n")
    data = load(card("shakespeare", path=tmp_path, clients=None, min_samples=2))
    assert data.clients == ("one_gut/ANNA",)
    assert (data.classes, data.x.dtype, data.y.shape) == (80, np.int64, data.x.shape)
    assert data.test.of(0).tolist() == [8, 9]
    assert set(data.sources) == {"one_gut.txt", "poem_gut.txt"}


def test_texts_not_found_or_without_roles(bare, card):
    with pytest.raises(DataError, match=r"no \*_gut.txt in .*nowhere.*Lay plain texts"):
        load(card("shakespeare", path=bare / "nowhere"))
    with pytest.raises(DataError, match=r"no \*_gut.txt in any known place \(EIFFEL_DATA is not set\)"):
        load(card("shakespeare"))
    (bare / "poem_gut.txt").write_text("ROSES.\nare red\n")
    with pytest.raises(DataError, match=r"1 texts in .* but no play"):
        load(card("shakespeare", path=bare))


# --- synthetic -------------------------------------------------------------------------------------------


def synthetic(clients, seed, **options):
    from eiffel.data import synthetic

    return synthetic.read(
        Ask(options={"alpha": 1.0, "beta": 1.0, "sigma": 1.0} | options, clients=clients, seed=seed)
    )


def test_synthetic_client_depends_on_seed_and_number_alone():
    few, many, other = synthetic(3, 7), synthetic(5, 7), synthetic(3, 8)
    np.testing.assert_array_equal(few.x, many.x[: len(few.x)])
    assert few.x.shape != other.x.shape or not np.array_equal(few.x, other.x)


def test_synthetic_inputs_spread_as_the_generator_says():
    """Within a client feature j has standard deviation j^-0.6: 1, 0.66, 0.52, ..., 0.086 at j = 60."""
    pool = synthetic(60, 1)
    inside = np.array([pool.x[pool.owner == k].std(0) for k in range(60)])
    np.testing.assert_allclose(inside.mean(0), np.arange(1, 61) ** -0.6, rtol=0.05)


def test_synthetic_beta_spreads_clients_and_alpha_spreads_models():
    """A client's mean input is N(N(0, beta), 1): over clients its average over features has deviation ~ beta."""

    def middle(beta):
        pool = synthetic(300, 2, beta=beta)
        return np.std([pool.x[pool.owner == k].mean() for k in range(300)])

    assert middle(0.0) == pytest.approx(1 / np.sqrt(60), rel=0.15)
    assert middle(2.0) == pytest.approx(2.0, rel=0.15)


def test_synthetic_sizes():
    """n = int(LogNormal(4, sigma)) + 50: at least 50, median about 50 + e^4 = 104.6; sigma 0: all 104."""
    sizes = np.bincount(synthetic(400, 3).owner)
    assert sizes.min() >= 50
    assert np.median(sizes) == pytest.approx(104.6, rel=0.08)
    assert set(np.bincount(synthetic(3, 3, sigma=0.0).owner)) == {50 + 54}


def test_synthetic_iid_is_one_linear_model():
    """All clients share W and b, so one least-squares fit to the labels is nearly as good everywhere."""
    pool = synthetic(20, 4, alpha=0.0, beta=0.0, iid=True)
    design = np.c_[pool.x, np.ones(len(pool.x))]
    fit = design @ np.linalg.lstsq(design, np.eye(10)[pool.y], rcond=None)[0]
    right = fit.argmax(1) == pool.y
    assert right.mean() > 0.75
    assert min(right[pool.owner == k].mean() for k in range(20)) > 0.6


@pytest.mark.parametrize("name", ["alpha", "beta", "sigma"])
def test_synthetic_refuses_negative_spread(name):
    with pytest.raises(DataError, match=rf"datasets.options.{name} is -1"):
        synthetic(2, 0, **{name: -1})
