"""The times of a partitioned graph. A rank holds the times of its own rows.

The time order of a relation is made of a rank's own in-edges. Times of edges lie with them. Times
of nodes that other ranks own are fetched once, when a loader is made, and never in a hop (design,
section 8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.partition import Part, own_rounds
from pyg_batchgnn.store.dist_features import DistFeatureStore
from pyg_batchgnn.store.shard import Columns, RowRequest
from pyg_batchgnn.store.time_order import TimeOrder, WeightSums, shared_order, shared_sums
from pyg_batchgnn.store.times import (
    Sortedness,
    Times,
    check_has_edges,
    check_promise,
    checked_weight,
    later_of,
)
from pyg_batchgnn.types import Group

_HEADER = Header(MessageKind.PARTITION)
_ROW_BYTES = 8 + 8  # of a node's id or position and of a time


class PartTimes:
    """The times of a partitioned graph: the attribute ``name`` of ``store``. ``own``: of the rank's
    own rows, edges by position in its in-edges. The constructor and all methods are collective. A
    ValueError on one rank is raised on all. Exchanges are bounded (kind PARTITION)."""

    def __init__(self, store: DistFeatureStore, name: str) -> None:
        found, rows = own_attribute(store, name), store.part.rows_by_group
        self.store, self.own = store, on_all_ranks(store.comm, lambda: Times.of(name, found, rows))

    def orders(self, sortedness: Sortedness) -> tuple[TimeOrder | None, ...]:
        """Returns the time order of each relation's own in-edges; None without times. Each rank
        checks the user's promise for its in-edges. If one fails, all raise ValueError."""
        part, name = self.store.part, self.own.name
        of_sources = _source_times(self.store, self.own)
        found = [
            later_of(self.own.by_group.get(group), of_sources.get(number))
            for number, group in enumerate(part.schema.edge_groups)
        ]

        def check() -> None:
            for number, time in enumerate(found):
                if time is not None:
                    edges, relation = part.relations[number], part.schema.relations[number]
                    check_promise(name, relation, edges, time, by_target=_is_by_target(part, number))

        if sortedness is Sortedness.PROMISED:
            on_all_ranks(self.store.comm, check)
        return tuple(
            None if time is None else shared_order(name, edges, time)
            for edges, time in zip(part.relations, found, strict=True)
        )

    def of_inputs(self, nodes: Mapping[Group, Tensor]) -> SeedTimes:
        """Returns the times of nodes [n] int64, original ids, which are the same on all ranks.
        Raises ValueError if a type has no time, AgreementError if ranks give other nodes."""
        for group in nodes:
            self.own.check_seeds(group)
        node = {group: ids.unique() for group, ids in nodes.items()}
        digests = [[str(group), ops.digest_text(ops.minibatch_key(ids))] for group, ids in node.items()]
        self.store.comm.check_agreement({"seeds_digest": digests})
        time = {group: _gathered(self.store, self.own, group, ids) for group, ids in node.items()}
        return SeedTimes(self.own, node, time)


@dataclass(frozen=True, eq=False)
class SeedTimes:
    """The times of the nodes that may be seeds, of all owners."""

    times: Times  # those of the rank's own rows
    node: Mapping[Group, Tensor]  # by group, [n] int64 original ids, ascending
    time: Mapping[Group, Tensor]  # by group, [n] int64, the times of these nodes

    def of_seeds(self, group: Group, node: Tensor) -> Tensor:
        """Returns the seeds' own times, [S] int64."""
        self.times.check_seeds(group)
        return self.time[group][torch.searchsorted(self.node[group], node)]


def _source_times(store: DistFeatureStore, times: Times) -> dict[int, Tensor]:
    part, schema = store.part, store.part.schema
    found: dict[int, Tensor] = {}
    for number, group in enumerate(schema.node_groups):
        relations = [one for one, source in enumerate(schema.source_types) if source == number]
        if group not in times.by_group or not relations:
            continue
        sources = [part.relations[one].indices.to(torch.int64) for one in relations]
        distinct, places = ops.unique_nodes(sources, part.book.num_nodes)
        time = _read(store, times.name, group, distinct)
        found |= {one: time[place] for one, place in zip(relations, places, strict=True)}
    return found


def _read(store: DistFeatureStore, name: str, group: Group, node: Tensor) -> Tensor:
    """Returns the times [n] int64 of nodes given by ascending internal ids. Collective."""
    reader, pieces = store.reader({group: Columns([name])}), [torch.empty(0, dtype=torch.int64)]
    for rows in own_rounds(store.comm, node.numel(), _ROW_BYTES):
        request = RowRequest(node[rows.start : rows.stop])
        block = reader.read({group: request}, _HEADER).blocks[group]
        pieces.append(block.attributes[name].reshape(-1))
    return torch.cat(pieces)


