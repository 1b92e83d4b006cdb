"""What a process holds of a graph."""

from pyg_batchgnn.store.dist_features import DistFeatureStore
from pyg_batchgnn.store.dist_graph import EDGE_TYPE, DistGraphStore
from pyg_batchgnn.store.graph import CscGraph
from pyg_batchgnn.store.hybrid import HybridTopology, replicate_topology
from pyg_batchgnn.store.pyg import graph_from_pyg
from pyg_batchgnn.store.rows import NODE_ID, RowReader, Rows, Wanted

__all__ = [
    "EDGE_TYPE",
    "NODE_ID",
    "CscGraph",
    "DistFeatureStore",
    "DistGraphStore",
    "HybridTopology",
    "RowReader",
    "Rows",
    "Wanted",
    "graph_from_pyg",
    "replicate_topology",
]
