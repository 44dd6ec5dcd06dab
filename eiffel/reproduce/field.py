"""The runs behind the tables: composed, run one to a process, kept by what they are, and never made twice."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from eiffel import __version__
from eiffel import config as cfg
from eiffel.reproduce.sims import Data, Method, Sim, SimsError

QUIET = ("engine=single", "report=quiet", "save_every=1000000")
"""One process and one core a run, no words, no checkpoint but at the end: a run takes seconds."""


STAND_INS = ("uniform", "fedavg")
"""Whose learning rate and local steps serve a strategy that has not been searched on a data set, in this order."""

Answer = TypeVar("Answer")
Why = tuple[str, str]
"""Kind of an error and its words."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run: what Hydra is asked for, and the seed."""

    overrides: tuple[str, ...]
    seed: int

    @property
    def command(self) -> str:
        """What a person types for the same run."""
        words = [o for o in self.overrides if o not in QUIET]
        return " ".join(
            ["eiffel sim", *(f"'{w}'" if "[" in w or "{" in w else w for w in words), f"seed={self.seed}"]
        )

    @property
    def config(self) -> dict[str, Any]:
        """The composed configuration."""
        return composed(self.overrides) | {"seed": self.seed}

    @property
    def key(self) -> str:
        """What the run is, in a few letters: runs that are alike in everything share it."""
        told = {k: v for k, v in self.config.items() if k not in ("report", "save_every")}
        return hashlib.sha256(json.dumps([__version__, told], sort_keys=True).encode()).hexdigest()[:12]

    def folder(self, out: Path) -> Path:
        """Where the run lies."""
        config = self.config
        name = f"{config['datasets']['name']}-{config['strategies']['name']}-seed{self.seed}-{self.key}"
        return out / "runs" / name


@cache
def composed(overrides: tuple[str, ...]) -> dict[str, Any]:
    """The configuration of conf/sim.yaml under these overrides. Raises ConfigError in words for the user."""
    cfg.register()
    os.environ["HYDRA_FULL_ERROR"] = "1"
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(cfg.CONF), version_base=None):
            return cfg.plain(compose("sim", list(overrides)))
    except (HydraException, OmegaConfBaseException) as problem:
        raise cfg.ConfigError(f"{' '.join(overrides)}: {cfg.explain(problem, None)}") from problem


def job(
    method: Method, data: Data, seed: int, rounds: int | None, tuned: Mapping[str, Any] | None = None
) -> Job:
    """The run of a strategy on a data set: data's settings, tuned ones, then the method's own."""
    own = searched(method, data, tuned or {}) if method.tuned else {}
    settings = {**data.set, **own, **method.set} | ({"rounds": rounds} if rounds else {})
    words = [f"{key}={text(value)}" for key, value in settings.items()]
    return Job((f"datasets={data.card}", f"strategies={method.strategy}", *words, *QUIET), seed)


def searched(method: Method, data: Data, tuned: Mapping[str, Any]) -> dict[str, Any]:
    """What `eiffel tune` found for a strategy; where it was not searched, what it found for a stand-in."""
    if own := entry_of(method, data, tuned):
        return dict(own["set"])
    others = (tuned.get(name, {}).get(data.name) for name in STAND_INS)
    found = next((dict(entry["set"]) for entry in others if entry), {})
    plain = composed((f"datasets={data.card}", f"strategies={method.strategy}", *QUIET))["strategies"]
    fixed = plain["pace"].get("steps") is not None and method.strategy != "afl"
    return {k: v for k, v in found.items() if fixed or k != "strategies.pace.steps"}


