"""Device selection: one file a rule. A rule sees candidates as arrays and returns which of them train.

    chosen, score = rule.choose(state, candidates, k, rng)

A rule is a frozen dataclass of its own numbers (what a strategy card sets); its state is another.
"""

from eiffel.select.candidates import Candidates, Select, Tempo
from eiffel.select.divfl import DivFl
from eiffel.select.eiffel import EiffelSelect
from eiffel.select.fedcs import FedCs
from eiffel.select.oort import Eafl, Oort
from eiffel.select.poc import PowerOfChoice
from eiffel.select.refl import Refl
from eiffel.select.tifl import TiFl
from eiffel.select.uniform import Everybody, SizeWeighted, Uniform

RULES: dict[str, type[Select]] = {
    "uniform": Uniform,
    "size": SizeWeighted,
    "all": Everybody,
    "eiffel": EiffelSelect,
    "power_of_choice": PowerOfChoice,
    "oort": Oort,
    "eafl": Eafl,
    "fedcs": FedCs,
    "tifl": TiFl,
    "refl": Refl,
    "divfl": DivFl,
}
"""Selection rules by the name that strategy cards use."""

__all__ = ["RULES", "Candidates", "EiffelSelect", "Select", "SizeWeighted", "Tempo", "Uniform"]
