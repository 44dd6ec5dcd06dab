"""A user's own npz and csv: what is read, and what is said of a file with a fault."""

import numpy as np
import pytest

from eiffel.data import DataError, load


def npz(tmp_path, **arrays):
    found = {
        "x": np.arange(16.0).reshape(8, 2),
        "y": np.array([3, 5] * 4),
        "client": np.repeat(["b", "a"], 4),
    }
    found |= arrays
    np.savez(tmp_path / "own.npz", **{name: one for name, one in found.items() if one is not None})
    return tmp_path / "own.npz"


def test_npz_by_hand(tmp_path, card):
    """Labels 3 and 5 become 0 and 1, clients are sorted by name; 4 samples each: 3 train, 1 test."""
    data = load(card("npz", path=npz(tmp_path)))
    assert data.clients == ("a", "b")
    assert data.y.tolist() == [0, 1] * 4
    assert (data.train.sizes.tolist(), data.test.sizes.tolist()) == ([3, 3], [1, 1])
    assert set(data.train.of(0)) | set(data.test.of(0)) == {4, 5, 6, 7}
    assert data.x.dtype == np.float32


def test_npz_test_marks_are_kept(tmp_path, card):
    marks = np.array([1, 0, 0, 0, 0, 0, 1, 1], bool)
    data = load(card("npz", path=npz(tmp_path, test=marks)))
    assert (data.test.of(0).tolist(), data.test.of(1).tolist()) == ([6, 7], [0])


def test_npz_test_marks_must_reach_every_client(tmp_path, card):
    with pytest.raises(DataError, match=r"npz: client 'a' has no test sample"):
        load(card("npz", path=npz(tmp_path, test=np.arange(8) < 2)))


def test_npz_without_clients_needs_another_partition(tmp_path, card):
    path = npz(tmp_path, client=None)
    with pytest.raises(DataError, match=r"npz: partition=natural, but this data has no clients of its own"):
        load(card("npz", path=path))
    with pytest.raises(DataError, match=r"partition=iid needs a number of clients: set datasets.clients"):
        load(card("npz", path=path, partition="iid"))
    assert len(load(card("npz", path=path, partition="iid"), clients=3)) == 3


def broken(x):
    x = np.zeros((8, 2))
    x[2, 1] = np.inf
    return x


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"y": None}, r"own.npz: no array 'y'; it holds x, client"),
        ({"y": np.arange(7)}, r"own.npz: y has shape \(7,\) for 8 samples"),
        ({"y": np.zeros(8)}, r"own.npz: y: 1 distinct labels; a classification needs 2"),
        (
            {"y": np.array([0, 1, np.nan] + [0] * 5)},
            r"own.npz: y: label 2 \(counted from 0\) is not a finite",
        ),
        ({"client": np.arange(3)}, r"client has shape \(3,\) for 8 samples"),
        ({"x": np.arange(8.0)}, r"x has shape \(8,\) and type float64"),
        ({"x": broken(0)}, r"own.npz: x\[2, 1\] is inf: not a finite number"),
        ({"x": np.array([[object()]] * 8)}, r"own.npz: Object arrays cannot be loaded"),
        (
            {"client": np.array(["a"] * 7 + ["b"])},
            r"1 clients have fewer than 2 samples.*min_samples=2 leaves",
        ),
    ],
)
def test_npz_faults_are_named(tmp_path, card, arrays, said):
    with pytest.raises(DataError, match=said):
        load(card("npz", path=npz(tmp_path, **arrays)))


def test_npz_leaves_small_clients_out_when_asked(tmp_path, card):
    path = npz(tmp_path, client=np.array(["a"] * 7 + ["b"]))
    assert load(card("npz", path=path, min_samples=2)).clients == ("a",)


@pytest.mark.parametrize("reader", ["npz", "csv"])
def test_own_file_must_be_named_and_there(tmp_path, card, reader):
    with pytest.raises(DataError, match=f"{reader}: no file named; set datasets.path=FILE.{reader}"):
        load(card(reader))
    with pytest.raises(DataError, match=f"{reader}: there is no file .*none.x"):
        load(card(reader, path=tmp_path / "none.x"))