def entry_of(method: Method, data: Data, tuned: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What sims/tuned.yaml has for a strategy on this data set, else on the one that the file says is like it."""
    found: Mapping[str, Mapping[str, Any]] = tuned.get(method.strategy, {})
    return found.get(data.name) or found.get(data.tuned)


def tuning(sim: Sim, tuned: Mapping[str, Any]) -> list[str]:
    """How the settings of a file's runs were found, in sentences; none where no run has searched settings."""
    pairs = [(m, d) for d in sim.data for m in sim.runs if m.tuned and m.runs_on(d.name)]
    if not pairs:
        return []
    entries = [(m.name, d.name, entry_of(m, d, tuned)) for m, d in pairs]
    found = [(run, data, e) for run, data, e in entries if e]
    edges = [
        (f"{run} ({', '.join(k.split('.')[-1] for k in e['edge'])})", data)
        for run, data, e in found
        if e["edge"]
    ]
    borrowed = [(run, data) for run, data, e in entries if not e]
    words = []
    if found:
        most = max(len(e["trials"]) for _, _, e in found)
        seeds = ", ".join(map(str, sorted({s for _, _, e in found for s in e["seeds"]})))
        words.append(
            "Learning rate, local steps and a rule's own knob are those that `eiffel tune` chose for accuracy and "
            f"bytes (sims/tuned.yaml), in at most {most} trials for each strategy and data set, on seeds {seeds}. "
            "That is not a choice for fairness or joules."
        )
    if edges:
        words.append(f"On the edge of the searched grid, so that better may lie beyond: {_by_data(edges)}.")
    if borrowed:
        words.append(
            f"Not searched, so run with the learning rate and local steps found for {' or '.join(STAND_INS)}, or with "
            f"their cards' where there are none either: {_by_data(borrowed, len(sim.runs))}."
        )
    alike = [(m.name, f"{d.name} (from {d.tuned})") for m, d in pairs if _from_alike(m, d, tuned)]
    if alike:
        words.append(f"Searched on a data set that is like it: {_by_data(alike, len(sim.runs))}.")
    return words


def _from_alike(method: Method, data: Data, tuned: Mapping[str, Any]) -> bool:
    found = tuned.get(method.strategy, {})
    return data.name not in found and data.tuned in found


def _by_data(pairs: Sequence[tuple[str, str]], everyone: int = 0) -> str:
    """From (what, data set): on this one, two; on that all."""
    groups: dict[str, list[str]] = {}
    for what, data in pairs:
        groups.setdefault(data, []).append(what)
    return "; ".join(
        f"on {data} {'all' if len(names) == everyone else ', '.join(names)}" for data, names in groups.items()
    )


def jobs(sim: Sim, tuned: Mapping[str, Any]) -> dict[tuple[str, str, int], Job]:
    """Every run of a file by (data, run, seed). Raises SimsError naming file and run where one cannot be built."""
    found = {}
    for data in sim.data:
        for method in [m for m in sim.runs if m.runs_on(data.name)]:
            first = job(method, data, sim.seeds[0], sim.rounds[data.name], tuned)
            try:
                rounds = int(first.config["rounds"] or first.config["datasets"]["rounds"])
                cfg.build_method(first.config, rounds)
            except ValueError as problem:
                raise SimsError(
                    f"sims/{sim.name}.yaml: runs.{method.name} on {data.name}: {problem}"
                ) from problem
            for seed in sim.seeds:
                found[data.name, method.name, seed] = Job(first.overrides, seed)
    return found


def text(value: Any) -> str:
    """A value as Hydra's command line takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{text(v)}" for key, v in value.items()) + "}"
    return "null" if value is None else json.dumps(value) if isinstance(value, list) else str(value)


def read_tuned(file: Path) -> dict[str, Any]:
    """Strategy to data set to {set, ...} as `eiffel tune` left it; empty where there is no such file."""
    found = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}
    if not isinstance(found or {}, dict):
        raise SimsError(f"{file}: must map strategies to data sets; run `eiffel tune` again")
    return found or {}


def forget(unwanted: Sequence[Job], out: Path) -> None:
    """Remove these runs from `out`."""
    for one in unwanted:
        shutil.rmtree(one.folder(out), ignore_errors=True)


def finished(folder: Path) -> bool:
    """Whether a run lies there whole."""
    try:
        return bool(json.loads((folder / "summary.json").read_text())["status"] == "finished")
    except (OSError, ValueError, KeyError):
        return False


def perform(wanted: Sequence[Job], out: Path, pool: Workers, tell: Callable[[str], None]) -> dict[str, Why]:
    """Make the runs that do not lie in `out` yet; returns key to kind and reason of those that failed.

    Long runs first would be faster, but runs of one data set in a row find its file in the disk's cache.
    """
    unique = {j.key: j for j in wanted}
    todo = [j for j in unique.values() if not finished(j.folder(out))]
    if len(unique) > len(todo):
        tell(f"{len(unique) - len(todo)} runs lie in {out} already and are used as they are")
    if not todo:
        return {}
    forget(todo, out)  # what a broken-off command left behind
    failed: dict[str, Why] = {}
    began = time.monotonic()
    for count, (one, (kind, why), seconds) in enumerate(pool.each(todo, out), 1):
        pool.spent += seconds
        if kind:
            failed[one.key] = kind, why
        spent = time.monotonic() - began
        left = spent / count * (len(todo) - count)
        words = f"{seconds:.1f} s of processor" if not kind else f"failed: {why}"
        tell(f"[{count}/{len(todo)}] {one.folder(out).name}: {words}; about {left:.0f} s left")
    return failed


class Workers:
    """Processes that make runs, started when first needed and kept: each loads torch and the pictures once.

    With `count` 1 everything happens in the calling process. A context manager: on leaving, what waits is dropped.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.spent = 0.0  # processor seconds of all runs so far
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *why: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            spawn = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.count, spawn, initializer=end_with_parent)
        return self._pool

    def submit(self, task: Callable[..., Answer], *inputs: Any) -> Callable[[], Answer]:
        """Begin a task; returns what waits for its result. With one worker it is done when asked for."""
        if self.count <= 1:
            return lambda: task(*inputs)
        return self._started().submit(task, *inputs).result

    def each(self, todo: Sequence[Job], out: Path) -> Iterator[tuple[Job, Why, float]]:
        """Each run as it ends, with the reason if it failed and its processor seconds."""
        if self.count <= 1:
            for one in todo:
                yield one, *make(one.config, one.folder(out), one.command)
            return
        pool = self._started()
        waiting: dict[Future[tuple[Why, float]], Job] = {
            pool.submit(make, one.config, one.folder(out), one.command): one for one in todo
        }
        for done in as_completed(waiting):
            try:
                yield waiting[done], *done.result()
            except BrokenProcessPool as problem:
                raise RuntimeError(
                    f"a worker died on {waiting[done].command}; was memory short?"
                ) from problem


def end_with_parent() -> None:
    """End this worker when the process that started it is gone, killed ones included: nobody would read its answer."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def make(config: Mapping[str, Any], folder: Path, command: str) -> tuple[Why, float]:
    """Run one; returns the error's kind and words ("", "" if there was none) and its processor seconds.

    The configuration comes from the process that composed it: a card edited meanwhile changes nothing.
    """
    from eiffel.simulation import simulate

    began = time.process_time()
    try:
        summary = simulate(config, folder, command=command)
        why = ("", "") if summary["status"] == "finished" else ("Interrupted", str(summary["why"]))
        return why, time.process_time() - began
    except Exception as problem:
        if not isinstance(problem, ValueError):
            traceback.print_exc()
        return (type(problem).__name__, str(problem)), time.process_time() - began
