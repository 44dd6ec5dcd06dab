"""The result of a comparison as a sentence and a table of HTML: gains and losses alike."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from eiffel.report import svg
from eiffel.report.compare import Row, seeds_text
from eiffel.report.gather import COSTS, Problem
from eiffel.report.units import Unit, digits, factor, fitting, percent, signed, times

COST_NAMES = {"bytes": "traffic", "joules": "energy", "seconds": "time"}


def sentence(rows: Sequence[Row], target: float, problem: Problem) -> str:
    """Of two strategies one against the other; of more, the best by each measure; of one, nothing."""
    served = [row for row in rows if not row.note]
    if len(served) < 2:
        return ""
    words = (
        _duel(served[0], served[1], target, problem.metric)
        if len(served) == 2
        else _best(served, rows, target)
    )
    return f'<p class="lead">{words}</p>'


def _duel(first: Row, row: Row, target: float, metric: str) -> str:
    """The second strategy against the first."""
    name, base = f"<b>{escape(row.group.label)}</b>", f"<b>{escape(first.group.label)}</b>"
    costs = [
        f"{'about as much' if unsure(row.ratio[cost]) else times(row.ratio[cost][0])} {word}"
        for cost, word in COST_NAMES.items()
        if np.isfinite(row.ratio[cost][0])
    ]
    until = f"To reach {percent(target)}, {name} took {_listed(costs)} {_than(costs)} {base}."
    if not costs:
        until = f"Seeds that reached {percent(target)}: {name} {_reached(row)}, {base} {_reached(first)}."
    ahead = f"{abs(100 * row.ahead):.1f} points {'higher' if row.ahead >= 0 else 'lower'}"
    change = f"{abs(100 * row.gain):.0f} % {'lower' if row.gain >= 0 else 'higher'}"
    doubt = ", within what seeds alone make" if unsure(row.ratio["variance"]) else ""
    return (
        f"{until} In the end its mean {metric} is {ahead} and the variance between devices {change}{doubt}."
    )


def unsure(ratio: tuple[float, float, float]) -> bool:
    """Whether a ratio's interval holds 1 (without one: whether it is too near to 1) so that it says nothing."""
    value, low, high = ratio
    return abs(np.log(value)) < 0.005 if not np.isfinite(low) else bool(low <= 1 <= high)


def _than(costs: Sequence[str]) -> str:
    """The word before what is compared with: as much .. as, less .. than."""
    return "as" if costs and costs[-1].startswith("about") else "than"


def _best(served: Sequence[Row], rows: Sequence[Row], target: float) -> str:
    """Who is best by each measure."""
    parts = []
    for cost, word in COST_NAMES.items():
        known = [row for row in served if np.isfinite(row.cost[cost].mean)]
        if known:
            row = min(known, key=lambda r: r.cost[cost].mean)
            value = unit_of(rows, cost).text(row.cost[cost].mean)
            parts.append(f"least {word} <b>{escape(row.group.label)}</b> ({value})")
    fair = min(served, key=lambda r: r.figures["variance"].mean)
    best = max(served, key=lambda r: r.figures["accuracy"].mean)
    until = (
        f"To {percent(target)}: {', '.join(parts)}."
        if parts
        else f"None reached {percent(target)} on every seed."
    )
    return (
        f"{until} In the end: most equal over devices <b>{escape(fair.group.label)}</b> "
        f"(variance {digits(fair.figures['variance'].mean)}), most accurate <b>{escape(best.group.label)}</b> "
        f"({percent(best.figures['accuracy'].mean)})."
    )


def _listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def _reached(row: Row) -> str:
    """How many seeds reached the target: 2 of 3."""
    return f"{row.reached} of {len(row.group.runs)}"


def unit_of(rows: Sequence[Row], cost: str) -> Unit:
    """The unit of a column of costs."""
    known = [row.cost[cost].mean for row in rows if np.isfinite(row.cost[cost].mean)]
    return fitting(cost, max(known, default=1.0))