def test_a_file_that_is_no_npz(tmp_path, card):
    (tmp_path / "own.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(DataError, match=r"own.npz: not read as .npz"):
        load(card("npz", path=tmp_path / "own.npz"))


TABLE = "age,client,label,height\n1,u,yes,2\n3,u,no,2\n5,v,yes,2\n7,v,no,2\n"


def csv(tmp_path, text=TABLE):
    (tmp_path / "own.csv").write_text(text)
    return tmp_path / "own.csv"


def test_csv_by_hand(tmp_path, card):
    """Features age and height; no -> 0, yes -> 1; standardised over the train rows, a constant column is 0."""
    data = load(card("csv", path=csv(tmp_path)))
    assert (data.clients, data.y.tolist(), data.classes) == (("u", "v"), [1, 0, 1, 0], 2)
    assert data.x[:, 1].tolist() == [0.0] * 4
    assert data.x[data.train.index, 0] == pytest.approx([-1.0, 1.0])
    raw = load(card("csv", path=csv(tmp_path), options={"standardise": False, "features": ["height", "age"]}))
    assert raw.x.tolist() == [[2, 1], [2, 3], [2, 5], [2, 7]]


def test_csv_in_time_and_by_auroc(tmp_path, card):
    rows = "".join(f"{i},{i % 2}\n" for i in range(10))
    options = {"client": None, "ordered": True, "metric": "auroc", "standardise": False}
    data = load(
        card("csv", path=csv(tmp_path, "t,label\n" + rows), partition="iid", clients=1, options=options)
    )
    assert (data.test.of(0).tolist(), data.metric) == ([8, 9], "auroc")


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (TABLE, {"label": "class"}, r"own.csv: no column 'class'; it has age, client, label, height"),
        (TABLE, {"client": "user"}, r"own.csv: no column 'user'"),
        (TABLE, {"features": ["weight"]}, r"own.csv: no column 'weight'"),
        (TABLE, {"client": None, "features": ["age", "client"]}, r"column 'client', line 2: 'u' is not a number"),
        (TABLE.replace("5,v", "old,v"), {}, r"column 'age', line 4: 'old' is not a number; name the numeric"),
        (TABLE.replace("5,v", ",v"), {}, r"column 'age', line 4: an empty cell"),
        (TABLE.replace("5,v", "inf,v"), {}, r"column 'age', line 4: not a finite number"),
        (TABLE.replace("5,v,yes,2", "5,v,yes"), {}, r"own.csv: not read as a table .*Expected 4 columns, got 3"),
        (TABLE.replace("yes", "no"), {}, r"column 'label': 1 distinct labels"),
        (TABLE.replace("1,u,yes", "1,u,perhaps"), {"metric": "auroc"}, r"metric is 'auroc' for 3 classes"),
        ("", {}, r"own.csv: not read as a table.*Empty CSV file"),
    ],
)  # fmt: skip
def test_csv_faults_are_named(tmp_path, card, text, options, said):
    with pytest.raises(DataError, match=said):
        load(card("csv", path=csv(tmp_path, text), options=options))


def test_own_file_can_be_pinned(tmp_path, card):
    with pytest.raises(DataError, match=r"own.csv: its sha256 is .*but the card expects 00"):
        load(card("csv", path=csv(tmp_path), options={"sha256": {"own.csv": "00"}}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"partition": "dirichlett"}, "datasets.partition is 'dirichlett'; .* did you mean 'dirichlet'"),
        ({"reader": "cvs"}, "datasets.reader is 'cvs'; it must be one of digits, .*; did you mean 'csv'"),
        ({"clients": 0}, "datasets.clients is 0; it must be a whole number of at least 1"),
        ({"test": "some"}, "datasets.test is 'some'; it must be a number"),
        ({"min_samples": 1.5}, "datasets.min_samples is 1.5; it must be a whole number"),
        ({"clients": 3}, "csv: 3 clients asked for, but the data has 2 .*1 too few"),
        (
            {"partition": "classes", "options": {"classes": 3}},
            r"options.classes is 3; give sets of classes such as",
        ),
        ({"partition": "classes", "options": {"classes": [[0], [2]]}}, r"options.classes is .*classes 0..1"),
    ],
)
def test_faults_of_a_card_are_named(tmp_path, card, changes, said):
    with pytest.raises(DataError, match=said):
        load(card("csv", path=csv(tmp_path), **changes))
