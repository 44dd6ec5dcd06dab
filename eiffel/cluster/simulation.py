"""One run of a cluster: configuration -> trace, nodes, policy -> the world -> run folder."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from eiffel import config as cfg
from eiffel.core import bounds
from eiffel.core.jobs import Floats, Nodes, Policy, Trace
from eiffel.core.measures_jobs import isolated_jct
from eiffel.report import cluster_folder as folder
from eiffel.report.cluster_progress import Progress
from eiffel.report.versions import versions
from eiffel.schedule import policy
from eiffel.worlds import cluster as world
from eiffel.worlds.cluster_estimates import Estimates, Known, Learned, Wrong
from eiffel.worlds.cluster_run import ClusterRun
from eiffel.worlds.cluster_sims import measures
from eiffel.worlds.traces import load_nodes, load_trace, stop_early
from eiffel.worlds.watch import Watched

Json = dict[str, Any]
MODES = ("slot", "event")


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run is made of."""

    trace: Trace
    nodes: Nodes
    policy: Policy
    declared: Floats  # (J,) steps, as the scheduler is told
    settings: Mapping[str, Any]  # what `world.simulate` takes beside


def assemble(config: Mapping[str, Any]) -> Parts:
    """Load trace and nodes and make the policy. Raises TraceError or ConfigError in words for the user."""
    card = config["strategies"]
    if card.get("kind") != "cluster":
        raise cfg.ConfigError(cfg.wrong_kind(str(card.get("name")), "cluster"))
    chosen = policy(**card["policy"])
    nodes = load_nodes(_given(config["cluster"]))
    trace = load_trace(_given(config["trace"]), nodes.types, nodes)
    declared = trace.work
    share = float(config["stop_early"])
    if not 0 <= share <= 1:
        raise cfg.ConfigError(f"stop_early is {share}; it is a share of the jobs, from 0 to 1")
    if share:
        trace, declared = stop_early(trace, share, int(config["seed"]))
    return Parts(trace, nodes, chosen, declared, _settings(config, chosen, nodes))


def _given(section: Mapping[str, Any]) -> Json:
    """The options that have a value."""
    return {key: value for key, value in section.items() if value is not None}


def _settings(config: Mapping[str, Any], chosen: Policy, nodes: Nodes) -> Json:
    """The arguments of `world.simulate`, checked."""
    if config["mode"] not in MODES:
        raise cfg.ConfigError(f"mode is {config['mode']!r}. {cfg.did_you_mean(config['mode'], MODES)}")
    believed = {"efficiency": 1.0, "consolidate_s": 10.0}
    worth = {
        key: float(getattr(chosen, key, usual) if config[key] is None else config[key])
        for key, usual in believed.items()
    }
    return {
        "slot_s": float(config["slot_s"]),
        "restart_s": float(config["restart_s"]),
        "seed": int(config["seed"]),
        "mode": config["mode"],
        "outages": [_outage(o, k, len(nodes)) for k, o in enumerate(config["outages"])],
        "estimates": _estimates(config["estimates"], int(config["seed"])),
        "until_s": np.inf if config["until_s"] is None else float(config["until_s"]),
        **worth,
    }


def _outage(entry: Mapping[str, Any], place: int, nodes: int) -> world.Outage:
    """An entry of `outages`."""
    outage = cfg.construct(world.Outage, entry, f"outages[{place}]")
    if not 0 <= outage.node < nodes or not 0 <= outage.down < outage.up:
        raise cfg.ConfigError(
            f"outages[{place}] is {dict(entry)}; a node is a number from 0 to {nodes - 1}, and it goes (down, s) "
            "before it returns (up, s)"
        )
    return outage  # type: ignore[no-any-return]


def _estimates(section: Mapping[str, Any], seed: int) -> Estimates:
    """What the scheduler is to believe of speeds."""
    kind, error, prior = section["kind"], float(section["error"]), section["prior"]
    if kind == "learned" and not prior:
        raise cfg.ConfigError(
            "estimates.prior is missing: estimates.kind=learned starts from a speed for each device type, "
            "e.g. 'estimates.prior=[3,2,1]'"
        )
    if kind == "wrong" and not 0 <= error < 1:
        raise cfg.ConfigError(f"estimates.error is {error}; it must be in [0, 1)")
    table: dict[str, Callable[[], Estimates]] = {
        "known": Known,
        "wrong": lambda: Wrong(error, seed),
        "learned": lambda: Learned(tuple(float(p) for p in prior)),
    }
    if kind not in table:
        raise cfg.ConfigError(f"estimates.kind is {kind!r}. {cfg.did_you_mean(str(kind), table)}")
    return table[kind]()


