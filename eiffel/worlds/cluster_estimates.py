"""What a scheduler believes about rates: the truth, the truth with fixed errors, or what was seen so far."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from eiffel.core.jobs import Floats, Ints, Trace


class Estimates(Protocol):
    """Beliefs about rates. State in, state out, as everywhere."""

    def init(self, trace: Trace, lone: Floats) -> Any:
        """Return the state to start from; lone (J, R) steps/s as true on one node."""

    def rates(self, state: Any, jobs: Ints) -> tuple[Floats, Floats]:
        """Return (rate, spread), each (len(jobs), R) steps/s, as believed now."""

    def learn(self, state: Any, jobs: Ints, seen: Any) -> Any:
        """Return the state after measurements: seen.job (rows of jobs), .type, .apart, .speed, .seconds."""


@dataclass(frozen=True, slots=True)
class Known:
    """The scheduler knows the rates."""

    def init(self, trace: Trace, lone: Floats) -> tuple[Floats, Floats]:
        """Remember the truth."""
        return lone, trace.spread

    def rates(self, state: tuple[Floats, Floats], jobs: Ints) -> tuple[Floats, Floats]:
        """Return the truth."""
        return state[0][jobs], state[1][jobs]

    def learn(self, state: Any, jobs: Ints, seen: Any) -> Any:
        """There is nothing to learn."""
        return state


@dataclass(frozen=True, slots=True)
class Wrong:
    """Fixed errors: every rate times a factor uniform in 1 +- error, by job and type."""

    error: float = 0.3
    seed: int = 0

    def init(self, trace: Trace, lone: Floats) -> tuple[Floats, Floats]:
        """Draw the errors."""
        if not 0 <= self.error < 1:
            raise ValueError(f"error is {self.error}; it must be in [0, 1)")
        factor = np.random.default_rng([self.seed, 9]).uniform(1 - self.error, 1 + self.error, lone.shape)
        return lone * factor, trace.spread * factor

    rates = Known.rates
    learn = Known.learn


@dataclass(frozen=True, slots=True)
class Belief:
    """State of `Learned`."""

    lone: Floats  # (J, R) estimates
    spread: Floats  # (J, R)
    sure: Any  # (J, R) bool: measured on this job


@dataclass(frozen=True, slots=True)
class Learned:
    """Hardware figures first, measurements as they come (as HadarE's estimator does, in our reconstruction).

    prior (R,): relative speed of the device types, e.g. their peak FLOP/s. Before a job has run, its rate is
    taken as `scale` x prior; a rate measured on one type replaces the estimate there and rescales the job's
    other estimates in proportion. Rates that are 0 in truth are known to be 0 (it does not fit the memory).
    """

    prior: tuple[float, ...]
    scale: float = 1.0

    def init(self, trace: Trace, lone: Floats) -> Belief:
        """Start from the hardware figures."""
        if len(self.prior) != lone.shape[1] or min(self.prior) <= 0:
            raise ValueError(f"prior {self.prior} must give a speed > 0 for each of {trace.types}")
        guess = self.scale * np.asarray(self.prior, float) * np.ones(lone.shape)
        guess = guess * trace.gang[:, None]
        return Belief(
            np.where(lone > 0, guess, 0.0), np.where(trace.spread > 0, guess, 0.0), np.zeros(lone.shape, bool)
        )

    def rates(self, state: Belief, jobs: Ints) -> tuple[Floats, Floats]:
        """Return the present estimates."""
        return state.lone[jobs], state.spread[jobs]

    def learn(self, state: Belief, jobs: Ints, seen: Any) -> Belief:
        """Take over what was measured; rescale what was not."""
        fresh = (seen.seconds > 0) & (seen.speed > 0)
        job, kind = jobs[seen.job[fresh]], seen.type[fresh]
        apart, speed = seen.apart[fresh], seen.speed[fresh]
        before = np.where(apart, state.spread[job, kind], state.lone[job, kind])
        new = np.abs(before - speed) > 1e-12 * speed
        if not new.any():
            return state
        job, kind, apart, speed, before = job[new], kind[new], apart[new], speed[new], before[new]
        lone, spread, sure = state.lone.copy(), state.spread.copy(), state.sure.copy()
        factor = np.where(before > 0, speed / np.where(before > 0, before, 1.0), 1.0)[:, None]
        lone[job] = np.where(sure[job], lone[job], lone[job] * factor)
        spread[job] = np.where(sure[job], spread[job], spread[job] * factor)
        lone[job[~apart], kind[~apart]] = speed[~apart]
        spread[job[apart], kind[apart]] = speed[apart]
        sure[job, kind] = True
        return Belief(lone, spread, sure)
