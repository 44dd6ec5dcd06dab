"""The trainer: cuts a cohort into blocks, has them trained, and puts sums and reports together.

Everything that decides a result is here and is the same for one worker or many: the batches (a function of
seed, round and device), the cut into blocks (a function of the cohort) and the order of the sums (block
after block). Who trains a block, and when, changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eiffel.core.model import Floats, Ints, Params, Plan, Reports, Scores, Slopes, Trained
from eiffel.train import models
from eiffel.train.flat import Flat
from eiffel.train.learner import Learner
from eiffel.train.objectives import objective
from eiffel.train.scores import scores
from eiffel.train.task import Cohort, Task

if TYPE_CHECKING:
    from eiffel.data.federated import Federated

F = TypeVar("F", bound=np.floating[Any])
JUDGED = 2048  # test samples a task
BLOCKS = 32  # a cohort is cut into so many blocks at most ...
MEMORY = 2**26  # ... and their sums hold so many numbers at most, but there are never fewer than 8


Block = tuple[Floats, Floats, Slopes | None]
"""Of a block's devices: |u|^2, loss of the first batch, slopes where the plan asks for them."""


class Crew(Protocol):
    """Runs tasks on a Learner, here or elsewhere; results come in the order of the tasks."""

    def train(self, tasks: list[Task], full: NDArray[np.float32] | None) -> tuple[Tensor, list[Block]]:
        """Sums (m, P), block after block, and what `Learner.train` says of each block."""
        ...

    def measure(self, what: str, jobs: list[tuple[Any, ...]]) -> list[Any]:
        """`Learner.<what>(params, *job)` for each job."""
        ...

    def download(self, params: Params) -> None:
        """The model that following tasks start from."""
        ...

    def close(self) -> None:
        """Let go of processes and memory."""
        ...


