"""Data sets: readers, partitioners, and every client's own train and test part."""

from eiffel.data.federated import DataError, Federated, Parts
from eiffel.data.load import load

__all__ = ["DataError", "Federated", "Parts", "load"]
