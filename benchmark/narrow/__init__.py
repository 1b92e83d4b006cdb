"""Rows of one byte: loading, steps, bytes over ranks and accuracy, against float32 and bfloat16."""

from benchmark.narrow.measure import main
from benchmark.narrow.page import plot, table

__all__ = ["main", "plot", "table"]
