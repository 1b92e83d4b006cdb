"""The graph of a run in parts, one a rank."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.cache import AggregationCache
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import FEATURES, LABELS, Dataset, class_numbers
from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.partition import (
    Part,
    is_partition,
    load_partition,
    partition,
    read_partition_meta,
    report_partition,
)
from pyg_batchgnn.sample import Replacement
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, replicate_topology
from pyg_batchgnn.train.config import POLICIES, LayerSource, ModelKind, Precision, TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph.aggregation import aggregation_cache, kept
from pyg_batchgnn.train.graph.dataset_fingerprint import fingerprint_dataset
from pyg_batchgnn.train.graph.requirements import training_features, training_labels
from pyg_batchgnn.train.graph.run_graph import MinibatchSettings, loader_arguments
from pyg_batchgnn.train.model import GraphNetwork
from pyg_batchgnn.train.ranks import Ranks


@dataclass(frozen=True)
class PartitionedGraph:
    """What a rank holds of the graph: its part, which the loaders of all ranks read.

    Attributes:
        config: of the run.
        features: attributes of the part's nodes, labels among them.
        topology: the part's edges.
        cache: aggregates of the features of the part's nodes, where the run has them.
        notes: how good the partition is, and on the cache.
    """

    config: TrainConfig
    features: DistFeatureStore
    topology: DistGraphStore
    cache: AggregationCache | None
    notes: list[str]

    @classmethod
    def of(cls, dataset: Dataset, config: TrainConfig, ranks: Ranks) -> PartitionedGraph:
        """Partitions `dataset`, or reads its saved partition; collective.

        Raises:
            TrainError: the features or labels are missing or not what training needs, or the partition
                is of another graph.
            DatasetError: a file of the saved partition is damaged or missing.
        """
        x, _ = training_features(dataset), training_labels(dataset)
        comm = ranks.sampling
        part = _part(dataset, config, comm)
        report = report_partition(part, comm)
        balance = ", ".join(f"{report.balance(of):.2f} {of}" for of in ("nodes", "edges", "train"))
        notes = [f"{report.edge_cut:.1%} of edges join parts; largest over mean: {balance}"]
        whole = replicate_topology(part, comm) if config.ranks.hybrid else None
        features = DistFeatureStore(part, comm, floats=_floats(config, x.dtype))
        topology = DistGraphStore(part, comm, whole)
        exists = ranks.of_first(lambda: kept(config))
        cache, more = aggregation_cache(config, (features, topology), exists)
        return cls(config, features, topology, cache, [*notes, *more])

    def loader(self, nodes: Tensor, batches: MinibatchSettings) -> MacrobatchNeighborLoader:
        """See `RunGraph`; collective."""
        sampling, run = self.config.sampling, self.config.run
        try:
            return MacrobatchNeighborLoader(
                (self.features, self.topology),
                replace=sampling.replacement is Replacement.WITH,
                seed=run.seed,
                threads=run.threads,
                attributes=self._attributes(batches),
                schedule=batches.schedule.value,
                feature_cache=batches.feature_cache,
                **loader_arguments(self.config, nodes, batches, self.cache),
            )
        except (ValueError, NotImplementedError) as error:
            raise TrainError(str(error)) from error

    def _attributes(self, batches: MinibatchSettings) -> list[str] | None:
        """What travels; None where PyG's layers get everything. Aggregates of GCN hold its own rows."""
        model = self.config.model
        if model.layers is LayerSource.PYG:
            return None
        return [LABELS] if batches.cached and model.kind is ModelKind.GCN else [FEATURES, LABELS]

    def labels(self, network: GraphNetwork, batch: Any) -> Tensor:
        """See `LabelSource`; they come with the features."""
        labels = class_numbers({LABELS: network.fetched(batch, LABELS)})
        assert labels is not None  # training_labels has seen to it
        return labels


def check_partition(source: str) -> None:
    """Refuses what is neither a policy nor a saved partition.

    Raises:
        TrainError: it is not.
    """
    if source not in POLICIES and not is_partition(source):
        raise TrainError(
            f"ranks.partition is {source!r}: not {', '.join(POLICIES)} or the folder of a saved partition"
        )


def _part(dataset: Dataset, config: TrainConfig, comm: Communicator) -> Part:
    """This rank's part; with the same one for every seed of a run, so that runs can be compared."""
    source = config.ranks.partition
    if source in POLICIES:
        return partition(dataset, source, comm=comm)
    check_partition(source)
    part = load_partition(source, comm)
    if (part.book.num_nodes, part.num_edges) != (dataset.num_nodes, dataset.num_edges):
        raise TrainError(
            f"{source}: is of a graph of {part.book.num_nodes} nodes and {part.num_edges} edges, but "
            f"{dataset.name} has {dataset.num_nodes} and {dataset.num_edges}; partition that"
        )
    made_of = read_partition_meta(Path(source).expanduser()).origin.get("fingerprint")
    if made_of not in (None, fingerprint_dataset(dataset).to_dict()):  # None: saved by a script
        raise TrainError(
            f"{source}: is of a graph of as many nodes and edges as {dataset.name}, but with other edges, "
            f"features, labels or splits; partition {dataset.name} anew"
        )
    return part


def _floats(config: TrainConfig, dtype: torch.dtype) -> torch.dtype | None:
    """In which type features are held and travel: as their layers read them."""
    if config.run.precision is Precision.BFLOAT16:
        return torch.bfloat16
    wide = config.model.layers is LayerSource.PYG or dtype is torch.float64
    return torch.float32 if wide else None