def simulate(config: Mapping[str, Any], path: Path, *, command: str = "") -> Json:
    """Run a trace to its end and keep everything in the folder `path`; returns its summary.

    Raises ConfigError where the folder holds a run already, and whatever `assemble` raises.
    """
    if (path / folder.CONFIG).exists():
        raise cfg.ConfigError(f"{path} already holds a run. Choose another folder (hydra.run.dir=...)")
    path.mkdir(parents=True, exist_ok=True)
    folder.write_text(path / folder.CONFIG, OmegaConf.to_yaml(OmegaConf.create(dict(config))))
    began = time.monotonic()
    summary = about(config, command)
    folder.summary(path, summary)
    try:
        summary |= _run(config, path)
    except BaseException as problem:
        why = str(problem) if isinstance(problem, ValueError) else f"{type(problem).__name__}: {problem}"
        folder.summary(path, summary | {"status": "failed", "why": why, "wall_s": time.monotonic() - began})
        raise
    summary |= {"wall_s": time.monotonic() - began, "finished": _now()}
    folder.summary(path, summary)
    return summary


def _run(config: Mapping[str, Any], path: Path) -> Json:
    """The run itself: its tables are written, the rest of its summary is returned."""
    parts = assemble(config)
    with Progress(config["strategies"]["name"], len(parts.trace), str(config["progress"])) as progress:
        watched = Watched(parts.policy, len(parts.trace), progress)
        run = world.simulate(parts.trace, parts.nodes, watched, declared=parts.declared, **parts.settings)
    fair = isolated_jct(run.trace, run.nodes, run.admitted)
    folder.write_tables(path, run, watched.waits(), fair)
    told = describe(config, parts) | figures(run, fair, bool(config["bounds"]))
    ended = "every job that was let in has ended"
    why = ended if run.complete else f"stopped at {config['until_s']} s of the trace (until_s)"
    return told | {"status": "finished" if run.complete else "stopped", "why": why}


def about(config: Mapping[str, Any], command: str) -> Json:
    """What was asked for: enough to do it again."""
    return {
        "kind": "cluster",
        "status": "running",
        "command": command,
        "overrides": command.split()[2:],
        "seed": config["seed"],
        "started": _now(),
        "strategy": {"name": config["strategies"]["name"], "card": config["strategies"]},
        "versions": versions(),
    }


def describe(config: Mapping[str, Any], parts: Parts) -> Json:
    """What was found: the trace with its hash, the nodes, every number of the policy."""
    trace, nodes = parts.trace, parts.nodes
    listed = _given(config["trace"])
    return {
        "trace": {
            "name": listed.get("name") or listed["format"],
            "path": listed.get("path"),
            "jobs": len(trace),
            "gpus_wanted": int(trace.gang.sum()),
            "last_arrival_s": float(trace.arrival.max(initial=0.0)),
            "sha256": fingerprint(trace),
        },
        "cluster": {
            "name": _given(config["cluster"]).get("name") or "cluster",
            "gpus": nodes.total,
            "types": dict(zip(nodes.types, nodes.capacity().tolist(), strict=True)),
            "nodes": folder.node_groups(nodes),
        },
        "policy": {"kind": config["strategies"]["policy"]["kind"], **_numbers(parts.policy)},
        "settings": {key: _shown(value) for key, value in parts.settings.items()},
    }


def _shown(value: Any) -> Any:
    """A setting as JSON holds it."""
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return _numbers(value) if is_dataclass(value) else value


def _numbers(thing: Any) -> Json:
    """The fields of a dataclass, with its class named."""
    return {"class": type(thing).__name__, **asdict(thing)}


def figures(run: ClusterRun, fair: Floats, limits: bool) -> Json:
    """The measures, the physical limits, and how far the run was from them (1: at the limit)."""
    found = asdict(measures(run, fair))
    out: Json = {"measures": found, "rejected": dict(list(run.rejections())[:100])}
    out["waited_h"] = {
        reason: hours
        for reason, hours in folder.waited_hours(run).items()
        if hours > 0 and np.isfinite(hours)
    }
    if limits:
        own = run.trace.take(np.flatnonzero(run.admitted))
        least = {"ttd": bounds.makespan(own, run.nodes), "jct_mean": bounds.completion(own, run.nodes)}
        out["bounds"] = {key: seconds / 3600 for key, seconds in least.items()}
        out["ratios"] = {
            key: found[key] / hours if hours > 0 and run.complete else float("nan")
            for key, hours in out["bounds"].items()
        }
    return out


def fingerprint(trace: Trace) -> str:
    """A hash of everything in a trace: the same jobs, whatever file or generator they came from."""
    seen = hashlib.sha256()
    for text in (trace.id, trace.types, trace.model):
        seen.update("\x1f".join(text).encode())
    for array in (
        trace.arrival,
        trace.work,
        trace.gang,
        trace.epochs,
        trace.weight,
        trace.rate,
        trace.spread,
    ):
        seen.update(np.ascontiguousarray(array).tobytes())
    return seen.hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
