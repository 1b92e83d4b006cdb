"""The graph of a run as its loaders read it, its times, and the rows that a model computes for all
nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import TensorAttr

from pyg_batchgnn.cache import AggregationCache, AllNodes
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Clock, Dataset, EdgeSet, FolderKeys
from pyg_batchgnn.embed import Embedding
from pyg_batchgnn.history import HistoricalCaches
from pyg_batchgnn.loader import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.store import DistFeatureStore, OwnRows, SortedNodes
from pyg_batchgnn.train.config.choices import CacheKind, LastMinibatch, ReplacementKind, TaskLoss
from pyg_batchgnn.train.config.train_config import TrainConfig
from pyg_batchgnn.train.errors import TrainError, as_train_error
from pyg_batchgnn.train.link_tasks import PredictedLinks
from pyg_batchgnn.train.network import ModelInputs, NativeNetwork, RowNetwork
from pyg_batchgnn.train.node_tasks import PredictedEdges, PredictedNodes
from pyg_batchgnn.types import Group, RowKind

_ALWAYS = torch.iinfo(torch.int64).min  # the time of nodes that exist always
_NEVER = torch.iinfo(torch.int64).max


def times_of(dataset: Dataset, config: TrainConfig) -> dict[Group, Tensor]:
    """Returns the times of nodes and edges, [rows] int64 by group; empty in a run without
    ``time_attr``. Raises `TrainError` if no type has the attribute, or one has no int64 times."""
    name = config.sampling.time_attr
    if name is None:
        return {}
    found = {one.group: one.tables[name] for one in dataset.sets if name in one.tables}
    if not found:
        known = sorted({key for one in dataset.sets for key, table in one.tables.items() if is_time(table)})
        there = f"it has int64 attributes {', '.join(known)}" if known else "it has no int64 attribute"
        raise TrainError(f"sampling.time_attr is {name}, but {dataset.name} has no such attribute; {there}")
    for group, table in found.items():
        if not is_time(table):
            kind = f"{str(table.dtype).removeprefix('torch.')} {list(table.shape)}"
            raise TrainError(
                f"{dataset.name}: the times {name!r} of {group} are {kind}; store one int64 for each, in a "
                f"unit that keeps what matters"
            )
    return found


def freeze_of(config: TrainConfig) -> int | None:
    """Returns the time after which nothing is sampled, or None. Raises `DatasetError`."""
    if config.sampling.freeze is None:
        return None
    keys = FolderKeys.of(config.run.dataset)
    return (Clock() if keys is None else keys.clock).moment(str(config.sampling.freeze))


def is_time(table: Tensor) -> bool:
    return table.dtype is torch.int64 and table.numel() == len(table)


def of_type(dataset: Dataset, group: Group | str) -> str:
    return f" of type {str(group)!r}" if dataset.has_names else ""


def link_times(dataset: Dataset, links: PredictedLinks, split: str, name: str) -> Tensor:
    """Returns [n] int64, the times of a split's links: their own attribute ``name``, else the
    edges'. Raises `TrainError` if there are none, or if a link is no edge or several edges."""
    found = links.split(split)
    if not len(found):
        return torch.empty(0, dtype=torch.int64)
    what = f"{dataset.name}: the links of {split}"
    if name in found.tables:
        table = found.tables[name]
        if not is_time(table):
            kind = f"{str(table.dtype).removeprefix('torch.')} {list(table.shape)}"
            raise TrainError(f"{what} have {name!r} as {kind}; store one int64 for each")
        return table.reshape(-1)
    edges = dataset.edges_of(links.relation)
    if name not in edges.tables:
        raise TrainError(
            f"{what} have no attribute {name!r}, and neither have the edges of {'-'.join(links.relation)}; "
            f"put the time of each link into links/.../{split}/{name}.npy"
        )
    return _times_of_pairs(edges, found.index, links.num_targets, name, what)


