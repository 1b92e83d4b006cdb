"""PyG's own benchmark scripts and examples, with one changed import."""

from benchmark.pyg_scripts.measure import main, table

__all__ = ["main", "table"]