def table(rows: Sequence[Row], problem: Problem, target: float) -> str:
    """The comparison: final figures, costs to the target, ratios to the first strategy."""
    units = {cost: unit_of(rows, cost) for cost in COSTS}
    heads = [
        "strategy",
        f"{escape(problem.metric)}, %<br>mean of devices",
        "variance<br>×10⁻⁴",
        "worst<br>10 %",
        "best<br>10 %",
        *(f"{word}, {units[cost].name}<br>to target" for cost, word in COST_NAMES.items()),
        "seeds that<br>reached it",
    ]
    head = "".join(f'<th scope="col">{h}</th>' for h in heads)
    body = "".join(_line(row, rows, units) for row in rows)
    return scrolled(
        f"<caption>{_caption(problem, target, rows)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>",
        "Comparison table",
    )


def scrolled(inner: str, name: str) -> str:
    """A table that scrolls sideways by itself where the screen is narrow."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table>{inner}</table></div>'


def _caption(problem: Problem, target: float, rows: Sequence[Row]) -> str:
    """What every figure of the table is."""
    first = escape(problem.groups[0].label)
    ema = (
        " “+ EMA”: the same run, had it served the moving average of its models instead of the last, which "
        "costs no traffic."
    )
    return (
        f"Final figures: mean of the last five evaluations, then over {escape(seeds_text(problem.groups))}; "
        "± is half the range of the seeds. Costs: until three evaluations in a row averaged "
        f"{percent(target)}; a dash where a seed never got there. Below each figure: difference or ratio of "
        f"means to {first}, with a 95 % interval from a paired bootstrap over seeds. Bold: best of what is "
        f"served.{ema if any(row.note == '+ EMA' for row in rows) else ''}"
    )


def _line(row: Row, rows: Sequence[Row], units: dict[str, Unit]) -> str:
    """One line of the table."""
    served = [r for r in rows if not r.note]
    cells = [_final(row, served, name, lowest=name == "variance") for name in row.figures]
    for cost in COSTS:
        mean = row.cost[cost].mean
        least = min((r.cost[cost].mean for r in served if np.isfinite(r.cost[cost].mean)), default=np.nan)
        best = not row.note and len(served) > 1 and mean == least
        cells.append(_cell(units[cost].number(mean), _ratio(row, cost), best))
    cells.append(_cell(_reached(row)))
    if row.note:
        return f'<tr class="also"><th scope="row">{escape(row.note)}</th>{"".join(cells)}</tr>'
    name = f'<th scope="row" class="name {svg.mark(row.group.index)}">{escape(row.group.label)}</th>'
    return f"<tr>{name}{''.join(cells)}</tr>"


def _final(row: Row, served: Sequence[Row], name: str, lowest: bool) -> str:
    """A final figure, with the difference to the first strategy where there is one."""
    f = row.figures[name]
    means = [r.figures[name].mean for r in served]
    best = not row.note and len(served) > 1 and f.mean == (min(means) if lowest else max(means))
    if name == "variance":
        return _cell(digits(f.mean), signed(-100 * row.gain, 0, " %") if np.isfinite(row.gain) else "", best)
    shown = f"{100 * f.mean:.1f}" if np.isfinite(f.mean) else "–"
    if name != "accuracy":
        return _cell(shown, "", best)
    wide = f" ± {100 * (f.high - f.low) / 2:.1f}" if f.high > f.low else ""
    return _cell(shown + wide, signed(100 * row.ahead, 1) if np.isfinite(row.ahead) else "", best)


def _ratio(row: Row, cost: str) -> str:
    """The ratio of means to the first strategy, with its interval."""
    ratio, low, high = row.ratio.get(cost, (np.nan,) * 3)
    if not np.isfinite(ratio):
        return ""
    if not np.isfinite(low) or times(ratio) == "the same":
        return times(ratio)
    ends = (low, high) if ratio >= 1 else (1 / high, 1 / low)
    return f"{times(ratio)} ({factor(ends[0])}–{factor(ends[1])})"


def _cell(value: str, small: str = "", best: bool = False) -> str:
    """A figure, with a smaller one below."""
    shown = f'<span class="best">{escape(value)}</span>' if best else escape(value)
    return f"<td>{shown}{f'<small>{escape(small)}</small>' if small else ''}</td>"