def _times_of_pairs(edges: EdgeSet, index: Tensor, num_targets: int, name: str, what: str) -> Tensor:
    times = edges.tables[name].reshape(-1)
    if index.shape == edges.edge_index.shape and torch.equal(index.long(), edges.edge_index.long()):
        return times
    keys, wanted = (ends[0].long() * num_targets + ends[1].long() for ends in (edges.edge_index, index))
    keys, order = keys.sort(stable=True)
    first, last = torch.searchsorted(keys, wanted), torch.searchsorted(keys, wanted, right=True)
    bad = (last - first != 1).nonzero().view(-1)
    if len(bad):
        at = int(bad[0])
        count = int(last[at] - first[at])
        raise TrainError(
            f"{what} have no attribute {name!r}, and link {index[:, at].tolist()} is {count} edges, so its "
            f"time is not known; put the time of each link beside the links, as {name}.npy"
        )
    return times[order[first]]


def first_times_of(dataset: Dataset, node_type: str, name: str) -> Tensor | None:
    """Returns [N] int64, the time from which each node of a type exists: its own time, else its
    first timed edge's. A node without either exists always; None if all do."""
    nodes = dataset.nodes_of(node_type)
    if name in nodes.tables:
        return nodes.tables[name].reshape(-1)
    if not any(name in one.tables for one in dataset.edge_sets):
        return None
    first = torch.full((nodes.num_nodes,), _NEVER)
    for edges in dataset.edge_sets:
        if name not in edges.tables:
            continue
        for row, end in enumerate((edges.relation[0], edges.relation[2])):
            if end == node_type:
                at = edges.edge_index[row].to(torch.int64)
                first.scatter_reduce_(0, at, edges.tables[name].reshape(-1), "amin")
    return torch.where(first == _NEVER, _ALWAYS, first)


def latest_time(dataset: Dataset, links: PredictedLinks, name: str) -> int:
    tables = [one.tables[name] for one in dataset.sets if name in one.tables]
    tables += [one.tables[name] for one in links.splits.values() if name in one.tables]
    return max(int(table.max()) for table in tables if table.numel())


_NAME = "rows"
#: A loader of nodes, edges or links.
AnyLoader: TypeAlias = MacrobatchNeighborLoader | MacrobatchLinkNeighborLoader


@dataclass(frozen=True, eq=False)
class EmbeddedNodes:
    """The rows that a model computed for some nodes of one type."""

    node: Tensor  # [n] int64, original ids
    rows: Tensor  # [n, columns]
    reads: AllNodes | None = None  # reads rows that may lie in a file; None: in memory

    def __len__(self) -> int:
        return len(self.node)

    def at(self, row: Tensor) -> Tensor:
        """Returns a copy of the rows at [k] int64 positions, in any order."""
        return self.rows.index_select(0, row) if self.reads is None else self.reads.gather(self.rows, row)

    def split(self, size: int) -> Iterator[EmbeddedNodes]:
        """Yields the nodes in batches of at most ``size``; without nodes, one empty batch."""
        for begin in range(0, max(1, len(self)), size):
            part = range(begin, min(begin + size, len(self)))
            node = self.node[part.start : part.stop]
            rows = (
                self.rows[part.start : part.stop] if self.reads is None else self.reads.read(self.rows, part)
            )
            yield EmbeddedNodes(node, rows)

    def find(self, ids: Tensor) -> OwnRows:
        """Finds which ids [m] int64 are among these nodes, with their positions and rows."""
        return SortedNodes.of(self.node).find(ids)

    def ascending(self) -> EmbeddedNodes:
        order = self.node.argsort()
        return EmbeddedNodes(self.node[order], self.rows[order])


@dataclass(frozen=True, eq=False)
class RowsHere:
    """The rows that a model computed for all nodes, all in this process."""

    rows: Mapping[str, Tensor]  # [N_t, columns] by node type, in the order of original ids
    reads: AllNodes | None = None  # like `EmbeddedNodes.reads`

    def of(self, node_type: str, ids: Tensor) -> Tensor:
        """Returns [n, columns], the rows of the nodes ``ids`` of a type; collective."""
        return self.own(node_type).at(ids)

    def own(self, node_type: str) -> EmbeddedNodes:
        """Returns this rank's nodes of a type, with their rows."""
        rows = self.rows[node_type]
        return EmbeddedNodes(torch.arange(len(rows)), rows, self.reads)

    def pieces(self, node_type: str, size: int) -> Iterator[EmbeddedNodes]:
        """Yields a type's nodes with their rows to all ranks, ``size`` at a time; collective."""
        return self.own(node_type).split(size)


