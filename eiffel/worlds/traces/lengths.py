"""Traces that say only how long a job ran: what its work is, and how fast each device type does it."""

from collections.abc import Sequence

import numpy as np

from eiffel.core.jobs import Trace
from eiffel.worlds.traces import jobtypes
from eiffel.worlds.traces.options import Options
from eiffel.worlds.traces.reading import Floats, Ints

OPTIONS = ("assign_models", "models", "reference", "speeds", "speed_spread", "spread", "seed")
EPOCHS = 100  # progress is seen in hundredths unless trace.epochs says otherwise


def from_lengths(
    ids: Sequence[str],
    arrival: Floats,
    seconds: Floats,
    gang: Ints,
    options: Options,
    types: Sequence[str],
    model: Sequence[str] | None = None,
) -> Trace:
    """Make a trace from run times (J,) s on the reference device.

    Without `assign_models` a step is one second and every type does 1 step/s, or what `speeds` says, each
    job's drawn within +-`speed_spread` of it (a job lasts its run time on its fastest type). Over several
    nodes a gang does `spread` times that (1: placement does not matter, as in Tiresias' simulator).
    With `assign_models` a job type is drawn for each job from the built-in table (`models`, `seed`), and its
    run time is that on `reference` (v100).
    """
    if options.flag("assign_models"):
        return _assigned(ids, arrival, seconds, gang, options, types)
    rate = _speeds(len(ids), options, types)
    work = seconds * rate.max(axis=1, initial=0.0)
    apart = np.where(gang > 1, options.number("spread", 1.0), 1.0)
    epochs, weight = np.full(len(ids), EPOCHS), np.ones(len(ids))
    named = tuple(model) if model is not None else ("",) * len(ids)
    return Trace(
        tuple(ids), arrival, work, gang, epochs, weight, rate, rate * apart[:, None], tuple(types), named
    )


def _assigned(
    ids: Sequence[str],
    arrival: Floats,
    seconds: Floats,
    gang: Ints,
    options: Options,
    types: Sequence[str],
) -> Trace:
    kinds = jobtypes.chosen(options.names("models"))
    rng = np.random.default_rng([options.whole("seed", 0), 11])
    pick = jobtypes.draw(gang, kinds, rng)
    rate, spread = jobtypes.rates_of(pick, gang, kinds, types)
    reference, _ = jobtypes.rates_of(pick, gang, kinds, [options.text("reference", "v100")])
    work, epochs = seconds * reference[:, 0], np.full(len(ids), EPOCHS)
    named = tuple(kinds[k].name for k in pick)
    return Trace(
        tuple(ids), arrival, work, gang, epochs, np.ones(len(ids)), rate, spread, tuple(types), named
    )


def _speeds(jobs: int, options: Options, types: Sequence[str]) -> Floats:
    """Return (J, R) speeds of the device types, 1 for all unless `speeds` says otherwise."""
    given = options.values.get("speeds") or {}
    missing = [name for name in types if given and name not in given]
    if missing:
        raise options.fault(
            "speeds", f"no speed for device type {missing[0]!r}; give one, 0 = cannot run there"
        )
    base: Floats = np.array([Options(given, "trace.speeds").number(name, 1.0) for name in types])
    if not base.any():
        raise options.fault(
            "speeds", "with speed 0 on every device type a job runs nowhere; give one above 0"
        )
    width = options.number("speed_spread", 0.0)
    if width >= 1:
        raise options.fault("speed_spread", f"{width:g} would stop jobs; give less than 1")
    rng = np.random.default_rng([options.whole("seed", 0), 12])
    return base * rng.uniform(1 - width, 1 + width, (jobs, len(types)))
