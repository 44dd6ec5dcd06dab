"""Pace: how many local steps (tau) a device does before it meets the others again.

A pace proposes tau for the coming round before anybody is chosen (so that costs can be predicted), may refine
it for the cohort, and learns from what came back. Few local steps mean many exchanges (bytes), many local
steps mean that devices drift apart where their data disagree.
"""

from eiffel.pace.adacomm import AdaComm
from eiffel.pace.balancer import Balancer
from eiffel.pace.eiffel import EiffelPace, EiffelPaceState, breakeven, signal_to_noise
from eiffel.pace.rule import Fixed, Pace
from eiffel.pace.wang import Wang

PACES: dict[str, type[Pace]] = {
    "fixed": Fixed,
    "eiffel": EiffelPace,
    "wang": Wang,
    "adacomm": AdaComm,
    "balancer": Balancer,
}
"""Paces by the name that strategy cards use."""

__all__ = ["PACES", "EiffelPace", "EiffelPaceState", "Fixed", "Pace", "breakeven", "signal_to_noise"]
