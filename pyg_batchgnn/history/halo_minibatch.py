"""A minibatch of a part and its halo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.fetch import Fetched, FetchGroup
from pyg_batchgnn.history.caches import HistoricalCaches
from pyg_batchgnn.history.embedding_cache import FoundRows
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.sample import (
    AttributeRows,
    Minibatch,
    Placement,
    SampledEdges,
    SampledMinibatch,
    SampledNodes,
)
from pyg_batchgnn.store import DistFeatureStore
from pyg_batchgnn.types import NODES


@dataclass(frozen=True, eq=False, repr=False)
class HistoricalMinibatch(Minibatch):
    """A minibatch sampled within a part and its halo. ``node``, ``nodes_per_hop`` and the
    attributes are of own nodes; in ``indices`` the halo nodes follow these. Halo nodes have no
    in-edges: layers read their rows from caches when the model runs (`begin_pass`)."""

    # The halo nodes, by original id, and how many of them each hop found.
    halo: SampledNodes = field(kw_only=True)
    # [H] int64, the number of each of them among the halo nodes of the part.
    halo_number: Tensor = field(kw_only=True)
    own: Tensor = field(kw_only=True)  # [N] int64, the row of each own node in the part
    caches: HistoricalCaches = field(kw_only=True)  # the caches of the rank

    @classmethod
    def of_part(
        cls, sampled: SampledMinibatch, caches: HistoricalCaches, tables: Mapping[str, Tensor]
    ) -> HistoricalMinibatch:
        """Returns a `HaloSampler`'s minibatch, whose ``node`` holds local ids, with its own nodes
        first. ``tables``: attributes by name, one row per node of the part, to be read in place."""
        nodes, edges, known = sampled.nodes[0], sampled.edges[0], caches.halo
        is_own = nodes.node < known.num_own
        own, halo = nodes.node[is_own], nodes.node[~is_own]
        per_hop = [int(hop.sum()) for hop in is_own.split(nodes.nodes_per_hop)]
        indptr, indices = edges.indptr, edges.indices
        if halo.numel():
            rank = is_own.cumsum(0)  # of own nodes, which come first
            behind = own.numel() + torch.arange(is_own.numel()) - rank
            indices = torch.where(is_own, rank - 1, behind).to(torch.int32).index_select(0, indices)
            begins = indptr[:-1][is_own[: indptr.numel() - 1]]
            indptr = torch.cat([begins, indptr[-1:]])
        left = [all_ - own for all_, own in zip(nodes.nodes_per_hop, per_hop, strict=True)]
        original = SampledNodes(ops.gather_rows(known.original, own), per_hop)
        return cls(
            sampled.schema,
            (original,),
            (SampledEdges(indptr, indices, edges.edge, edges.edges_per_hop),),
            sampled.key,
            sampled.input_id,
            sampled.seed,
            sampled.epoch,
            attributes={NODES: AttributeRows(tables, own, Placement.IN_PLACE)},
            halo=SampledNodes(ops.gather_rows(known.original, halo), left),
            halo_number=halo - known.num_own,
            own=own,
            caches=caches,
        )

    @property
    def in_edges(self) -> InEdges:
        """The edges into own nodes."""
        return InEdges(self.indptr, self.indices)

    def begin_pass(self) -> HistoricalPass:
        """Searches the caches for the rows of halo nodes, for one forward pass."""
        return HistoricalPass(self, self.caches)


class HistoricalPass:
    """One forward pass: the cached rows of halo nodes by layer; layer 1 is nearest the input. The
    caches are searched when it is made. In the first pass of the step's minibatch the rows of own
    nodes are noted for peers, and `push` sends them."""

    def __init__(self, minibatch: HistoricalMinibatch, caches: HistoricalCaches) -> None:
        self._minibatch, self._caches = minibatch, caches
        self._pushes = caches.wants_rows(minibatch.key)
        layers = len(minibatch.edges_per_hop)
        self._found = [self._search(layer) for layer in range(1, layers + 1)]

    def own_rows(self, layer: int) -> int:
        """Returns the number of own nodes among a layer's inputs."""
        return sum(self._minibatch.nodes_per_hop[: self._hops(layer) + 1])

    def in_edges(self, layer: int) -> InEdges:
        """Returns a layer's edges from sources that have a row. Sources are numbered own rows
        first, then cached rows. ``edge_ids``: the edges' positions in the minibatch; None if they
        are the first ones in order."""
        hops, found = self._hops(layer), self._found[layer - 1]
        whole, targets = self._minibatch.in_edges, sum(self._minibatch.nodes_per_hop[:hops])
        edges = sum(self._minibatch.edges_per_hop[:hops])
        if not found.place.numel():
            kept = InEdges(ops.prefix(whole.indptr, targets + 1), ops.prefix(whole.indices, edges))
        else:
            own_nodes = self._minibatch.own.numel()
            kept = ops.halo_layer(whole, targets, own_nodes, self.own_rows(layer), found.place)
        self._caches.count_edges(layer - 1, edges, edges - kept.num_edges)
        return kept

    def cached(self, layer: int) -> Tensor | None:
        """Returns [f, F], the cached rows among a layer's inputs, or None."""
        found = self._found[layer - 1]
        return self._caches.load(layer - 1, found) if found.found else None

    def num_cached(self, layer: int) -> int:
        """Returns the number of cached rows among a layer's inputs."""
        return self._found[layer - 1].found

    def note(self, layer: int, table: Tensor, row: Tensor | None = None) -> None:
        """Notes the own rows among a layer's inputs for peers, layer by layer; features are not
        noted, as each rank has fetched them. ``table``: [>= n, F], the own rows; or any table, with
        ``row`` [n], each own node's row in it. Raises ValueError if layer 1 reads other rows than
        the store's features."""
        if layer == 1:
            if self._found[0].found:
                self._caches.features.check(table)
            return
        if not self._pushes:
            return
        own = self._without_repeats()[: self.own_rows(layer)]
        self._caches.note(self._minibatch.seed, own, table, row)

    def push(self) -> None:
        """Starts to push the noted rows."""
        if self._pushes:
            self._caches.push()
            self._pushes = False

    def _hops(self, layer: int) -> int:
        return len(self._minibatch.edges_per_hop) - layer + 1

    def _search(self, layer: int) -> FoundRows:
        inputs = sum(self._minibatch.halo.nodes_per_hop[: self._hops(layer) + 1])
        if layer == 1:
            return self._caches.search_features(self._minibatch.halo_number[:inputs])
        return self._caches.search(layer - 1, self._minibatch.halo.node[:inputs])

    def _without_repeats(self) -> Tensor:
        """Returns the own nodes' rows in the part; -1 for a seed that is a seed already."""
        own, size = self._minibatch.own, self._minibatch.batch_size
        seeds, place = own[:size].unique(return_inverse=True)
        if seeds.numel() == size:
            return own
        first = torch.full_like(seeds, size).scatter_reduce_(0, place, torch.arange(size), "amin")
        repeated = torch.ones(size, dtype=torch.bool)
        repeated[first] = False
        return torch.cat([own[:size].masked_fill(repeated, -1), own[size:]])


# The fetcher of the historical mode: own rows are read where they lie.
#
# The features of halo nodes are fetched once.


class OwnRowFetcher:
    """Makes historical minibatches that read the attributes ``names`` of own nodes in place. Making
    it is collective, as it fetches the features of halo nodes."""

    def __init__(self, store: DistFeatureStore, names: Sequence[str], caches: HistoricalCaches) -> None:
        self._tables = {name: store.own.attributes[NODES][name] for name in names}
        self._store, self._caches = store, caches
        caches.features.fetch(store)

    @property
    def row_bytes(self) -> list[int]:
        """The bytes that a node's attributes take in messages, by type: 0."""
        return [0]

    def fetch(self, group: FetchGroup) -> Fetched:
        """Makes the minibatches; collective if the store has changed."""
        self._caches.features.fetch(self._store)
        made = [HistoricalMinibatch.of_part(one, self._caches, self._tables) for one in group.minibatches]
        return Fetched(list(made))
