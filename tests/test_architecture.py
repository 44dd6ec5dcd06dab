"""The shape of the house: imports point down, heavy libraries stay in their rooms, names and sizes hold."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "eiffel"

# Rooms from the ground up. A module may import its own room and those on lower floors, and no other.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("select", "robust"),
    ("budget", "pace", "aggregate"),
    ("method", "schedule"),
    ("config",),
    ("data", "worlds"),
    ("train",),
    ("report",),
    ("simulation", "cluster"),
    ("flower",),
    ("reproduce",),
    ("tune",),
    ("cli",),
)
HEAVY = {
    "torch": {"train", "flower"},
    "flwr": {"flower"},
    "ray": {"train", "flower"},
    "hydra": {"config", "cli", "flower", "cluster", "reproduce", "tune"},
    "omegaconf": {"config", "cli", "flower", "simulation", "cluster", "reproduce", "tune"},
    "wandb": {"report"},
    "matplotlib": {"report"},
    "rich": {"report", "cli"},
    "sklearn": {"data"},
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, also inside functions and for type checking."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.module, node.lineno
            if node.module == "eiffel":
                yield from ((f"eiffel.{alias.name}", node.lineno) for alias in node.names)


def floor(name: str) -> int:
    return next((i for i, rooms in enumerate(FLOORS) if name in rooms), -1)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    here = room(path)
    if here == "__init__":
        return
    assert floor(here) >= 0, f"{here} has no place in the house: give it a floor"
    for name, line in imports(path):
        if not name.startswith("eiffel.") or name == "eiffel.__version__":
            continue
        there = name.split(".")[1]
        if there in (here, "__version__"):
            continue
        assert floor(there) < floor(here), f"{path}:{line}: {here} imports {there}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_libraries_stay_in_their_rooms(path: Path) -> None:
    here = {room(path), str(path.relative_to(PACKAGE))}
    for name, line in imports(path):
        top = name.split(".")[0]
        assert top not in HEAVY or HEAVY[top] & here, f"{path}:{line}: {top} has no business in {room(path)}"


def test_no_two_packages_import_each_other() -> None:
    edges = {
        (room(path), name.split(".")[1])
        for path in modules()
        for name, _ in imports(path)
        if name.startswith("eiffel.") and room(path) != name.split(".")[1]
    }
    assert not {(a, b) for a, b in edges if (b, a) in edges}


def test_functions_and_files_stay_readable() -> None:
    """No function above 60 lines (its docstring not counted), no file above 400."""
    for path in modules():
        text = path.read_text()
        assert text.count("\n") <= 400, f"{path} has {text.count(chr(10))} lines: it tells two stories"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                doc = ast.get_docstring(node, clean=False)
                assert node.end_lineno is not None
                size = node.end_lineno - node.lineno + 1 - (doc.count("\n") + 1 if doc else 0)
                assert size <= 60, f"{path}:{node.lineno} {node.name} has {size} lines"


def test_files_are_named_for_what_they_hold() -> None:
    banned = re.compile(r"^_?(utils?|helpers?|common|misc|base|manager|handlers?|args)$")
    assert not [p for p in modules() if banned.match(p.stem)]


def test_there_is_no_package_called_datasets() -> None:
    """A top-level package of that name would shadow Hugging Face's in every Flower app."""
    for folder in ("datasets", "strategies", "conf", "sims"):
        assert not list((ROOT / folder).glob("**/*.py")), f"{folder}/ holds choices in YAML, no Python"


def test_randomness_is_never_global() -> None:
    """Every draw comes from a generator that was passed in: no np.random.<draw>, no random.<draw>, no seeding."""
    allowed = {"default_rng", "Generator", "SeedSequence", "Philox", "PCG64"}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Attribute)
                and node.value.attr == "random"
                and isinstance(node.value.value, ast.Name)
                and node.value.value.id in ("np", "numpy")
            ):
                assert node.attr in allowed, f"{path}:{node.lineno}: np.random.{node.attr} is global state"


def test_the_project_speaks_of_itself_alone() -> None:
    """No path of a particular machine anywhere."""
    found = [
        f"{path}: {match[0]}"
        for folder in (
            "eiffel",
            "conf",
            "strategies",
            "datasets",
            "sims",
            "docs",
            "tests",
            "benchmarks",
            "deploy",
        )
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".yaml", ".md", ".toml", ".json", ".sh"}
        and path.name != Path(__file__).name
        for match in re.finditer(r"(?<![\w.])/(?:home|root|Users)/\w+", path.read_text(errors="ignore"))
    ]
    assert not found