def _is_by_target(part: Part, relation: int) -> bool:
    edges = part.relations[relation]
    has_edges = (edges.degrees > 0).nonzero().view(-1)
    node = part.original_ids(part.schema.target_types[relation])[has_edges]
    has_edges = has_edges[node.argsort()]
    ids = edges.explicit_edge_ids()
    first, last = ids[edges.indptr[has_edges]], ids[edges.indptr[has_edges + 1] - 1]
    return bool((last[:-1] < first[1:]).all())


def _gathered(store: DistFeatureStore, times: Times, group: Group, node: Tensor) -> Tensor:
    """Returns the times [n] int64 of nodes with the same original ids everywhere. Collective."""
    part, time = store.part, torch.empty_like(node)
    own = OwnRowFinder(part).find(part.schema.node_groups.index(group), node)
    mine = torch.stack([own.position, times.by_group[group][own.row]], dim=1)
    for rows in own_rounds(store.comm, len(mine), _ROW_BYTES):
        received = store.comm.all_gather(mine[rows.start : rows.stop], _HEADER).rows
        time[received[:, 0]] = received[:, 1]
    return time


def own_sums(
    store: DistFeatureStore, name: str, orders: Sequence[TimeOrder | None]
) -> tuple[WeightSums | None, ...]:
    """Returns the prefix sums of own in-edges' weights by relation, in time order if there is one;
    None without weights. Collective: a ValueError on one rank is raised on all."""
    part, found = store.part, own_attribute(store, name)
    check_has_edges(name, found)

    def sums() -> tuple[WeightSums | None, ...]:
        relations = zip(part.schema.edge_groups, part.relations, orders, strict=True)
        return tuple(
            shared_sums(name, edges, order, checked_weight(name, group, found[group], edges.num_edges))
            if group in found
            else None
            for group, edges, order in relations
        )

    return on_all_ranks(store.comm, sums)


@dataclass(frozen=True, eq=False)
class OwnRows:
    """Which nodes of a list belong to a set of nodes, such as a rank's own ones."""

    position: Tensor  # [k] int64, their positions in the list, ascending
    row: Tensor  # [k] int64, their rows among the nodes of their type
    missing: Tensor  # [n - k] int64, the positions of the nodes that are not among them, ascending


class OwnRowFinder:
    """Finds own nodes by original id, without an exchange. A type is sorted at most once."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._sorted: dict[int, SortedNodes] = {}

    def find(self, node_type: int, nodes: Tensor) -> OwnRows:
        """Finds which nodes of a list [n], in any order, the rank owns."""
        if node_type not in self._sorted:
            self._sorted[node_type] = SortedNodes.of(self._part.original_ids(node_type))
        return self._sorted[node_type].find(nodes)


@dataclass(frozen=True, eq=False)
class SortedNodes:
    """Nodes of one type in ascending order, in which other nodes can be looked up."""

    node: Tensor  # [n] int64 original ids, ascending
    # [n] int64, their rows before they were sorted, or None if they were ascending already. A
    # rank's nodes are, unless a saved partition was loaded by another number of ranks.
    order: Tensor | None

    @classmethod
    def of(cls, node: Tensor) -> SortedNodes:
        """Sorts nodes, [n] int64 original ids."""
        if ops.is_ascending(node):
            return cls(node, None)
        ascending, order = node.sort()
        return cls(ascending, order)

    def find(self, nodes: Tensor) -> OwnRows:
        """Finds which nodes of a list, [m] int64 original ids in any order, are among these."""
        if not self.node.numel():
            return OwnRows(self.node, self.node, torch.arange(nodes.numel()))
        row = torch.searchsorted(self.node, nodes).clamp(max=self.node.numel() - 1)
        is_own = self.node[row] == nodes
        position, missing = is_own.nonzero().view(-1), (~is_own).nonzero().view(-1)
        row = row[position]
        return OwnRows(position, row if self.order is None else self.order[row], missing)


T = TypeVar("T")


def own_attribute(store: DistFeatureStore, name: str) -> dict[Group, Tensor]:
    """Returns the rank's rows of an attribute by group, in the order of its nodes or in-edges."""
    return {group: tables[name] for group, tables in store.own.attributes.items() if name in tables}


def on_all_ranks(comm: Communicator, work: Callable[[], T]) -> T:
    """Runs ``work``. If it raises ValueError on a rank, all raise the first one. Collective."""

    def error(problems: Mapping[int, str]) -> ValueError:
        rank, text = next(iter(problems.items()))
        return ValueError(text if len(problems) == comm.size else f"rank {rank}: {text}")

    return comm.run_together(work, catch=(ValueError,), error=error)
