"""Records to Weights & Biases: offline unless there is a key, a group a sweep, a run a job, the same names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eiffel.report.folder import Columns, plain


class Wandb:
    """Logs a run's records.

    path: the run's folder; its run id is made from it, so that a resumed run goes on in the same one.
    project: of wandb. group: of the runs of one sweep. name: of the run. config: the resolved configuration.
    mode: online, offline, disabled; None: $WANDB_MODE, else online with a key, else offline. Records up to
    round `after`, and any that come twice, are not logged again. Raises ImportError, saying what to install,
    without wandb.
    """

    def __init__(
        self,
        path: Path,
        *,
        project: str = "eiffel",
        group: str | None = None,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        mode: str | None = None,
        after: int = 0,
    ) -> None:
        try:
            import wandb  # here, so that nothing but this sink needs it
        except ImportError as error:
            raise ImportError(
                "report=wandb needs wandb; install it with: pip install 'eiffel-fl[wandb]'"
            ) from error
        path = Path(path).absolute()
        self._after = after
        chosen: Any = mode or os.environ.get("WANDB_MODE") or ("online" if _has_key() else "offline")
        self._run: Any = wandb.init(
            dir=str(path),
            id=run_id(path),
            resume="allow",
            project=project,
            group=group or path.parent.name,
            name=name or path.name,
            config=plain(config or {}),
            mode=chosen,
            reinit="create_new",
            settings=wandb.Settings(console="off"),  # our own progress is not a figure of the run
        )

    def record(self, record: Mapping[str, Any], clients: Columns | None = None) -> None:
        """Log a round once, under the names it has in records.jsonl, with dots for nesting."""
        number = int(record["round"])
        if self._run is None or number <= self._after:
            return
        self._after = number
        self._run.log(flat(record), step=number)

    def summary(self, summary: Mapping[str, Any]) -> None:
        """At the end, the final figures, and the run is finished whatever its status."""
        if self._run is None or summary.get("status") == "running":
            return
        parts = {
            key: summary[key] for key in ("status", "why", "final", "totals", "targets") if key in summary
        }
        for name, value in flat(parts).items():
            self._run.summary[name] = value
        self.close(failed=summary.get("status") == "failed")

    def close(self, failed: bool = False) -> None:
        """Finish the run. Safe to call twice."""
        run, self._run = self._run, None
        if run is not None:
            run.finish(exit_code=int(failed))


def run_id(path: Path) -> str:
    """An id that is the same for a folder whenever it is resumed, and another for every other folder."""
    return hashlib.sha256(str(Path(path).absolute()).encode()).hexdigest()[:16]


def flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested figures under dotted names; what is not known (null) is left out."""
    out: dict[str, Any] = {}
    for key, value in plain(record).items():
        if isinstance(value, dict):
            out |= flat(value, f"{prefix}{key}.")
        elif value is not None:
            out[f"{prefix}{key}"] = value
    return out


def _has_key() -> bool:
    """Whether wandb could log in: a key in the environment or in the netrc file that it writes."""
    netrc = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    return bool(os.environ.get("WANDB_API_KEY")) or (netrc.is_file() and "api.wandb.ai" in netrc.read_text())
