"""A checkpoint is whole or it is not there, and what comes back is what went in."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eiffel.core import checkpoint


@dataclass(frozen=True)
class Inner:
    steps: int
    ratio: float
    grown: bool
    losses: np.ndarray


@dataclass(frozen=True)
class Outer:
    inner: Inner
    name: str
    nothing: Any
    table: dict[str, Any]


def state(seed: int = 0) -> Outer:
    rng = np.random.default_rng(seed)
    return Outer(
        Inner(seed, 0.1 * seed, seed % 2 == 0, rng.normal(size=5)),
        f"s{seed}",
        None,
        {"a": rng.normal(size=2)},
    )


def same(left: Any, right: Any) -> bool:
    a, b = checkpoint.flatten(left), checkpoint.flatten(right)
    return a.keys() == b.keys() and all(
        np.array_equal(a[k], b[k], equal_nan=a[k].dtype.kind == "f") for k in a
    )


def test_what_comes_back_is_what_went_in(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 7, state(3))
    round_, back, complaints = checkpoint.load(tmp_path, state(0))
    assert (round_, complaints) == (7, [])
    assert same(back, state(3))
    assert type(back.inner.steps) is int
    assert type(back.inner.grown) is bool
    assert back.name == "s3"


@pytest.mark.parametrize("keep_bytes", [0, 10, 0.5, -1])
def test_a_damaged_newest_one_falls_back_to_the_one_before(tmp_path: Path, keep_bytes: float) -> None:
    checkpoint.save(tmp_path, 3, state(3))
    newest = checkpoint.save(tmp_path, 4, state(4))
    content = newest.read_bytes()
    newest.write_bytes(content[: int(keep_bytes * len(content)) if 0 < keep_bytes < 1 else int(keep_bytes)])
    round_, back, complaints = checkpoint.load(tmp_path, state(0))
    assert round_ == 3
    assert same(back, state(3))
    assert "checkpoint-000004.npz is damaged" in complaints[0]


def test_a_flipped_byte_is_noticed(tmp_path: Path) -> None:
    """The container's checksums catch silent corruption inside an array."""
    checkpoint.save(tmp_path, 1, state(1))
    newest = checkpoint.save(tmp_path, 2, state(2))
    content = bytearray(newest.read_bytes())
    at = content.find(np.asarray(state(2).inner.losses).tobytes())
    content[at] ^= 0xFF
    newest.write_bytes(bytes(content))
    assert checkpoint.load(tmp_path, state(0))[0] == 1


def test_only_the_newest_two_are_kept(tmp_path: Path) -> None:
    for round_ in range(1, 6):
        checkpoint.save(tmp_path, round_, state(round_))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint-000004.npz", "checkpoint-000005.npz"]


def test_none_at_all_says_so(tmp_path: Path) -> None:
    with pytest.raises(checkpoint.CheckpointError, match="no usable checkpoint"):
        checkpoint.load(tmp_path, state(0))


def test_another_strategys_checkpoint_is_refused(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, {"policy": 1.0})
    with pytest.raises(checkpoint.CheckpointError, match=r"holds no 'inner\.steps'"):
        checkpoint.load(tmp_path, state(0))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    checkpoint.write_atomically(path, b"old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        checkpoint.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


leaves = st.one_of(st.integers(-5, 5), st.floats(allow_nan=False), st.booleans(), st.text("ab", max_size=3))


@settings(max_examples=40, deadline=None)
@given(
    st.recursive(
        leaves, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, min_size=1), max_leaves=8
    )
)
def test_any_tree_of_scalars_survives(tree: Any) -> None:
    tree = tree if isinstance(tree, dict) else {"x": tree}
    assert checkpoint.rebuild(tree, checkpoint.flatten(tree)) == tree
