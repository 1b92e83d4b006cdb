"""A fetcher over ranks: each distinct remote node's row crosses the wire once per fetch group.

See BatchGNN, appendix D.2.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Header, MessageKind
from pyg_batchgnn.data import EDGES, NODES, Group
from pyg_batchgnn.fetch.cache import CacheRequest, CacheSplit, FeatureCache, make_cache
from pyg_batchgnn.fetch.fetcher import Fetched, FetchGroup
from pyg_batchgnn.sample import AttributeRows, Minibatch, Placement, SampledMinibatch
from pyg_batchgnn.store import Columns, DistFeatureStore, RowRequest


class RemoteFetcher:
    """Fetches the attributes of sampled minibatches.

    Args:
        store: the store that has them.
        names: the node attributes that are wanted, the same on every rank.
        edge_names: the edge attributes that are wanted. Minibatches must then carry edge ids.
        internal: [N] internal ids by original id if minibatches hold original ids (topology on
            every rank); None if they hold internal ids, which then become original ones.
        threads: at most this many threads copy rows.

    Attributes:
        cache: remote rows that stay here, if `make_cache` was called.
    """

    def __init__(
        self,
        store: DistFeatureStore,
        names: Sequence[str],
        edge_names: Sequence[str] = (),
        internal: Tensor | None = None,
        threads: int | None = None,
    ) -> None:
        nodes = {NODES: Columns(names, original_ids=internal is None)}
        self._store = store
        self.cache: FeatureCache | None = None
        self._reader = store.reader({**nodes, EDGES: Columns(edge_names)} if edge_names else nodes, threads)
        self._nodes_only = store.reader(nodes, threads)
        self._edges, self._internal, self._threads = bool(edge_names), internal, threads
        self._num_nodes = store.book.num_nodes

    @property
    def row_bytes(self) -> int:
        """The bytes of a node on the wire, its original id included."""
        return self._reader.format(NODES).wire_bytes

    def make_cache(self, request: CacheRequest) -> None:
        """Chooses and fetches the remote rows that are to stay here; collective."""
        self.cache = make_cache(self._store.part, self._store.readable, self._nodes_only, request)
        self.cache.fill(self._nodes_only, self._store.version)
        ops.empty_cache()  # of sizes that are not needed again

    def _cached(self, node: Tensor) -> CacheSplit | None:
        """Splits ascending ids by whether the cache has their rows; None without a cache.

        It is collective if rows were written since the cache was filled.
        """
        if self.cache is None:
            return None
        if self.cache.version != self._store.version:
            self.cache.fill(self._nodes_only, self._store.version)
        return self.cache.split(node) if self.cache.node.numel() else None

    def fetch(self, group: FetchGroup) -> Fetched:
        """Fetches the group's attributes; see `Fetcher`.

        It is collective and takes two rounds, whatever the minibatches hold.
        """
        minibatches = group.minibatches
        header = Header(MessageKind.FEATURES, ops.to_signed(group.epoch), group.macrobatch, group.number)
        nodes = [self._internal_ids(minibatch.node) for minibatch in minibatches]
        unique, rows = ops.unique_nodes(nodes, self._num_nodes)
        split = self._cached(unique)
        missing, hits = (unique, 0) if split is None else (split.missing, split.row.numel())
        wanted, places = {NODES: RowRequest(missing)}, list[Tensor]()
        if self._edges:
            wanted[EDGES], places = _distinct_edges(minibatches, nodes)
        found = self._reader.read(wanted, header, room={NODES: hits})
        block = found.blocks[NODES]
        if split is not None and self.cache is not None:
            self.cache.put(block, split)
            rows = [ops.gather_rows(split.place, row, self._threads) for row in rows]
        original = None if block.original is None else block.original.to(torch.int64)
        ready, copied = [], sum(table.nbytes for table in block.attributes.values())
        for number, (minibatch, row) in enumerate(zip(minibatches, rows, strict=True)):
            attributes: dict[Group, AttributeRows] = {
                NODES: AttributeRows(block.attributes, row, Placement.BLOCK)
            }
            if self._edges:
                attributes[EDGES] = self._edge_rows(found.blocks[EDGES].attributes, places[number])
                copied += attributes[EDGES].nbytes
            node = None if original is None else ops.gather_rows(original, row, self._threads)
            ready.append(Minibatch.of(minibatch, attributes, node))
        fetched = found.fetched[NODES]
        return Fetched(
            ready,
            bytes=copied,
            rows=fetched,
            hits=hits,
            misses=0 if self.cache is None else fetched,
            hit_bytes=hits * self.row_bytes,
        )

    def _edge_rows(self, tables: Mapping[str, Tensor], place: Tensor) -> AttributeRows:
        """Copies the rows of a minibatch's edges, which lie at ``place`` in the tables."""
        own = {name: ops.gather_rows(table, place, self._threads) for name, table in tables.items()}
        return AttributeRows(own, None, Placement.MINIBATCH)

    def _internal_ids(self, node: Tensor) -> Tensor:
        if self._internal is None:
            return node
        return ops.gather_rows(self._internal, node, self._threads).to(torch.int64)


def _distinct_edges(
    minibatches: Sequence[SampledMinibatch], nodes: Sequence[Tensor]
) -> tuple[RowRequest, list[Tensor]]:
    """Returns the distinct edges by destination, and each minibatch's places in them."""
    edges = []
    targets = []
    for minibatch, node in zip(minibatches, nodes, strict=True):
        assert minibatch.edge is not None
        edges.append(minibatch.edge)
        targets.append(node[minibatch.destination])
    edge, inverse = torch.unique(torch.cat(edges), return_inverse=True)
    target = torch.empty_like(edge)
    target[inverse] = torch.cat(targets)
    order = torch.argsort(target, stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel())
    sizes = [len(part) for part in edges]
    return RowRequest(target[order], edge[order]), list(place[inverse].split(sizes))