class Alone:
    """A crew of nobody: the calling process does all the work, on one thread."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.start = learner.flat.weights.clone()

    def download(self, params: Params) -> None:
        """Copy params beside the model."""
        self.start.copy_(torch.from_numpy(np.ascontiguousarray(params, dtype=np.float32)))

    def train(self, tasks: list[Task], full: NDArray[np.float32] | None) -> tuple[Tensor, list[Block]]:
        """Train block after block, adding each block's sums to the first's."""
        total = torch.empty(len(tasks[0].weights), self.start.numel(), device=self.start.device)
        block = torch.empty_like(total)
        rows = None if full is None else torch.from_numpy(full)
        results = [self.learner.train(self.start, tasks[0], total, rows)]
        for task in tasks[1:]:
            results.append(self.learner.train(self.start, task, block, rows))
            total += block
        return total, results

    def measure(self, what: str, jobs: list[tuple[Any, ...]]) -> list[Any]:
        """Call the learner job by job."""
        return [getattr(self.learner, what)(self.start, *job) for job in jobs]

    def close(self) -> None:
        """Nothing to let go of."""


class Engine:
    """Implements `eiffel.core.model.Trainer`. `note`: how it trains and why, in one line."""

    def __init__(self, data: Federated, card: models.Card, crew: Crew, learner: Learner, note: str) -> None:
        self.data, self.card, self.crew, self.note = data, card, crew, note
        self.bank = learner.bank
        self.size = learner.flat.size
        self.least = learner.path.least

    def initial(self, seed: int) -> Params:
        """(P,) freshly initialised parameters, a function of the seed."""
        return Flat(models.initial(self.card, self.data, seed)).weights.numpy().copy()

    def train(self, plan: Plan, device: Ints, steps: Ints, seed: int) -> Trained:
        """Train these devices of the plan: probe the incoming loss, weigh, train, sum. See `Trainer`."""
        cohort = self._cohort(plan, np.asarray(device, np.int64), np.asarray(steps, np.int64))
        if cohort.device.size == 0:
            return self._nothing(plan, cohort)
        with one_thread():
            self.crew.download(plan.params)
            if plan.probing:
                return self._answers(plan, cohort, seed)
            reports, weights = self._weigh(plan, cohort, seed)
            full = np.zeros((cohort.device.size, self.size), np.float32) if plan.full else None
            tasks = self._tasks(plan, cohort, weights, seed)
            sums, results = self.crew.train(tasks, full)
        sumsq = _scatter(cohort, [r[0] for r in results])
        first = _scatter(cohort, [r[1] for r in results])
        weights = np.where(np.isfinite(sumsq), weights, 0.0)
        slopes = _slopes(cohort, [r[2] for r in results]) if plan.gradients else None
        return Trained(replace(reports, first_loss=first), sumsq, weights, sums.cpu().numpy(), full, slopes)

    def score(self, params: Params) -> Scores:
        """Measure a model on every client's test part: one pass over all test samples."""
        start = self.bank.test_start
        cuts = [(low, min(low + JUDGED, int(start[-1]))) for low in range(0, int(start[-1]), JUDGED)]
        with one_thread():
            self.crew.download(params)
            judged = self.crew.measure("judge", cuts)
        loss, mark = (np.concatenate([j[i] for j in judged]) for i in (0, 1))
        return scores(loss, mark, start, self.data.y[self.bank.test] if self.bank.auroc else None)

    def close(self) -> None:
        """Release workers and shared memory."""
        self.crew.close()

    def _cohort(self, plan: Plan, device: Ints, steps: Ints) -> Cohort:
        """Check what is asked and cut it into blocks."""
        objective(plan.local.objective)
        if plan.params.shape != (self.size,):
            raise ValueError(f"plan.params has the shape {plan.params.shape}; this model has ({self.size},)")
        examples = self.bank.sizes(device)
        idle = (steps < 1) & (not plan.probing)
        for name, bad in (("training samples", examples < 1), ("local steps", idle)):
            if np.any(bad):
                raise ValueError(f"device {int(device[bad][0])} has no {name}; leave it out of the cohort")
        cost = (steps * np.minimum(examples, plan.local.batch)).astype(np.float64)
        most = min(max(8, MEMORY // self.size), BLOCKS, max(1, device.size // self.least))
        return Cohort.of(device, steps, cost, most)

    def _weigh(self, plan: Plan, cohort: Cohort, seed: int) -> tuple[Reports, Floats]:
        """Ask the aggregator for its weights, (m, R).

        The first batch's losses come free with training, but too late for this: they are measured ahead
        only if the aggregator's weights turn out to need them, that is, are not finite without them.
        """
        reports, tasks = self._reports(plan, cohort, seed)
        weights = np.atleast_2d(plan.weigh(reports))
        if not np.isfinite(weights).all():
            reports = replace(reports, first_loss=self._ahead("first", tasks, cohort)[:, 0])
            weights = np.atleast_2d(plan.weigh(reports))
        if weights.shape[1:] != cohort.device.shape:
            raise ValueError(f"weigh gave weights of shape {weights.shape} for {cohort.device.size} reports")
        return reports, np.where(np.isfinite(weights), weights, 0.0)

    def _reports(self, plan: Plan, cohort: Cohort, seed: int) -> tuple[Reports, list[Task]]:
        """What devices say before they train: the probe's losses, where the plan asks for a probe."""
        unknown = np.full(cohort.device.size, np.nan)
        tasks = self._tasks(plan, cohort, np.zeros((1, cohort.device.size)), seed)
        told = Reports(cohort.device, self.bank.sizes(cohort.device), cohort.steps, unknown, unknown)
        if not plan.local.probe:
            return told, tasks
        loss, rms = self._ahead("probe", tasks, cohort).T
        return replace(told, loss=loss, rms=rms), tasks

    def _answers(self, plan: Plan, cohort: Cohort, seed: int) -> Trained:
        """The answers to a probe: losses, and updates of zero."""
        zero = np.zeros(cohort.device.size)
        sums = np.zeros((1, self.size), np.float32)
        return Trained(self._reports(plan, cohort, seed)[0], zero, zero[None], sums)

    def _ahead(self, what: str, tasks: list[Task], cohort: Cohort) -> Floats:
        return _scatter(cohort, self.crew.measure(what, [(t,) for t in tasks]))

    def _tasks(self, plan: Plan, cohort: Cohort, weights: Floats, seed: int) -> list[Task]:
        device, steps = cohort.device, cohort.steps
        gradients = plan.gradients and not plan.probing
        shift = None if plan.shift is None else plan.shift[np.searchsorted(plan.chosen, device)]
        return [
            Task(
                plan.round,
                seed,
                plan.local,
                device[b],
                steps[b],
                b,
                weights[:, b],
                gradients,
                None if shift is None else np.ascontiguousarray(shift[b], np.float32),
            )
            for b in cohort.blocks
        ]

    def _nothing(self, plan: Plan, cohort: Cohort) -> Trained:
        """What training nobody yields: no rows, sums of zero."""
        none = np.zeros(0)
        reports = Reports(cohort.device, cohort.device, cohort.steps, none, none)
        weights = np.zeros((np.atleast_2d(plan.weigh(reports)).shape[0], 0))
        full = np.zeros((0, self.size), np.float32) if plan.full else None
        return Trained(reports, none, weights, np.zeros((len(weights), self.size), np.float32), full)


def _scatter(cohort: Cohort, parts: list[NDArray[F]]) -> NDArray[F]:
    """Blocks' rows back into the cohort's order."""
    rows = np.concatenate(parts)
    out = np.empty_like(rows)
    out[np.concatenate(cohort.blocks)] = rows
    return out


def _slopes(cohort: Cohort, parts: list[Slopes | None]) -> Slopes:
    """Blocks' slopes, likewise."""
    told = [p for p in parts if p is not None]
    return Slopes(
        _scatter(cohort, [p.gradient for p in told]),
        _scatter(cohort, [p.beta for p in told]),
        _scatter(cohort, [p.rho for p in told]),
    )


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread while inside: more would round sums differently, and pay only for large models."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
