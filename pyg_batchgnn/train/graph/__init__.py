"""The graph of a run, whole in one process or partitioned over ranks, and the loaders that read
it."""

from pyg_batchgnn.train.graph.aggregation import AGGREGATION_OF_MODEL
from pyg_batchgnn.train.graph.dataset_fingerprint import DatasetFingerprint, fingerprint_dataset
from pyg_batchgnn.train.graph.embedded_rows import EmbeddedRows
from pyg_batchgnn.train.graph.features import feature_table
from pyg_batchgnn.train.graph.loaders import evaluation_loader, link_training_loader, training_loader
from pyg_batchgnn.train.graph.minibatch_settings import MinibatchSettings
from pyg_batchgnn.train.graph.partitioned_graph import PartitionedGraph, check_partition
from pyg_batchgnn.train.graph.run_graph import LabelSource, RunGraph
from pyg_batchgnn.train.graph.training_data import TrainingData
from pyg_batchgnn.train.graph.whole_graph import WholeGraph

__all__ = [
    "AGGREGATION_OF_MODEL",
    "DatasetFingerprint",
    "EmbeddedRows",
    "LabelSource",
    "MinibatchSettings",
    "PartitionedGraph",
    "RunGraph",
    "TrainingData",
    "WholeGraph",
    "check_partition",
    "evaluation_loader",
    "feature_table",
    "fingerprint_dataset",
    "link_training_loader",
    "training_loader",
]
