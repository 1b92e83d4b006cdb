"""Minibatches in the forms that PyG's loaders and their transforms know."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import BaseStorage
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput
from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn.sample.negatives import NegativeMode
from pyg_batchgnn.sample.sampling_plan import Direction
from pyg_batchgnn.store import reversed_relation
from pyg_batchgnn.types import Relation, SampledEdges, SampledMinibatch

if TYPE_CHECKING:
    from pyg_batchgnn.sample.tokens import Tokens, TokenTimes

PygOutput: TypeAlias = SamplerOutput | HeteroSamplerOutput


class Names(enum.Enum):
    """Whether the samples name node types."""

    NONE = "none"  # SamplerOutput, of a homogeneous graph
    TYPES = "types"  # HeteroSamplerOutput, whatever the number of types


@dataclass(frozen=True)
class PygForm:
    """The form of the samples (PyG's ``SamplerOutput``) that a sampler makes."""

    names: Names = Names.NONE
    subgraph: SubgraphType = SubgraphType.directional
    # The dtype of node ids and edges, taken from the user's edges.
    index_dtype: torch.dtype = torch.int64
    # The direction that was sampled in. Samples have the edges as the user knows them.
    direction: Direction = Direction.FORWARD
    times: TokenTimes | None = None  # the times that tokens get; None for none

    def output(self, minibatch: SampledMinibatch) -> PygOutput:
        made = self._plain(minibatch) if self.names is Names.NONE else self._typed(minibatch)
        if self.direction is Direction.BACKWARD:
            made = _restored(made)
        if self.subgraph is SubgraphType.bidirectional:
            return made.to_bidirectional()
        if self.subgraph is SubgraphType.induced:
            return replace(made, num_sampled_nodes=None, num_sampled_edges=None)
        return made

    def _plain(self, minibatch: SampledMinibatch) -> SamplerOutput:
        (nodes,), (edges,) = minibatch.nodes, minibatch.edges
        row, col = self._index(edges.edge_index)
        return SamplerOutput(
            node=self._index(nodes.node),
            row=row,
            col=col,
            edge=edges.edge,
            batch=None if nodes.example is None else self._index(nodes.example),
            num_sampled_nodes=list(nodes.nodes_per_hop),
            num_sampled_edges=list(edges.edges_per_hop),
            metadata=self._metadata(minibatch),
        )

    def _typed(self, minibatch: SampledMinibatch) -> HeteroSamplerOutput:
        schema = minibatch.schema
        nodes = dict(zip(schema.node_types, minibatch.nodes, strict=True))
        edges = dict(zip(schema.relations, minibatch.edges, strict=True))
        ends = self._ends(edges)
        is_disjoint = any(one.example is not None for one in minibatch.nodes)
        return HeteroSamplerOutput(
            node={name: self._index(one.node) for name, one in nodes.items()},
            row={name: end[0] for name, end in ends.items()},
            col={name: end[1] for name, end in ends.items()},
            edge={name: one.edge for name, one in edges.items()},
            batch={name: self._index(one.example) for name, one in nodes.items() if one.example is not None}
            if is_disjoint
            else None,
            num_sampled_nodes={name: list(one.nodes_per_hop) for name, one in nodes.items()},
            num_sampled_edges={name: list(one.edges_per_hop) for name, one in edges.items()},
            metadata=self._metadata(minibatch),
        )

    def _ends(self, edges: Mapping[Relation, SampledEdges]) -> dict[Relation, tuple[Tensor, Tensor]]:
        """Returns (row, col) by relation. Relations without edges share one pair."""
        found: dict[int, tuple[Tensor, Tensor]] = {}
        for one in edges.values():
            if id(one) not in found:
                index = self._index(one.edge_index)
                found[id(one)] = index[0], index[1]
        return {name: found[id(one)] for name, one in edges.items()}

    def _metadata(self, minibatch: SampledMinibatch) -> Any:
        """Returns PyG's metadata of seeds or of links, by relation if there are several. Tokens
        follow the metadata of seeds."""
        if len(minibatch.links) == 1:
            return minibatch.links[0].metadata
        if minibatch.links:
            return {one.relation: one.metadata for one in minibatch.links}
        seeds = (_by_seed_type(minibatch, one) for one in (minibatch.input_id, minibatch.seed_time))
        more = () if minibatch.tokens is None else (minibatch.tokens, minibatch.seed_time, self.times)
        return *seeds, *more

    def _index(self, values: Tensor) -> Tensor:
        return values if values.dtype is self.index_dtype else values.to(self.index_dtype)


def _restored(made: PygOutput) -> PygOutput:
    if isinstance(made, SamplerOutput):
        return replace(made, row=made.col, col=made.row)

    def renamed(by_relation: Any) -> Any:
        return {reversed_relation(names): part for names, part in by_relation.items()}

    row, col, counts = renamed(made.col), renamed(made.row), renamed(made.num_sampled_edges)
    return replace(made, row=row, col=col, edge=renamed(made.edge), num_sampled_edges=counts)


def _by_seed_type(minibatch: SampledMinibatch, values: Tensor | None) -> Any:
    if values is None or len(minibatch.seed_types) == 1:
        return values
    counts = [minibatch.nodes[number].nodes_per_hop[0] for number in minibatch.seed_types]
    names = [minibatch.schema.node_types[number] for number in minibatch.seed_types]
    return dict(zip(names, values.split(counts), strict=True))


class SampleInfo(Protocol):
    """Adds the entries of batches that are not attributes of the graph."""

    def add(self, batch: Any, out: PygOutput) -> None: ...


@dataclass(frozen=True)
class SeedInfo:
    """The entries of batches that begin with seed nodes."""

    types: Sequence[str] = ()  # the node types of the loader's seeds, if samples name types

    def add(self, batch: Any, out: PygOutput) -> None:
        add_ids(batch, out)
        is_typed = isinstance(out, HeteroSamplerOutput)
        for node_type in self.types if is_typed else ():
            # Metadata hold dicts by type if there are several.
            own = [part[node_type] if isinstance(part, dict) else part for part in out.metadata[:2]]
            _add_seeds(batch[node_type], *own)
        if not is_typed:
            _add_seeds(batch, *out.metadata[:2])
        if len(out.metadata) > 2:
            _add_tokens(batch, out, *out.metadata[2:])


def _add_tokens(
    batch: Any, out: PygOutput, tokens: Tokens, seed_time: Tensor | None, times: TokenTimes | None
) -> None:
    """Adds ``batch.tokens``, with times if the batch carries the time attribute."""
    if isinstance(out, HeteroSamplerOutput):
        nodes, edges = ([batch[name] for name in names] for names in (out.node, out.row))
    elif "tokens" in batch:
        raise ValueError("data has an attribute 'tokens', where the batch's tokens would be; rename it")
    else:
        nodes = edges = [batch]
    if times is not None:
        name = times.name
        of = (lambda number: nodes[number][name]), (lambda number: edges[number][name])
        tokens = times.put(tokens, seed_time, *of)
    batch.tokens = tokens


def add_ids(batch: Any, out: PygOutput) -> None:
    """Adds ids, counts and examples to a batch. A user's own ``n_id`` or ``e_id`` is kept."""
    if isinstance(out, HeteroSamplerOutput):
        _add_typed_ids(batch, out)
    else:
        _add_ids(batch, out)


def put_entry(store: BaseStorage, name: str, value: Any) -> None:
    """Puts a value into a store of a new batch; None removes the entry. PyG's own way also clears
    caches, which a new store does not have, and is slower."""
    if value is None:
        store._mapping.pop(name, None)
    else:
        store._mapping[name] = value


def _add_ids(batch: Data, out: SamplerOutput) -> None:
    if "n_id" not in batch:
        batch.n_id = out.node
    if out.edge is not None and "e_id" not in batch:
        batch.e_id = out.edge.to(torch.long)
    batch.batch = out.batch
    batch.num_sampled_nodes = out.num_sampled_nodes
    batch.num_sampled_edges = out.num_sampled_edges
    if out.orig_row is not None and out.orig_col is not None:
        batch._orig_edge_index = torch.stack([out.orig_row, out.orig_col])


def _add_typed_ids(batch: HeteroData, out: HeteroSamplerOutput) -> None:
    # Looking a store up by name takes PyG as long as there are types.
    stores: dict[Any, BaseStorage] = {**batch._node_store_dict, **batch._edge_store_dict}

    def store_of(key: Any) -> BaseStorage:
        return stores[key] if key in stores else batch[key]

    for node_type, node in out.node.items():
        if "n_id" not in stores.get(node_type, ()):
            put_entry(store_of(node_type), "n_id", node)
    for edge_type, edge in (out.edge or {}).items():
        if edge is not None and "e_id" not in stores.get(edge_type, ()):
            put_entry(store_of(edge_type), "e_id", edge.to(torch.long))
    for name in ("batch", "num_sampled_nodes", "num_sampled_edges"):
        for key, value in (getattr(out, name) or {}).items():
            put_entry(store_of(key), name, value)
    for edge_type in out.orig_row or {}:
        ends = [out.orig_row[edge_type], out.orig_col[edge_type]]
        store_of(edge_type)._orig_edge_index = torch.stack(ends)


def _add_seeds(store: Any, input_id: Any, seed_time: Any) -> None:
    store.input_id, store.seed_time = input_id, seed_time
    if input_id is not None:  # otherwise no loader made the minibatch
        store.batch_size = input_id.numel()


@dataclass(frozen=True)
class LinkInfo:
    """Writes the entries of batches of links: ``edge_label_index`` and others, or for triplets
    ``src_index`` and others. Raises ValueError if triplets of two relations share an entry."""

    # The relations of the links, each with the form of its negatives.
    relations: Sequence[tuple[Relation, NegativeMode | None]]
    timed: bool = False  # whether the links have times

    def __post_init__(self) -> None:
        triplets = [relation for relation, mode in self.relations if mode is NegativeMode.TRIPLET]
        for number, one in enumerate(triplets):
            for other in triplets[:number]:
                _refuse_shared_entries(other, one, self.timed)

    def add(self, batch: Any, out: PygOutput) -> None:
        add_ids(batch, out)
        for relation, mode in self.relations:
            # Metadata are a dict by relation if there are several.
            metadata = out.metadata[relation] if isinstance(out.metadata, dict) else out.metadata
            source = link = target = batch
            if isinstance(out, HeteroSamplerOutput):
                source, link, target = batch[relation[0]], batch[relation], batch[relation[2]]
            link.input_id = metadata[0]
            if mode is NegativeMode.TRIPLET:
                source.src_index, target.dst_pos_index, target.dst_neg_index = metadata[1:4]
                source.seed_time = target.seed_time = metadata[4]
                _remove(batch, link, relation)
            else:
                link.edge_label_index, link.edge_label, link.edge_label_time = metadata[1:4]
                if len(metadata) > 4:
                    link.edge_label_log_q, link.edge_label_hits = metadata[4:]


def _refuse_shared_entries(one: Relation, other: Relation, timed: bool) -> None:
    """Raises ValueError if triplets of two relations would share an entry of the batch: entries
    belong to node types, such as ``src_index`` to the sources' and ``seed_time`` to both."""
    shared = {a for a, b in ((one[0], other[0]), (one[2], other[2])) if a == b}
    if timed:
        shared |= {one[0], one[2]} & {other[0], other[2]}
    if shared:
        raise ValueError(
            f"two triplet relations share an end type: {one} and {other} have {sorted(shared)}, whose store "
            f"in a batch holds the triplets of one relation only; use neg_sampling='binary' for one of "
            f"them, a loader for each, or export='native'"
        )


def _remove(batch: Any, link: Any, relation: Relation) -> None:
    if link is batch or relation in batch.edge_types:
        for name in ("edge_label_index", "edge_label_time"):
            if name in link:
                del link[name]
