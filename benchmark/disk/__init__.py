"""An epoch of a graph that is larger than memory, and what bounds it."""

from benchmark.disk.measure import main
from benchmark.disk.page import plot, table

__all__ = ["main", "plot", "table"]
