"""What a process holds of a graph."""

from pyg_batchgnn.store.graph import CscGraph
from pyg_batchgnn.store.hybrid import HybridTopology, replicate_topology
from pyg_batchgnn.store.pyg import graph_from_pyg

__all__ = ["CscGraph", "HybridTopology", "graph_from_pyg", "replicate_topology"]
