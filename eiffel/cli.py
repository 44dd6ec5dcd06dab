"""The command `eiffel`: one table of commands, each with its own help."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Command = Callable[[Sequence[str]], int]
Show = Callable[[Path], str]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code (0 done, 1 the run failed, 2 asked for something impossible)."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if words[0] == "--version":
        from eiffel import __version__

        print(f"eiffel {__version__}")
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        from eiffel.config import did_you_mean

        return complain(f"there is no command {name!r}. {did_you_mean(name, COMMANDS)}", 2)
    try:
        return COMMANDS[name][0](rest)
    except ValueError as problem:  # ConfigError, DataError, CheckpointError, ...: written for the user
        if os.environ.get("EIFFEL_TRACEBACK"):
            traceback.print_exc()
        return complain(str(problem), 2)
    except KeyboardInterrupt:
        return complain("interrupted", 130)
    except BrokenPipeError:  # the reader of our output (`| head`) has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def complain(text: str, code: int) -> int:
    """Say on standard error what went wrong; returns the exit code."""
    print(f"eiffel: {text}", file=sys.stderr)
    return code


def overview() -> str:
    """What `eiffel` alone prints."""
    lines = [
        "Eiffel: federated learning that chooses its devices, on the scheduling core of a cluster.",
        "",
        "Usage: eiffel COMMAND ...",
        "",
        *(f"  {name:<10} {about}" for name, (_, about) in COMMANDS.items()),
        "",
        "Start here:",
        "  eiffel sim                                          simulate Eiffel on handwritten digits",
        "  eiffel sim -m strategies=fedavg,eiffel seed=0,1,2   compare it with FedAvg on three seeds",
        "  eiffel cluster strategies=hadar                     schedule the jobs of a GPU cluster",
        "  eiffel report outputs                               one page over all runs in a folder",
        "",
        "`eiffel COMMAND --help` says more.",
    ]
    return "\n".join(lines)


def sim(argv: Sequence[str]) -> int:
    """`eiffel sim`: hand over to Hydra, which composes the configuration and runs one job or a sweep."""
    from eiffel import config as cfg

    def job(config: Any, folder: Path, command: str) -> None:
        from eiffel.simulation import simulate

        simulate(cfg.plain(config), folder, command=command)

    return hydra_app("sim", argv, job, cfg)


def cluster(argv: Sequence[str]) -> int:
    """`eiffel cluster`: one run of a cluster's jobs, or a sweep; ends with a table and a page over it."""
    from eiffel import cluster as jobs
    from eiffel import config as cfg

    def job(config: Any, folder: Path, command: str) -> None:
        cfg.check_kind([f"strategies={config.strategies.name}"], "cluster")
        jobs.simulate(cfg.plain(config), folder, command=command)

    def show(folder: Path) -> str:
        from eiffel import report as pages

        page = pages.report([folder], folder / "report.html")
        return f"{pages.table([folder])}\nreport: {os.path.relpath(page)}"

    jobs.register()
    return hydra_app("cluster", jobs.with_paths(argv), job, cfg, show)


EXAMPLES = {
    "sim": """\
eiffel sim: simulate one federation of devices, or a sweep of them.

  eiffel sim                                          Eiffel on the default data and fleet
  eiffel sim strategies=fedavg rounds=50              another strategy, fewer rounds
  eiffel sim -m strategies=fedavg,eiffel seed=0,1,2   a sweep: every combination, one folder each
  eiffel sim strategies.select.age=0                  switch off one part of a rule
  eiffel sim datasets=fashion_mnist datasets.alpha=0.1 fleet.size=1000
  eiffel sim --cfg job                                print every key and its value, run nothing""",
    "cluster": """\
eiffel cluster: run the jobs of a trace on a cluster under a scheduling policy, or a sweep of runs.

  eiffel cluster                                       Hadar, 480 jobs at once, 60 GPUs of three types
  eiffel cluster strategies=elas trace=lognormal_busy cluster=n16g4
  eiffel cluster -m strategies=yarn_cs,tiresias,elas,gavel,hadar,hadare trace=synthetic_static
  eiffel cluster trace=jobs.csv cluster=cluster.yaml   your own jobs and nodes (docs/traces.md says how)
  eiffel cluster trace=jobs.trace trace.format=gavel   files of Gavel, Philly, Tiresias, Alibaba, Helios
  eiffel cluster trace.jobs=100 trace.load=1.5 trace.arrivals=poisson estimates.kind=wrong
  eiffel cluster --cfg job                             print every key and its value, run nothing""",
}
"""First lines of the help of the commands that Hydra runs."""


