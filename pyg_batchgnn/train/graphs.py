"""The graph of a run: whole in one process, or partitioned over ranks."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import machine, ops
from pyg_batchgnn.cache import Aggregation, AggregationCache, AllNodes
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, converted
from pyg_batchgnn.disk import are_mapped
from pyg_batchgnn.embed import Embedding
from pyg_batchgnn.history import HistoricalCaches, HistoricalSettings
from pyg_batchgnn.partition import (
    Part,
    is_partition,
    load_partition,
    partition,
    read_partition_meta,
    report_partition,
)
from pyg_batchgnn.sample import PygNeighborSampler
from pyg_batchgnn.store import (
    CscGraph,
    DistFeatureStore,
    DistGraphStore,
    TypedGraph,
    attribute_by_group,
    replicate_topology,
)
from pyg_batchgnn.train.config.choices import (
    POLICIES,
    CacheKind,
    ModelKind,
    RemoteKind,
    ScheduleKind,
)
from pyg_batchgnn.train.config.train_config import TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.network import NativeNetwork
from pyg_batchgnn.train.node_tasks import predicted_of
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run_graph import EmbeddedRows, RowsHere, RowsOverRanks, RunGraph, of_type
from pyg_batchgnn.train.training_data import (
    NATIVE_TYPES,
    TrainingData,
    check_joined,
    check_learned_fit,
    feature_tables,
    feature_type,
    fingerprint_dataset,
)
from pyg_batchgnn.types import EDGE_FEATURES, FEATURES, LABELS, Group, Relation, RowKind

#: The aggregation of each model's first layer. GAT has none: its weights are learned.
AGGREGATION_OF_MODEL = {
    ModelKind.SAGE: Aggregation.MEAN,
    ModelKind.GCN: Aggregation.SYMMETRIC,
    ModelKind.GIN: Aggregation.SUM,
}


def aggregation_cache(
    config: TrainConfig, data: Any, exists: bool, held: int = 0
) -> tuple[AggregationCache | None, list[str]]:
    """Builds or reads the cached aggregates of the first layer; collective. Returns the cache (None
    if it is off) and lines to print. ``data``: what the loaders read. ``exists``: whether the
    folder does. ``held``: bytes of the memory budget that are in use already."""
    sampling = config.sampling
    if sampling.cache is CacheKind.OFF:
        return None, []
    kind, began = AGGREGATION_OF_MODEL[config.model.kind], time.perf_counter()
    budget = sampling.memory_budget
    options: dict[str, Any] = {
        "memory_budget": None if budget is None else max(1, budget - held),
        "threads": config.run.threads,
        "progress": sys.stderr.isatty(),
    }
    if sampling.cache_folder is not None and exists:
        cache, origin = AggregationCache.load(sampling.cache_folder, data, kind=kind, **options), "read"
    else:
        cache, origin = AggregationCache.build(data, kind, **options), "built"
        if sampling.cache_folder is not None:
            cache.save(sampling.cache_folder)
    seconds, size = time.perf_counter() - began, cache.nbytes / 2**20
    return cache, [
        f"aggregates by {kind.value} {origin} in {seconds:.1f} s, {size:,.1f} MiB on the first rank"
    ]


def aggregates_exist(config: TrainConfig) -> bool:
    folder = config.sampling.cache_folder
    return folder is not None and Path(folder).expanduser().exists()


@dataclass(eq=False, kw_only=True)
class WholeGraph(RunGraph):
    """The graph of a run in one process."""

    topology: CscGraph | TypedGraph  # the in-edges of each node
    label: Tensor | None  # [N, ...], the labels of the predicted type; None if links are predicted
    times: Mapping[Group, Tensor]  # times of nodes or edges; empty without ``time_attr``

    @classmethod
    def of(cls, dataset: Dataset, config: TrainConfig) -> WholeGraph:
        read = TrainingData.of(dataset, config)
        learned = read.inputs.learned
        check_learned_fit(dataset, config, learned, ranks=1)
        tables, held = feature_tables(read.features, config)
        check_joined(config, learned, tables)
        topology = _topology(dataset, config.sampling.memory_budget)
        data = _data(dataset, tables)
        parts = topology, data.node_stores[0].get(FEATURES)
        cache, notes = aggregation_cache(config, parts, aggregates_exist(config), held)
        embedding = Embedding(data, learned, seed=config.run.seed) if learned else None
        return cls(
            config=config,
            data=data,
            inputs=read.inputs,
            cache=cache,
            notes=notes,
            embedding=embedding,
            topology=topology,
            label=read.labels.get(read.inputs.node_type),
            times=read.times,
            held=held,
            predicted=predicted_of(dataset, config.task),
        )

    def node_labels(self, network: NativeNetwork, batch: Any) -> Tensor:
        return self.owned_labels()[network.seeds(batch)]

    def owned_labels(self) -> Tensor:
        assert self.label is not None, "runs that predict links read no labels"
        return self.label

    def embedded(self, nodes: AllNodes, rows: Mapping[str, Tensor]) -> EmbeddedRows:
        return RowsHere(rows, nodes)

    def _whole_data(self) -> tuple[CscGraph | TypedGraph, Any, Any]:
        data, graph = self._with_learned_rows(self.data), self.topology
        typed = graph.typed if isinstance(graph, CscGraph) else graph
        x = data.node_stores[0].get(FEATURES)
        if self.inputs.schema.has_names:
            x = {name: data[name].x for name in data.node_types if FEATURES in data[name]}
        return graph, x, lambda name: attribute_by_group(self.data, name, typed)

    def _own_arguments(self, training: bool) -> dict[str, Any]:
        sampler = PygNeighborSampler(self.topology, times=self.times, **self._choice(training))
        return {"neighbor_sampler": sampler, "seed": None, "threads": None}  # which are the sampler's


def _topology(dataset: Dataset, budget: int | None) -> CscGraph | TypedGraph:
    room = machine.memory().available // 2
    dataset = dataset.read_topology(room if budget is None else min(room, budget))
    graph = TypedGraph.of_dataset(dataset).advise_huge_pages()
    return graph if dataset.has_names else CscGraph(graph.relations[0])


def _data(dataset: Dataset, features: Mapping[str | Relation, Tensor]) -> Data | HeteroData:
    data: Any = HeteroData() if dataset.has_names else Data()
    for nodes in dataset.node_sets:
        store = data[nodes.name] if dataset.has_names else data
        store.num_nodes = nodes.num_nodes
        if nodes.name in features:
            store.x = features[nodes.name]
    for edges in dataset.edge_sets:
        store = data[edges.relation] if dataset.has_names else data
        # So that the relation is known. The sampler has the edges.
        if dataset.has_names and edges.csc is None:
            store.edge_index = edges.edge_index
        elif dataset.has_names:
            store.adj_t = edges.csc
        if edges.relation in features:
            store.num_edges, store.edge_attr = edges.num_edges, features[edges.relation]
    return data


@dataclass(eq=False, kw_only=True)
class PartitionedGraph(RunGraph):
    """A rank's part of the graph of a run over several ranks. Sampling reads all parts."""

    features: DistFeatureStore  # the attributes of the part's nodes, labels included

    @classmethod
    def of(cls, dataset: Dataset, config: TrainConfig, ranks: Ranks) -> PartitionedGraph:
        read, comm = TrainingData.of(dataset, config), ranks.sampling
        check_learned_fit(dataset, config, read.inputs.learned, ranks.size)
        part = _part(dataset, read, config, comm)
        report = report_partition(part, comm)
        balance = ", ".join(f"{report.balance(of):.2f} {of}" for of in ("nodes", "edges", "train"))
        notes = [f"{report.edge_cut:.1%} of edges join parts; largest over mean: {balance}"]
        whole = replicate_topology(part, comm) if config.ranks.hybrid else None
        part, budget = _training_part(part, read, config), config.sampling.memory_budget
        features = DistFeatureStore(part, comm, memory_budget=None if budget is None else max(1, budget // 2))
        topology = DistGraphStore(part, comm, whole)
        exists = ranks.from_first(lambda: aggregates_exist(config))
        cache, more = aggregation_cache(config, (features, topology), exists)
        history = None
        if config.ranks.remote is RemoteKind.HISTORICAL:
            sizes = config.ranks.cache_lines, config.ranks.life_span, config.ranks.push, config.ranks.delay
            history = HistoricalCaches(topology, ranks.another("pushes"), HistoricalSettings(*sizes))
        embedding = None
        if learned := read.inputs.learned:
            comm = ranks.another("embeddings")
            embedding = Embedding((features, topology), learned, seed=config.run.seed, comm=comm)
        return cls(
            config=config,
            data=(features, topology),
            inputs=read.inputs,
            cache=cache,
            notes=[*notes, *more],
            embedding=embedding,
            history=history,
            held=_held(features),
            features=features,
            predicted=predicted_of(dataset, config.task),
        )

    def node_labels(self, network: NativeNetwork, batch: Any) -> Tensor:
        return network.fetched(batch, LABELS)

    def embedded(self, nodes: AllNodes, rows: Mapping[str, Tensor]) -> EmbeddedRows:  # noqa: ARG002
        return RowsOverRanks.beside(self.features, rows)

    def owned_labels(self) -> Tensor:
        return self.features.own.attributes[Group(RowKind.NODE, self.inputs.node_type)][LABELS]

    def _whole_data(self) -> Any:
        return self._with_learned_rows(self.data)

    def _own_arguments(self, training: bool) -> dict[str, Any]:
        ranks = self.config.ranks
        # The aggregates of GCN include a node's own features, so only labels travel with them.
        are_cached = self.is_cached(training) and self.config.model.kind is ModelKind.GCN
        features = [FEATURES] if self.inputs.features and not are_cached else []
        features += [EDGE_FEATURES] if self.inputs.edges else []
        return {
            "attributes": features if self.inputs.link is not None else [*features, LABELS],
            "feature_cache": ranks.feature_cache if training else None,
            "schedule": (ranks.schedule if training else ScheduleKind.GLOBAL).value,
        }


def graph_of(dataset: Dataset, config: TrainConfig, ranks: Ranks) -> RunGraph:
    if ranks.is_alone:
        return WholeGraph.of(dataset, config)
    return PartitionedGraph.of(dataset, config, ranks)


def check_partition(source: str) -> None:
    """Raises `TrainError` unless ``source`` is a policy or the folder of a saved partition."""
    if source not in POLICIES and not is_partition(source):
        raise TrainError(
            f"ranks.partition is {source!r}, which is no folder of a saved partition and none of the "
            f"policies {', '.join(POLICIES)}"
        )


def _held(features: DistFeatureStore) -> int:
    tables = [table for of_group in features.own.attributes.values() for table in of_group.values()]
    left = {id(one.table) for one in features.own.disk}
    mapped = zip(tables, are_mapped(tables), strict=True)
    return sum(table.nbytes for table, is_there in mapped if is_there and id(table) not in left)


def _training_part(part: Part, read: TrainingData, config: TrainConfig) -> Part:
    """Returns the part with features in the run's dtype and labels of the predicted type only."""
    budget = config.sampling.memory_budget
    found = dict(part.attributes)
    for group in (*part.schema.node_groups, *part.schema.edge_groups):
        own = FEATURES if group.is_node else EDGE_FEATURES
        tables = {**found.get(group, {})}
        if (whole := read.features.get(group.name)) is not None:
            dtype = feature_type(whole, config)
            size = whole.numel() * dtype.itemsize // part.book.parts  # the same on all ranks
            stays = budget is not None and size > budget // 2 and whole.dtype in NATIVE_TYPES
            if isinstance(tables[own], ops.QuantizedTensor):
                tables[own] = converted(tables[own], dtype)
            elif dtype is not whole.dtype and not stays:
                tables[own] = torch.as_tensor(tables[own]).to(dtype)
        if group.name not in read.labels:
            tables.pop(LABELS, None)
        found[group] = tables
    return replace(part, attributes=found)


def _part(dataset: Dataset, read: TrainingData, config: TrainConfig, comm: Communicator) -> Part:
    """Returns this rank's part, made or read from a folder. It does not depend on the run's seed,
    so that runs can be compared. Raises `TrainError` if the folder is of another graph."""
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
    found = fingerprint_dataset(dataset)
    made_of = read_partition_meta(Path(source).expanduser()).origin.get("fingerprint") or {}
    if {**found, **made_of} != found:  # saved by a script, or by a release before, it says less
        raise TrainError(
            f"{source}: is of a graph of as many nodes and edges as {dataset.name}, but with other edges, "
            f"features, labels or splits; partition {dataset.name} anew"
        )
    _check_attributes(source, part, dataset, read, config.sampling.time_attr)
    return part


def _check_attributes(
    source: str, part: Part, dataset: Dataset, read: TrainingData, time_attr: str | None
) -> None:
    wanted = {}
    for name, x in read.features.items():
        is_node = isinstance(name, str)
        group = Group(RowKind.NODE if is_node else RowKind.EDGE, name)
        wanted[group, FEATURES if is_node else EDGE_FEATURES] = x
    wanted |= {(Group(RowKind.NODE, name), LABELS): y for name, y in read.labels.items()}
    wanted |= {(group, str(time_attr)): times for group, times in read.times.items()}
    for (group, name), whole in wanted.items():
        tables, row = part.attributes.get(group, {}), "node" if group.is_node else "edge"
        if name not in tables:
            what = f"{row} attribute {name!r}{of_type(dataset, group)}"
            raise TrainError(f"{source}: has no {what}; partition {dataset.name} anew")
        if tables[name].shape[1:] != whole.shape[1:]:
            columns = [list(table.shape[1:]) for table in (tables[name], whole)]
            raise TrainError(
                f"{source}: {row}s' {name!r} has rows of shape {columns[0]}, but {columns[1]} in "
                f"{dataset.name}; partition {dataset.name} anew"
            )
        _check_codes(source, name, tables[name], whole, dataset)


def _check_codes(source: str, name: str, own: Tensor, whole: Tensor, dataset: Dataset) -> None:
    both = [table.decoding if isinstance(table, ops.QuantizedTensor) else None for table in (own, whole)]
    if both[0] is None and both[1] is None:
        return
    if both[0] is None or both[1] is None:
        forms = ["numbers" if one is None else "int8 codes" for one in both]
        raise TrainError(
            f"{source}: {name!r} is {forms[0]}, but {forms[1]} in {dataset.name}; quantise the folder and "
            f"the partition alike, with batchgnn quantize, or neither"
        )
    if not torch.equal(both[0], both[1]):
        raise TrainError(
            f"{source}: {name!r} is int8 codes with other scales or offsets than in {dataset.name}; quantise "
            f"the folder and the partition alike, or partition {dataset.name} anew"
        )
