"""The crew of several machines: the same learner in actors of an existing Ray cluster.

Samples are placed once on every machine (Ray's object store), the model once a round; blocks are pulled, the
costliest first, and only their sums travel back. A lost actor is restarted by Ray and its block done again.
Install ray yourself (`pip install ray`); nothing else in Eiffel needs it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eiffel.core.model import Params
from eiffel.train import models
from eiffel.train.learner import Learner
from eiffel.train.task import Task
from eiffel.train.worker import Loan, Rows

if TYPE_CHECKING:
    from eiffel.data.federated import Federated
    from eiffel.train.engine import Block

RETRIES = 3  # times that Ray restarts an actor for one block


class Member:
    """What an actor is: a learner on one thread."""

    def __init__(self, loan: Loan, card: models.Card, settings: Mapping[str, Any]) -> None:
        torch.set_num_threads(1)
        self.learner = Learner(loan, card, settings)

    def train(self, params: Params, task: Task, whole: bool) -> tuple[Any, ...]:
        """The block's sums (m, P), its whole updates (k, P) if asked for, and what `Learner.train` says."""
        size = self.learner.flat.size
        sums = torch.zeros(len(task.weights), size)
        full = torch.zeros(int(task.row.max()) + 1, size) if whole else None
        told = self.learner.train(_start(params), task, sums, full)
        return sums.numpy(), None if full is None else full[torch.from_numpy(task.row)].numpy(), told

    def measure(self, what: str, params: Params, items: tuple[Any, ...]) -> Any:
        """`Learner.<what>`."""
        return getattr(self.learner, what)(_start(params), *items)


def _start(params: Params) -> Tensor:
    """The model as a tensor; Ray lends read-only memory, and torch wants a say in it."""
    return torch.from_numpy(params.copy())


class Cluster:
    """Implements `eiffel.train.engine.Crew` over Ray actors, one a CPU unless `workers` says otherwise."""

    def __init__(
        self, data: Federated, card: models.Card, settings: Mapping[str, Any], learner: Learner
    ) -> None:
        self.ray = _connect(settings)
        self.size, self.budget = learner.flat.size, float(settings.get("budget") or 600.0)
        train, test = (Rows(p.index, p.start) for p in (data.train, data.test))
        loan = Loan(data.name, np.asarray(data.x), data.y, data.classes, data.metric, train, test)
        placed = self.ray.put(loan)
        workers = int(settings.get("workers") or self.ray.cluster_resources().get("CPU", 1))
        actor = self.ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=RETRIES)(Member)
        self.actors = [actor.remote(placed, dict(card), dict(settings)) for _ in range(workers)]
        self._params: Any = None

    def download(self, params: Params) -> None:
        """Put the model into the object store."""
        self._params = self.ray.put(np.ascontiguousarray(params, np.float32))

    def train(self, tasks: list[Task], full: NDArray[np.float32] | None) -> tuple[Tensor, list[Block]]:
        """As `Crew.train`: sums are added in the order of the blocks."""
        whole = full is not None
        answers = self._deal([lambda a, t=t: a.train.remote(self._params, t, whole) for t in tasks])  # type: ignore[misc]
        total = _start(answers[0][0])
        for sums, _, _ in answers[1:]:
            total += _start(sums)
        for task, (_, rows, _) in zip(tasks, answers, strict=True):
            if full is not None:
                full[task.row] = rows
        return total, [told for _, _, told in answers]

    def measure(self, what: str, jobs: list[tuple[Any, ...]]) -> list[Any]:
        """As `Crew.measure`."""
        return self._deal([lambda a, j=j: a.measure.remote(what, self._params, j) for j in jobs])  # type: ignore[misc]

    def close(self) -> None:
        """End the actors; the cluster stays."""
        for actor in self.actors:
            self.ray.kill(actor)
        self.actors = []

    def _deal(self, calls: Sequence[Callable[[Any], Any]]) -> list[Any]:
        """Give every free actor the next call; answers in order. TimeoutError when nobody answers."""
        answers: dict[int, Any] = {}
        todo, free = deque(range(len(calls))), list(self.actors)
        busy: dict[Any, tuple[int, Any]] = {}
        while len(answers) < len(calls):
            while todo and free:
                k, actor = todo.popleft(), free.pop()
                busy[calls[k](actor)] = k, actor
            ready, _ = self.ray.wait(list(busy), num_returns=1, timeout=self.budget)
            if not ready:
                raise TimeoutError(f"no actor answered for {self.budget:g} s; raise engine.budget if normal")
            for ref in ready:
                k, actor = busy.pop(ref)
                answers[k] = self.ray.get(ref)
                free.append(actor)
        return [answers[k] for k in range(len(calls))]


def _connect(settings: Mapping[str, Any]) -> Any:
    """Ray, connected to the cluster at `address` (default: the one this machine belongs to)."""
    try:
        import ray
    except ImportError as error:
        raise ValueError("engine.kind ray needs ray: pip install ray, or take engine=local") from error
    if not ray.is_initialized():
        try:
            ray.init(address=str(settings.get("address") or "auto"), log_to_driver=False)
        except ConnectionError as error:
            raise ValueError(
                f"engine.address: no Ray cluster there ({error}); start one: ray start --head"
            ) from error
    return ray