@dataclass(frozen=True, eq=False)
class RowsOverRanks:
    """The rows that a model computed for all nodes, each on its owner; methods as in `RowsHere`."""

    store: DistFeatureStore  # the rows, as an attribute

    @classmethod
    def beside(cls, features: DistFeatureStore, rows: Mapping[str, Tensor]) -> RowsOverRanks:
        """Returns the rows of all ranks; collective. ``rows``: of this rank's nodes, by type."""
        schema = features.part.schema
        tables: dict[Group, dict[str, Tensor]] = {
            group: {} for group in (*schema.node_groups, *schema.edge_groups)
        }
        for name, found in rows.items():
            tables[Group(RowKind.NODE, name)][_NAME] = found
        return cls(DistFeatureStore(replace(features.part, attributes=tables), features.comm, share=False))

    def of(self, node_type: str, ids: Tensor) -> Tensor:
        name = node_type if self.store.part.schema.has_names else None
        rows = self.store.get_tensor(TensorAttr(name, _NAME, index=ids))
        return torch.as_tensor(rows)

    def own(self, node_type: str) -> EmbeddedNodes:
        part = self.store.part
        rows = self.store.own.attributes[Group(RowKind.NODE, node_type)][_NAME]
        return EmbeddedNodes(part.original_ids(part.schema.type_number(node_type)), rows)

    def pieces(self, node_type: str, size: int) -> Iterator[EmbeddedNodes]:
        return pieces_of_ranks(self.own(node_type), self.store.comm, size)


