"""`eiffel cluster`: a trace of jobs, a cluster of nodes and a policy, from a configuration to a run folder."""

from eiffel.cluster.schema import register
from eiffel.cluster.simulation import simulate
from eiffel.cluster.words import with_paths

__all__ = ["register", "simulate", "with_paths"]
