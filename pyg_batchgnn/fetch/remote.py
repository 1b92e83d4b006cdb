"""A fetcher over ranks: each distinct remote node's row crosses the wire once per fetch group.

See BatchGNN, appendix D.2.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Header, MessageKind
from pyg_batchgnn.fetch.cache import CacheRequest, CacheSplit, FeatureCache, choose_rows
from pyg_batchgnn.fetch.fetcher import DistinctNodes, Fetched, FetchGroup, distinct_nodes
from pyg_batchgnn.sample import AttributeRows, Minibatch, Placement, SampledMinibatch
from pyg_batchgnn.store import Columns, DistFeatureStore, RowBlock, RowRequest
from pyg_batchgnn.types import Group

#: The internal ids of the nodes of each minibatch, by node type.
_NodeIds: TypeAlias = Sequence[Sequence[Tensor]]


class RemoteFetcher:
    """Fetches the attributes of minibatches over ranks, of all types in one exchange. ``internal``:
    by node type, [N_t] internal ids by original id, if minibatches hold original ids (whole
    topology on every rank); None if they hold internal ids, which become original ones."""

    def __init__(
        self,
        store: DistFeatureStore,
        names: Mapping[Group, Sequence[str]],
        internal: Sequence[Tensor] | None = None,
    ) -> None:
        schema = store.part.schema
        nodes = {
            group: Columns(names.get(group, ()), original_ids=internal is None)
            for group in schema.node_groups
        }
        self._relations = [at for at, group in enumerate(schema.edge_groups) if names.get(group)]
        edges = {schema.edge_groups[at]: Columns(names[schema.edge_groups[at]]) for at in self._relations}
        self._store, self._schema, self._internal = store, schema, internal
        self._nodes_only = store.reader(nodes)
        self._reader = store.reader({**nodes, **edges}) if edges else self._nodes_only
        #: Types without any column are not asked for.
        self._asked = [group for group in schema.node_groups if internal is None or names.get(group)]
        self.cache: FeatureCache | None = None

    @property
    def row_bytes(self) -> tuple[int, ...]:
        """The bytes of a node's row in messages, by type, with its original id."""
        return tuple(self._reader.format(group).wire_bytes for group in self._schema.node_groups)

    def make_cache(self, request: CacheRequest) -> None:
        """Chooses and fetches the remote rows to cache here; collective."""
        chosen = choose_rows(self._store.part, self._store.readable, self._nodes_only, request)
        self.cache = FeatureCache(chosen)
        self.cache.fill(self._nodes_only, self._store.version)
        ops.empty_cache()  # of sizes that are not needed again

    def fetch(self, group: FetchGroup) -> Fetched:
        """Collective, two rounds."""
        minibatches = group.minibatches
        header = Header(MessageKind.FEATURES, ops.to_signed(group.epoch), group.macrobatch, group.number)
        groups, edge_groups = self._schema.node_groups, self._schema.edge_groups
        ids = [self._internal_ids(number, minibatches) for number in range(self._schema.num_types)]
        nodes = {
            kind: distinct_nodes(own, self._store.book.num_nodes)
            for kind, own in zip(groups, ids, strict=True)
        }
        edges = {
            edge_groups[number]: self._distinct_edges(number, minibatches, ids) for number in self._relations
        }
        splits = self._split(nodes)
        wanted = {
            kind: RowRequest(splits[kind].missing if kind in splits else nodes[kind].node)
            for kind in self._asked
        }
        found = self._reader.read(
            wanted | {kind: one.request for kind, one in edges.items()},
            header,
            room={kind: split.hits for kind, split in splits.items()},
        )
        if self.cache is not None:
            self.cache.put(found.blocks, splits)
        # The rows of each minibatch's nodes in the block of their type.
        places = [
            [ops.gather_rows(splits[kind].place, place) for place in one.places]
            if kind in splits
            else one.places
            for kind, one in nodes.items()
        ]
        rows = sum(found.fetched[kind] for kind in groups)
        ready = self._minibatches(minibatches, found.blocks, places, edges)
        of_nodes = (found.blocks[kind].attributes for kind in groups)
        of_edges = (one.attributes[kind].tables for one in ready for kind in edges)
        wire = dict(zip(groups, self.row_bytes, strict=True))
        return Fetched(
            ready,
            bytes=sum(table.nbytes for tables in (*of_nodes, *of_edges) for table in tables.values()),
            rows=rows,
            hits=sum(split.hits for split in splits.values()),
            misses=0 if self.cache is None else rows,
            hit_bytes=sum(split.hits * wire[kind] for kind, split in splits.items()),
        )

    # What is asked for ###########################################################################

    def _internal_ids(self, number: int, minibatches: Sequence[SampledMinibatch]) -> list[Tensor]:
        nodes = [minibatch.nodes[number].node for minibatch in minibatches]
        if self._internal is None:
            return nodes
        table = self._internal[number]
        return [ops.gather_rows(table, node).to(torch.int64) for node in nodes]

    def _distinct_edges(
        self, number: int, minibatches: Sequence[SampledMinibatch], ids: _NodeIds
    ) -> DistinctEdges:
        """Finds the distinct edges of one relation, with internal ids of their targets."""
        edges, targets = [], []
        for minibatch, node in zip(minibatches, ids[self._schema.target_types[number]], strict=True):
            own = minibatch.edges[number]
            assert own.edge is not None
            edges.append(own.edge)
            targets.append(node[own.destination])
        none = torch.empty(0, dtype=torch.int64)
        edge, inverse = torch.unique(torch.cat([none, *edges]), return_inverse=True)
        target = torch.empty_like(edge)
        target[inverse] = torch.cat([none, *targets])
        order = torch.argsort(target, stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel())
        places = place[inverse].split([len(one) for one in edges])
        return DistinctEdges(RowRequest(target[order], edge[order]), list(places))

    def _split(self, nodes: Mapping[Group, DistinctNodes]) -> dict[Group, CacheSplit]:
        """Splits the nodes of cached types; collective if rows were written since."""
        if self.cache is None:
            return {}
        if self.cache.version != self._store.version:
            self.cache.fill(self._nodes_only, self._store.version)
        return self.cache.split({group: one.node for group, one in nodes.items()})

    # What comes back #############################################################################

    def _minibatches(
        self,
        minibatches: Sequence[SampledMinibatch],
        blocks: Mapping[Group, RowBlock],
        places: Sequence[Sequence[Tensor]],
        edges: Mapping[Group, DistinctEdges],
    ) -> list[Minibatch]:
        by_type = [blocks[group] for group in self._schema.node_groups]
        original = [None if one.original is None else one.original.to(torch.int64) for one in by_type]
        ready = []
        for at, minibatch in enumerate(minibatches):
            own = [of_type[at] for of_type in places]
            attributes = {
                group: AttributeRows(block.attributes, row, Placement.BLOCK)
                for group, block, row in zip(self._schema.node_groups, by_type, own, strict=True)
            }
            for group, one in edges.items():
                rows = {
                    name: ops.gather_rows(table, one.places[at])
                    for name, table in blocks[group].attributes.items()
                }
                attributes[group] = AttributeRows(rows, None, Placement.MINIBATCH)
            ids = [
                ops.gather_rows(table, row)
                for table, row in zip(original, own, strict=True)
                if table is not None
            ]
            ready.append(Minibatch.of(minibatch, attributes, ids or None))
        return ready


@dataclass(frozen=True, eq=False)
class DistinctEdges:
    """The edges of one relation in a fetch group, each once."""

    request: RowRequest  # the distinct edges, ascending by target
    places: list[Tensor]  # for each minibatch, [E] int64, the place of each of its edges in ``request``
