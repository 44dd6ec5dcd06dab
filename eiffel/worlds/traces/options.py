"""A `trace` or `cluster` mapping (Hydra's, or a plain dict) with checked access; unknown keys are errors."""

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eiffel.worlds.traces.reading import TraceError

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one trace or cluster. Every method raises TraceError naming the option and what it
    may be.
    """

    values: Mapping[str, Any]
    what: str  # "trace" or "cluster": how the user writes it, `trace.jobs=100`

    def fault(self, key: str, problem: str) -> TraceError:
        """Return the error for an option."""
        return TraceError(problem, field=f"{self.what}.{key}")

    def known(self, keys: Iterable[str]) -> None:
        """Raise TraceError if there is an option that is not among `keys`."""
        allowed = sorted(keys)
        for key in self.values:
            if key not in allowed:
                near = difflib.get_close_matches(str(key), allowed, 1)
                guess = f"did you mean {near[0]!r}? " if near else ""
                raise self.fault(str(key), f"no such option; {guess}the options are {', '.join(allowed)}")

    def given(self, key: str) -> bool:
        """Say whether the option has a value."""
        return self.values.get(key) is not None

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text option; it must be there if it has no default."""
        value = self.values.get(key)
        if value is None and default is None:
            raise self.fault(key, "is missing; give it")
        return str(default if value is None else value)

    def choice(self, key: str, allowed: Sequence[str], default: str) -> str:
        """Return one of `allowed`."""
        value = self.text(key, default)
        if value not in allowed:
            raise self.fault(key, f"{value!r} is none of {', '.join(allowed)}")
        return value

    def number(self, key: str, default: float, low: float = 0.0) -> float:
        """Return a finite number, at least `low`."""
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.fault(key, f"{value!r} is not a finite number")
        if value < low:
            raise self.fault(key, f"{value!r} is below {low:g}")
        return float(value)

    def whole(self, key: str, default: int, low: int = 0) -> int:
        """Return a whole number, at least `low`."""
        value = self.number(key, default, low)
        if value != math.floor(value):
            raise self.fault(key, f"{value!r} is not a whole number")
        return int(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """Return true or false."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.fault(key, f"{value!r} is neither true nor false")
        return default if value is None else value

    def shares(self, key: str, default: Mapping[Any, float]) -> dict[str, float]:
        """Return {name: share}, scaled to sum to 1."""
        value = self.values.get(key)
        pairs = dict(default if value is None else value)
        bad = [v for v in pairs.values() if not isinstance(v, int | float) or not v >= 0 or math.isinf(v)]
        total = 0.0 if bad else float(sum(pairs.values()))
        if total <= 0:
            raise self.fault(key, f"{pairs} must map names to shares that are >= 0 and not all 0")
        return {str(name): float(v) / total for name, v in pairs.items()}

    def names(self, key: str) -> list[str]:
        """Return a list of names; one name alone will do; [] if not given."""
        value = self.values.get(key)
        if value is None:
            return []
        return [value] if isinstance(value, str) else [str(v) for v in value]
