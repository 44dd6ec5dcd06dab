"""The table of a comparison: what each strategy reached, what it cost, and ratios to the first one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eiffel.core.measures import improvement, ratio_interval
from eiffel.core.model import Floats
from eiffel.report.gather import Group, Problem, costs

FIGURES = ("accuracy", "variance", "worst10", "best10")
Ratio = tuple[float, float, float]


@dataclass(frozen=True)
class Spread:
    """A figure over seeds: mean, lowest, highest, and the seeds' own values (S,)."""

    mean: float
    low: float
    high: float
    values: Floats


@dataclass(frozen=True)
class Row:
    """A line of the table.

    group: the strategy. model: served, last or ema. note: "" for what the strategy serves, else what differs.
    figures: final ones by name. cost: of the target, by name, NaN unless every seed reached it.
    reached: seeds that did. ratio: first/this by cost, and of the variance, with a paired 95 % interval.
    gain: 1 - variance/first's. ahead: accuracy minus first's.
    """

    group: Group
    model: str
    note: str
    figures: dict[str, Spread]
    cost: dict[str, Spread]
    reached: int
    ratio: dict[str, Ratio]
    gain: float
    ahead: float


def table_rows(problem: Problem, target: float) -> list[Row]:
    """Two rows a strategy where both models were scored: as served, then what the other would have been."""
    first = problem.groups[0]
    rows = []
    for group in problem.groups:
        rows.append(_row(group, "served", "", target, first))
        other = "ema" if group.served() == "last" else "last"
        if all(run.scored(other) for run in group.runs):
            rows.append(_row(group, other, "+ EMA" if other == "ema" else "without EMA", target, first))
    return rows


def _row(group: Group, model: str, note: str, target: float, first: Group) -> Row:
    """One strategy and model against what the first strategy serves."""
    figures = {name: spread(group.finals(name, model)) for name in FIGURES}
    cost = costs(group, target, model)
    ours = cost | {"variance": figures["variance"].values}
    base = costs(first, target) | {"variance": first.finals("variance")}
    alone = group is first and not note
    return Row(
        group,
        model,
        note,
        figures,
        {name: spread(values) for name, values in cost.items()},
        int(np.isfinite(cost["bytes"]).sum()),
        {} if alone else {name: _ratio(first, base[name], group, ours[name]) for name in ours},
        float("nan") if alone else improvement(figures["variance"].mean, float(base["variance"].mean())),
        float("nan") if alone else figures["accuracy"].mean - float(first.finals("accuracy").mean()),
    )


def _ratio(first: Group, base: Floats, group: Group, ours: Floats) -> Ratio:
    """Ratio of means; with an interval where both have the same seeds."""
    if sorted(first.seeds) == sorted(group.seeds):
        return ratio_interval(base[np.argsort(first.seeds)], ours[np.argsort(group.seeds)])
    return float(base.mean() / ours.mean()), float("nan"), float("nan")


def spread(values: Floats) -> Spread:
    """Mean, lowest and highest; NaN where any seed's value is not known."""
    if not values.size or not np.isfinite(values).all():
        return Spread(*(float("nan"),) * 3, values)
    return Spread(float(values.mean()), float(values.min()), float(values.max()), values)


def seeds_text(groups: Sequence[Group]) -> str:
    """The seeds in words: 3 seeds (0, 1, 2), or that they differ between strategies."""
    sets = {tuple(sorted(group.seeds)) for group in groups}
    if len(sets) == 1:
        seeds = next(iter(sets))
        return f"{len(seeds)} seed{'' if len(seeds) == 1 else 's'} ({', '.join(seeds)})"
    counts = sorted(len(seeds) for seeds in sets)
    return f"{counts[0]} to {counts[-1]} seeds, not the same for every strategy"
