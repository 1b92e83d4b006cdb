"""The sources of attributes in one process, and the fetcher that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_batchgnn.data import Group
from pyg_batchgnn.fetch import BlockFetcher, Fetched, FetchGroup, InPlaceFetcher
from pyg_batchgnn.loader.gather import Gatherer
from pyg_batchgnn.sample import AttributeRows, Placement

#: The ids of the edges of each minibatch, and the rows of their attributes, by relation.
_EdgeIds: TypeAlias = Mapping[Group, list[Tensor]]
_EdgeRows: TypeAlias = dict[Group, list[AttributeRows]]


@dataclass(frozen=True, eq=False)
class Tables:
    """Attributes that can be read where they lie, by group and name.

    Attributes:
        nodes: those of nodes, one row per node of the graph.
        edges: those of edges, one row per edge of the graph; None if they are to be copied.
    """

    nodes: Mapping[Group, Mapping[str, Tensor]]
    edges: Mapping[Group, Mapping[str, Tensor]] | None


class Source(Protocol):
    """The attributes of both forms of a batch, read from the user's object when a batch is made."""

    def batch(self, out: SamplerOutput | HeteroSamplerOutput, gather: Gatherer) -> Any:
        """Makes a PyG batch with every attribute of a sample's nodes and edges."""

    def block(self, ids: Mapping[Group, Tensor], gather: Gatherer) -> dict[Group, dict[str, Tensor]]:
        """Copies the wanted attributes of the given nodes and edges, by group and name."""

    def tables(self, num_nodes: Mapping[Group, int]) -> Tables | None:
        """Returns the wanted attributes of all nodes and edges where they lie.

        It returns None if they are to be copied, and the same object as long as they are the same.

        Raises:
            ValueError: the user wants tables read in place that cannot be.
        """


class SourceFetcher:
    """Reads in place what can be read so when a fetch group is made, and copies else.

    Args:
        source: where attributes come from.
        num_nodes: the number of nodes of each group of nodes.
        threads: at most this many threads copy rows.
    """

    def __init__(self, source: Source, num_nodes: Mapping[Group, int], threads: int | None) -> None:
        self._source, self._num_nodes, self._threads = source, num_nodes, threads
        self._counts: Sequence[int] = list(num_nodes.values())
        self._last: tuple[Tables, bool, InPlaceFetcher] | None = None

    def fetch(self, group: FetchGroup) -> Fetched:
        """Returns the group's minibatches with their attributes; see `Fetcher`."""
        tables = self._source.tables(self._num_nodes)
        if tables is None:
            return self._copied(group, _edge_ids(group))
        have_ids = _have_edge_ids(group)
        fetched = self._in_place(tables, have_ids).fetch(group)
        if tables.edges is not None or not have_ids:
            return fetched
        edges = _edge_ids(group)
        found = self._read(_together(edges))
        copied = sum(table.nbytes for named in found.values() for table in named.values())
        return _joined(replace(fetched, bytes=fetched.bytes + copied), _split(found, edges))

    def _in_place(self, tables: Tables, have_ids: bool) -> InPlaceFetcher:
        """Returns the fetcher of tables, the one before if it is of the same."""
        if self._last is None or self._last[0] is not tables or self._last[1] != have_ids:
            edges = (tables.edges or {}) if have_ids else {}
            held = {group: named for group, named in edges.items() if named}
            self._last = tables, have_ids, InPlaceFetcher({**tables.nodes, **held})
        return self._last[2]

    def _copied(self, group: FetchGroup, edges: _EdgeIds) -> Fetched:
        """Copies the attributes of nodes and edges, all in one request."""
        found: dict[Group, dict[str, Tensor]] = {}

        def read(nodes: Mapping[Group, Tensor]) -> dict[Group, dict[str, Tensor]]:
            found.update(self._read({**nodes, **_together(edges)}))
            return found

        return _joined(BlockFetcher(read, self._counts).fetch(group), _split(found, edges))

    def _read(self, ids: Mapping[Group, Tensor]) -> dict[Group, dict[str, Tensor]]:
        return self._source.block(ids, Gatherer(self._threads))


def _edge_ids(group: FetchGroup) -> _EdgeIds:
    """Returns the edge ids of each minibatch by relation; none if minibatches have no edge ids."""
    if not group.minibatches:
        return {}
    found = {}
    for number, name in enumerate(group.minibatches[0].schema.edge_groups):
        ids = [minibatch.edges[number].edge for minibatch in group.minibatches]
        known = [one for one in ids if one is not None]
        if len(known) == len(ids):
            found[name] = known
    return found


def _have_edge_ids(group: FetchGroup) -> bool:
    """Returns whether minibatches have the ids of their edges."""
    reached = (one for minibatch in group.minibatches for one in minibatch.reached_edges.values())
    return all(one.edge is not None for one in reached)


def _together(edges: _EdgeIds) -> dict[Group, Tensor]:
    return {name: torch.cat(ids) for name, ids in edges.items()}


def _split(found: Mapping[Group, Mapping[str, Tensor]], edges: _EdgeIds) -> _EdgeRows:
    """Returns each minibatch's share of the rows that were read for `_together`."""
    rows: _EdgeRows = {}
    for group, ids in edges.items():
        pieces = {name: table.split(list(map(len, ids))) for name, table in found[group].items()}
        rows[group] = [
            AttributeRows({name: own[at] for name, own in pieces.items()}, None, Placement.MINIBATCH)
            for at in range(len(ids))
        ]
    return rows


def _joined(fetched: Fetched, edges: _EdgeRows) -> Fetched:
    """Adds the attributes of edges to minibatches."""
    held = {group: rows for group, rows in edges.items() if rows[0].tables}
    if not held:
        return fetched
    ready = [
        replace(
            minibatch,
            attributes={**minibatch.attributes, **{group: rows[at] for group, rows in held.items()}},
        )
        for at, minibatch in enumerate(fetched.minibatches)
    ]
    return replace(fetched, minibatches=ready)