def pieces_of_ranks(own: EmbeddedNodes, comm: Communicator, size: int) -> Iterator[EmbeddedNodes]:
    each = max(1, size // comm.size)
    for begin in range(0, max(1, comm.max(len(own))), each):
        node = comm.all_gather(own.node[begin : begin + each], MessageKind.INFERENCE).rows
        rows = comm.all_gather(own.rows[begin : begin + each], MessageKind.INFERENCE).rows
        yield EmbeddedNodes(node, rows).ascending()


@dataclass(frozen=True, eq=False)
class SampledRows:
    """The rows of some nodes that each rank computed from sampled neighbours, whoever owns the
    nodes. Methods as in `RowsHere`."""

    rows: Mapping[str, EmbeddedNodes]  # this rank's rows by node type
    offered: Tensor  # [m] int64, the nodes that `pieces` yields, from ranks with their rows
    comm: Communicator  # of all ranks

    def own(self, node_type: str) -> EmbeddedNodes:
        return self.rows[node_type]

    def pieces(self, node_type: str, size: int) -> Iterator[EmbeddedNodes]:
        every = self.own(node_type)
        found = every.find(self.offered).row
        own = EmbeddedNodes(every.node[found], every.rows[found]).ascending()
        return pieces_of_ranks(own, self.comm, size) if self.comm.size > 1 else own.split(size)


#: The rows of all nodes of a graph. A rank holds the rows of its own nodes.
EmbeddedRows: TypeAlias = RowsHere | RowsOverRanks


@dataclass(eq=False, kw_only=True)
class RunGraph(ABC):
    """The graph of a run, whole or one part per rank. All loaders of the run share it."""

    config: TrainConfig
    data: Any  # the loader's first argument
    inputs: ModelInputs  # what the model reads
    cache: AggregationCache | None  # aggregates of the features, or None
    notes: list[str]  # lines about the graph to print
    embedding: Embedding | None  # the learned rows, or None
    history: HistoricalCaches | None = None  # historical embeddings of halo nodes, or None
    held: int = 0  # bytes of features that were read from files into memory
    predicted: PredictedNodes | PredictedLinks  # what the run predicts

    @property
    def memory_budget(self) -> int | None:
        """Bytes for the loaders and for passes over all nodes; None: not limited by the user."""
        budget = self.config.sampling.memory_budget
        return None if budget is None else max(1, budget - self.held)

    def training_loader(self, nodes: Tensor, ranks: int = 1) -> tuple[AnyLoader, list[str]]:
        """Returns the shuffled loader of training nodes or edges, and lines to print; collective.
        ``nodes``: [n] original ids."""
        last, notes = self._last_minibatch(len(nodes), ranks, self.predicted.unit)
        return self._loader(nodes, last), notes

    def evaluation_loader(
        self, nodes: Tensor, node_type: str | None = None, times: Tensor | None = None
    ) -> AnyLoader:
        """Returns a loader of nodes or edges, in order, with the evaluation fanout; collective.
        Minibatches are the same in every evaluation and on any number of ranks."""
        return self._loader(nodes, None, node_type, times)

    def link_loader(
        self,
        links: PredictedLinks,
        index: Tensor,
        times: Tensor | None,
        negatives: Tensor | tuple[str, int] | str | None = None,
        *,
        excludes: bool = True,
        last: LastMinibatch | None = None,
    ) -> MacrobatchLinkNeighborLoader:
        """Returns a loader of pairs; collective. ``index``: [2, n] original ids. ``times``: [n]
        int64. ``negatives``: as ``neg_sampling`` of the loader, or [n, k] int64 targets.
        ``excludes``: True hides a pair's own edges from it. ``last``: as in `_arguments`."""
        arguments, is_named = self._arguments(last), self.inputs.schema.has_names
        if isinstance(negatives, Tensor) and last is None:  # as many pairs in a minibatch as without
            arguments["batch_size"] = max(1, arguments["batch_size"] // (1 + negatives.size(1)))
        excluded: Any = "reverse"
        if is_named:
            excluded = True if links.reverse is None else {links.relation: links.reverse}
        index = index.to(torch.int64)
        with as_train_error(ValueError, NotImplementedError):
            return MacrobatchLinkNeighborLoader(
                self.data,
                edge_label_index=(links.relation, index) if is_named else index,
                edge_label_time=times,
                neg_sampling=negatives,
                exclude_seed_edges=excluded if excludes else False,
                **arguments,
            )

    def link_training_loader(
        self, links: PredictedLinks, ranks: int = 1, times: Tensor | None = None
    ) -> tuple[MacrobatchLinkNeighborLoader, list[str]]:
        """Returns the shuffled loader of training links with their negatives, and lines to print;
        collective. ``times``: [n] int64, or None."""
        task, split = self.config.task, links.split("train")
        last, notes = self._last_minibatch(len(split), ranks, "links")
        mode = "binary" if task.loss in (None, TaskLoss.BCE) else "triplet"
        negatives: Any = task.negatives if task.negatives == "in-batch" else (mode, task.negatives)
        if task.negatives == "given":
            negatives, fact = split.negative_targets, f"{links.dataset}: training links have no negatives"
            if negatives is None:
                raise TrainError(f"{fact}; write links/train/negative_targets.npy, or give --negatives 1")
        elif split.negative_targets is not None:
            notes = [*notes, "training links have negatives of their own, for --negatives given"]
        return self.link_loader(links, split.index, times, negatives, last=last), notes

    def _last_minibatch(self, count: int, ranks: int, unit: str) -> tuple[LastMinibatch, list[str]]:
        size, last = self.config.sampling.batch_size, self.config.sampling.last_batch
        if last is LastMinibatch.KEEP or count >= size * ranks:
            return last, []
        on = "" if ranks == 1 else f" on {ranks} ranks"
        kept = "the one smaller minibatch is kept" if ranks == 1 else "smaller minibatches are kept"
        return LastMinibatch.KEEP, [f"only {count} training {unit} for minibatches of {size}{on}: {kept}"]

    def _loader(
        self,
        nodes: Tensor,
        last: LastMinibatch | None,
        node_type: str | None = None,
        times: Tensor | None = None,
    ) -> AnyLoader:
        nodes, predicted = nodes.to(torch.int64), self.predicted
        with as_train_error(ValueError, NotImplementedError):
            if isinstance(predicted, PredictedEdges):
                has_names, name = self.inputs.schema.has_names, self.config.sampling.time_attr
                own = predicted.loader_arguments(nodes, name, has_names)
                return MacrobatchLinkNeighborLoader(self.data, **own, **self._arguments(last))
            node_type = node_type or self.inputs.node_type
            return MacrobatchNeighborLoader(
                self.data,
                input_nodes=(node_type, nodes) if self.inputs.schema.has_names else nodes,
                input_time=times,
                aggregation_cache=self.cache if self.is_cached(last is not None) else None,
                history=self.history if last is not None else None,
                **self._arguments(last),
            )

    def is_cached(self, training: bool) -> bool:
        config = self.config
        return config.sampling.cache is CacheKind.AGGREGATION if training else config.evaluates_with_cache

    def _arguments(self, last: LastMinibatch | None) -> dict[str, Any]:
        """Returns the arguments that loaders of nodes and links share. ``last``: in training, what
        becomes of a smaller last minibatch; None: evaluation, with every node, in order."""
        config, sampling, training = self.config, self.config.sampling, last is not None
        return {
            **self._choice(training),
            "batch_size": sampling.batch_size if training else config.test_batch_size,
            "shuffle": training,
            "drop_last": last is LastMinibatch.DROP,
            "macrobatch_size": sampling.macrobatch_size,
            "fetch_size": sampling.fetch_size,
            "memory_budget": self.memory_budget,
            "prefetch": sampling.prefetch,
            "embedding": self.embedding,
            "export": "native",
            **self._own_arguments(training),
        }

    def _choice(self, training: bool) -> dict[str, Any]:
        """Returns the arguments that say which neighbours are chosen, of loaders and samplers."""
        config, sampling = self.config, self.config.sampling
        return {
            "num_neighbors": list(sampling.fanout if training else config.test_fanout),
            "replace": sampling.replacement is ReplacementKind.WITH,
            "labor": sampling.labor and sampling.labor.value if training else None,
            "temporal_strategy": sampling.temporal_strategy.value,
            "time_attr": sampling.time_attr,
            "freeze": freeze_of(config),
            "seed": config.run.seed,
            "threads": config.run.threads,
        }

    def all_nodes(self) -> AllNodes:
        """Returns the nodes that this rank owns, for inference from all neighbours; collective."""
        return AllNodes(self._whole_data(), self.config.run.threads, self.memory_budget)

    def _with_learned_rows(self, data: Any) -> Any:
        """Returns the graph with the learned rows appended to its features; collective."""
        for name in self.inputs.learned:
            assert self.embedding is not None, "there are learned rows"
            data = self.embedding.as_features(data, node_type=name)
        return data

    def labels(self, network: RowNetwork, batch: Any) -> Tensor:
        """Returns [S, ...], the labels "y" of the minibatch's seed nodes or edges."""
        if isinstance(network, NativeNetwork):
            return self.node_labels(network, batch)
        assert isinstance(self.predicted, PredictedEdges), "links have no labels"
        labels: Tensor = batch.links[0].label if batch.links else self.predicted.labels[:0]
        return labels

    @abstractmethod
    def node_labels(self, network: NativeNetwork, batch: Any) -> Tensor:
        """Returns [S, ...], the labels "y" of the minibatch's seed nodes."""

    @abstractmethod
    def owned_labels(self) -> Tensor:
        """Returns [n, ...], the labels "y" of this rank's nodes, in the order of `all_nodes`."""

    @abstractmethod
    def embedded(self, nodes: AllNodes, rows: Mapping[str, Tensor]) -> EmbeddedRows:
        """Makes rows computed for `all_nodes`, by type, readable by original id; collective."""

    @abstractmethod
    def _whole_data(self) -> Any:
        """Returns graph and features for `AllNodes`."""

    @abstractmethod
    def _own_arguments(self, training: bool) -> dict[str, Any]:
        """Returns the loader's arguments that depend on where the graph lies."""