def app_help(name: str, cfg: Any) -> str:
    """Examples, the options of every group, and every key with its default."""
    from omegaconf import OmegaConf

    config = composed(name, cfg)
    groups = {str(group): cfg.options(str(group), name) for group in config}
    lines = [f"  {group + '=':12} {', '.join(found)}" for group, found in groups.items() if found]
    keys = OmegaConf.to_yaml(config, resolve=False).replace("\n", "\n  ")
    return "\n".join(
        [
            *(EXAMPLES[name], "", "Groups (choose with group=option):", *lines, ""),
            *("Keys and their defaults (override with key=value):", f"  {keys}".rstrip()),
        ]
    )


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a sweep, as it ended."""

    folder: str
    overrides: list[str]
    status: str
    error: str = ""


def hydra_app(
    name: str, argv: Sequence[str], job: Callable[[Any, Path, str], None], cfg: Any, show: Show | None = None
) -> int:
    """Run `job(config, folder, command)` under Hydra with conf/NAME.yaml, once or for every job of a sweep.

    Errors of composition come with a suggestion. A job that fails does not keep the others from running.
    show: what to print over the folder of all jobs at the end.
    """
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    cfg.register()
    if "--help" in argv or "-h" in argv:
        print(app_help(name, cfg))
        return 0
    cfg.check_kind(argv, name)
    # Hydra would print its own errors and exit; we want to say them in our words.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    jobs: list[Job] = []

    def guarded(config: Any) -> None:
        here = HydraConfig.get()
        folder, overrides = Path(here.runtime.output_dir), list(here.overrides.task)
        try:
            job(config, folder, " ".join([f"eiffel {name}", *overrides]))
            jobs.append(Job(str(folder), overrides, "finished"))
        except Exception as problem:
            jobs.append(Job(str(folder), overrides, "failed", say_failure(problem)))

    sys.argv = [f"eiffel {name}", *argv]
    try:
        hydra.main(version_base=None, config_path=str(cfg.CONF), config_name=name)(guarded)()
    except (HydraException, OmegaConfBaseException) as problem:
        return complain(cfg.explain(problem, composed(name, cfg), name), 2)
    return conclude(jobs, show)


def conclude(jobs: Sequence[Job], show: Show | None = None) -> int:
    """Say where the results lie; keep a sweep's jobs in sweep.json. Returns the exit code."""
    if not jobs:
        return 0
    places = [Path(job.folder) for job in jobs]
    here = places[0] if len(jobs) == 1 else Path(os.path.commonpath(places))
    near = os.path.relpath(here)
    failed = [job for job in jobs if job.status != "finished"]
    if len(jobs) > 1:
        from eiffel.core.checkpoint import write_atomically

        write_atomically(here / "sweep.json", json.dumps([asdict(job) for job in jobs], indent=2).encode())
        print(f"{len(jobs) - len(failed)} of {len(jobs)} jobs finished", end="")
        print("".join(f"\n  failed: {' '.join(job.overrides)}: {job.error}" for job in failed))
    alone = len(jobs) == 1 and failed
    print(f"no results; what was written until then lies in {near}" if alone else f"results: {near}")
    if len(failed) < len(jobs) and show:
        print(show(here))
    elif len(failed) < len(jobs):
        print(f"one page over them: eiffel report {near}")
    return 1 if failed else 0


def say_failure(problem: Exception) -> str:
    """A job failed: say so, with a traceback unless the message was written for the user."""
    known = isinstance(problem, ValueError)
    if not known or os.environ.get("EIFFEL_TRACEBACK"):
        traceback.print_exception(problem)
    text = str(problem) if known else f"{type(problem).__name__}: {problem}"
    complain(text, 1)
    return text


