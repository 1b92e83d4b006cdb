"""The groups of rows; they live in `pyg_batchgnn.types`."""

from pyg_batchgnn.types import EDGE_FEATURES, EDGES, FEATURES, LABELS, NODES, Group, RowKind

__all__ = ["EDGES", "EDGE_FEATURES", "FEATURES", "LABELS", "NODES", "Group", "RowKind"]
