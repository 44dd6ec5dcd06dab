"""Data sets: readers, partitioners, and every client's own train and test part."""

from eiffel.data.federated import DataError, Federated, MissingData, Parts
from eiffel.data.load import load

__all__ = ["DataError", "Federated", "MissingData", "Parts", "load"]
