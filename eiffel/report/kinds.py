"""Runs of federations and runs of clusters, told apart: each gets the table, the page and the answers of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eiffel.core.checkpoint import write_atomically
from eiffel.report import (
    answer,
    cluster_answer,
    cluster_folder,
    cluster_page,
    cluster_table,
    console,
    page,
    paper,
)
from eiffel.report.cluster_folder import JOBS
from eiffel.report.folder import SUMMARY
from eiffel.report.read import find, load, read_summary


def is_cluster(run: Path) -> bool:
    """Whether a folder holds a run of the cluster."""
    return read_summary(Path(run) / SUMMARY)[0].get("kind") == "cluster" or (Path(run) / JOBS).exists()


def sort(runs: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """The run folders among or below these, those of federations and those of clusters."""
    paths = find(runs)
    return [p for p in paths if not is_cluster(p)], [p for p in paths if is_cluster(p)]


def report(runs: Sequence[Path], out: Path, share: float = page.SHARE, target: float | None = None) -> Path:
    """Write one page over these runs (folders of runs, or of sweeps) and return where it is.

    share: the target accuracy of federations is this share of the first strategy's own final one, unless
    target, a fraction, is given. Runs of clusters come after those of federations. Raises ValueError where no
    path is given.
    """
    federated, clusters = sort(runs)
    if not federated and not clusters:
        raise ValueError(
            "no run was named; give at least one run folder, such as outputs/2025-01-31/12-00-00"
        )
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    parts = [page.part([load(path) for path in federated], out.parent, share, target)] if federated else []
    if clusters:
        first = sum(len(part.series) for part in parts)
        parts.append(cluster_page.part([cluster_folder.load(path) for path in clusters], out.parent, first))
    write_atomically(out, page.document(parts).encode())
    return out


def explain(run: Path, round: int | None = None, device: int | None = None, job: str | None = None) -> str:
    """Why a device was, or was not, chosen in a round; or why a job waited. Raises ValueError."""
    if is_cluster(run):
        if job is None:
            raise ValueError(f"{run} is a run of a cluster: name a job, eiffel explain {run} --job ID")
        return cluster_answer.explain_job(run, job)
    if round is None or device is None:
        raise ValueError(
            f"{run}: name a round and a device, eiffel explain {run} --round R --device D"
            + ("; --job is for runs of a cluster" if job is not None else "")
        )
    return answer.explain(run, round, device)


def table(runs: Sequence[Path], share: float = page.SHARE, target: float | None = None) -> str:
    """Compare runs in a few lines of text; see `eiffel.report.page.report`."""
    federated, clusters = sort(runs)
    parts = [console.table(federated, share, target)] if federated or not clusters else []
    return "\n\n".join([*parts, *([cluster_table.table(clusters)] if clusters else [])])


def figures(
    runs: Sequence[Path], folder: Path, share: float = page.SHARE, target: float | None = None
) -> list[Path]:
    """Draw the charts of the federations among these runs for a paper; see `eiffel.report.paper.figures`."""
    federated, clusters = sort(runs)
    if clusters and not federated:
        raise ValueError(
            "--figures draws runs of federations; these are runs of clusters, whose charts are in the page"
        )
    return paper.figures(federated, folder, share, target)