def composed(name: str, cfg: Any) -> Any:
    """The configuration without overrides, to find near keys in; None when even that fails."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    with contextlib.suppress(Exception):
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(cfg.CONF), version_base=None):
            return compose(name)
    return None


def resume(argv: Sequence[str]) -> int:
    """`eiffel resume RUN`."""
    parser = argparse.ArgumentParser(
        "eiffel resume", description="Go on exactly where a killed run stopped: same weights, same choices."
    )
    parser.add_argument("run", type=Path, help="the run's folder")
    chosen = parser.parse_args(argv)
    from eiffel.report.kinds import is_cluster

    if is_cluster(chosen.run):
        raise ValueError(f"{chosen.run} is a run of a cluster, which keeps no checkpoints; start it again")
    from eiffel.simulation import resume as go_on

    summary = go_on(chosen.run, command=f"eiffel resume {chosen.run}")
    return 0 if summary["status"] == "finished" else 1


def report(argv: Sequence[str]) -> int:
    """`eiffel report RUN ...`."""
    parser = argparse.ArgumentParser(
        "eiffel report", description="One self-contained page over any set of runs, and figures for a paper."
    )
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, or folders that hold them")
    parser.add_argument(
        "--out", type=Path, help="where the page goes (default: report.html in the first folder)"
    )
    parser.add_argument("--target", type=float, help="accuracy (0..1) to compare costs at")
    parser.add_argument(
        "--share", type=float, default=0.98, help="or: share of the first strategy's final one"
    )
    parser.add_argument("--figures", type=Path, metavar="DIR", help="also write every plot as SVG and PDF")
    chosen = parser.parse_args(argv)
    from eiffel import report as pages

    if not any(path.exists() for path in chosen.runs):
        raise ValueError(f"there is nothing at {', '.join(map(str, chosen.runs))}. Name folders of runs")
    aim = {"share": chosen.share, "target": chosen.target}
    print(pages.table(chosen.runs, **aim))
    page = pages.report(chosen.runs, chosen.out or chosen.runs[0] / "report.html", **aim)
    if chosen.figures:
        pages.figures(chosen.runs, chosen.figures, **aim)
        print(f"figures: {chosen.figures}")
    print(f"report: {page}")
    return 0


def explain(argv: Sequence[str]) -> int:
    """`eiffel explain RUN --round R --device D`, or `eiffel explain RUN --job J`."""
    parser = argparse.ArgumentParser(
        "eiffel explain",
        description="Why a device was, or was not, chosen in a round; or why a job of a cluster waited.",
    )
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--round", type=int, help="of a federation")
    parser.add_argument("--device", type=int, help="its number in the fleet, from 0")
    parser.add_argument("--job", help="of a cluster: the job's id in the trace")
    chosen = parser.parse_args(argv)
    from eiffel import report as pages

    print(pages.explain(chosen.run, chosen.round, chosen.device, chosen.job))
    return 0


def reproduce(argv: Sequence[str]) -> int:
    """`eiffel reproduce [NAME ...]`."""
    from eiffel.reproduce import main as run

    return run(argv)


def tune(argv: Sequence[str]) -> int:
    """`eiffel tune STRATEGY --data NAME`."""
    from eiffel.tune import main as run

    return run(argv)


COMMANDS: dict[str, tuple[Command, str]] = {
    "sim": (sim, "simulate a federation of devices, or a sweep of them"),
    "cluster": (cluster, "run the jobs of a cluster under a scheduling policy, or a sweep"),
    "resume": (resume, "go on where a killed run stopped"),
    "report": (report, "one HTML page over any set of runs"),
    "explain": (explain, "why a device was, or was not, chosen; why a job waited"),
    "reproduce": (reproduce, "make the project's tables again and check its gates"),
    "tune": (tune, "search a strategy's learning rate and local steps on a data set"),
}
"""Every command with its one line in the overview."""


if __name__ == "__main__":
    sys.exit(main())
