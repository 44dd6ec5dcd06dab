"""The words of the command line: a path may stand where an option of the groups trace and cluster is expected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eiffel import config as cfg

GROUPS = {"trace": "csv", "cluster": "file"}
"""Groups for which a path will do, and the option that then reads it."""


def with_paths(words: Sequence[str]) -> list[str]:
    """The words with every `trace=PATH` and `cluster=PATH` spelt out as Hydra knows it.

    `trace=jobs.csv` becomes `trace=csv trace.path=jobs.csv trace.name=jobs`; with `trace.format=gavel` beside
    it the option is `gavel`. Several paths, in a sweep, are separated by commas. Raises ConfigError where paths
    and options are mixed.
    """
    given = {key: value for key, _, value in (word.partition("=") for word in words)}
    out: list[str] = []
    for word in words:
        group, _, value = word.partition("=")
        paths = [part for part in value.split(",") if _is_path(part)] if group in GROUPS else []
        out += _spelt(group, value.split(","), paths, given) if paths else [word]
    return out


def _spelt(group: str, values: Sequence[str], paths: Sequence[str], given: dict[str, str]) -> list[str]:
    """What stands for one word that holds paths."""
    if len(paths) < len(values):
        raise cfg.ConfigError(
            f"{group}={','.join(values)} mixes paths and options; give paths alone, or options alone"
        )
    form = given.get(f"{group}.format", "")
    option = form if form in cfg.options(group) else GROUPS[group]
    out = [f"{group}={option}", f"{group}.path={','.join(map(_quoted, paths))}"]
    if len(paths) == 1 and f"{group}.name" not in given:
        out.append(f"{group}.name={_quoted(Path(paths[0]).stem, whole=False)}")
    return out


def _is_path(value: str) -> bool:
    """Whether a value is a path rather than an option: options have neither dots nor slashes."""
    return any(sign in value for sign in "/.~\\") and "(" not in value


def _quoted(path: str, whole: bool = True) -> str:
    """A path as Hydra's grammar takes it; absolute where there is such a file, so that the run can be done again."""
    file = Path(path.strip("'\"")).expanduser()
    text = str(file.resolve() if whole and file.exists() else file)
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
