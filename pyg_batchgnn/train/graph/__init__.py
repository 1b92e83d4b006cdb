"""The graph of a run: whole in one process or partitioned over ranks, and the loaders that read it."""

from pyg_batchgnn.train.graph.aggregation import OF_MODEL
from pyg_batchgnn.train.graph.dataset_fingerprint import Fingerprint, fingerprint
from pyg_batchgnn.train.graph.features import feature_table
from pyg_batchgnn.train.graph.loaders import evaluation_loader, training_loader
from pyg_batchgnn.train.graph.partitioned_graph import PartedGraph, check_partition
from pyg_batchgnn.train.graph.run_graph import Labels, RunGraph
from pyg_batchgnn.train.graph.whole_graph import WholeGraph

__all__ = [
    "OF_MODEL",
    "Fingerprint",
    "Labels",
    "PartedGraph",
    "RunGraph",
    "WholeGraph",
    "check_partition",
    "evaluation_loader",
    "feature_table",
    "fingerprint",
    "training_loader",
]
