"""What benchmarks share: turns, medians, a table, and a dated JSON that names the hardware."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any


def cpu_seconds(pids: Iterable[int] = ()) -> float:
    """Processor time used so far by this process and by those (Linux)."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def in_turn(
    variants: Mapping[str, Callable[[int], Any]], turns: int, pids: Callable[[], Iterable[int]] = tuple
) -> dict[str, list[tuple[float, float]]]:
    """(wall, processor) seconds of every call: all variants take turns, so that load disturbs them alike."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for turn in range(turns):
        for name, call in variants.items():
            began, used = time.perf_counter(), cpu_seconds(pids())
            call(turn)
            seconds[name].append((time.perf_counter() - began, cpu_seconds(pids()) - used))
    return seconds


def rows(seconds: Mapping[str, list[tuple[float, float]]], reference: str) -> list[dict[str, Any]]:
    """Medians, and ratios of medians (reference / variant: more than 1 is better than the reference)."""
    wall = {name: statistics.median(w for w, _ in s) for name, s in seconds.items()}
    used = {name: statistics.fmean(c for _, c in s) for name, s in seconds.items()}
    found = [
        {
            "variant": name,
            "median_ms": 1e3 * wall[name],
            "min_ms": 1e3 * min(w for w, _ in seconds[name]),
            "cpu_ms": 1e3 * used[name],
            "turns": len(seconds[name]),
            "ratio": wall[reference] / wall[name],
            "ratio_of_min": min(seconds[reference])[0] / min(seconds[name])[0],
            "cpu_ratio": used[reference] / max(used[name], 1e-9),
        }
        for name in seconds
    ]
    return [{k: None if v != v else v for k, v in row.items()} for row in found]  # NaN is no JSON


COLUMNS = ("median_ms", "min_ms", "cpu_ms", "turns", "ratio", "ratio_of_min", "cpu_ratio")


def table(title: str, found: list[dict[str, Any]]) -> None:
    """Print rows. cpu_ratio is what a machine with nothing else to do would show in one process."""
    found = [{k: math.nan if v is None else v for k, v in row.items()} for row in found]
    print(f"\n{title}\n  {'variant':<30}" + "".join(f"{c:>14}" for c in COLUMNS))
    for row in found:
        print(f"  {row['variant']:<30}" + "".join(f"{row[c]:>14.2f}" for c in COLUMNS), flush=True)


def hardware() -> dict[str, Any]:
    """Processor, cores this process may use, memory, load when asked, versions."""
    import numpy
    import torch

    model = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": list(os.getloadavg()),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "torch": torch.__version__,
    }


def write(name: str, results: Mapping[str, Any]) -> Path:
    """benchmarks/results/NAME-DATE.json, whole or not at all."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    path = Path(__file__).parent / "results" / f"{name}-{today}.json"
    path.parent.mkdir(exist_ok=True)
    if "workloads" in results and path.exists():
        earlier = json.loads(path.read_text()).get("workloads", {})
        results = {**results, "workloads": {**earlier, **results["workloads"]}}
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"date": today, "hardware": hardware(), **results}, indent=1) + "\n")
    os.replace(part, path)
    print(f"\nwritten to {path}")
    return path
