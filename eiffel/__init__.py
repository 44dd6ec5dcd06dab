"""Eiffel: federated learning and cluster scheduling on one heterogeneity-aware core."""

__version__ = "0.1.0"
