"""Attributes that decide how a graph is sampled, on every host that has the whole topology."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.data import Group
from pyg_batchgnn.partition import ArraySpec, allocate_on_host, own_rounds
from pyg_batchgnn.store.dist_features import DistFeatureStore
from pyg_batchgnn.store.hybrid import to_hosts
from pyg_batchgnn.store.part_checks import own_attribute


@dataclass(frozen=True, eq=False)
class _Rows:
    """A rank's rows of one group: their ids in the whole graph, [n] int64, and their values."""

    ids: Tensor
    values: Tensor


def replicate_attribute(store: DistFeatureStore, name: str) -> dict[Group, Tensor]:
    """Copies an attribute of all parts to every host. Collective.

    The first rank of each host receives the rows of the other parts in bounded pieces and writes
    them to memory that its host shares. They count as `MessageKind.PARTITION`.

    Args:
        store: the attributes of the partitioned graph.
        name: the attribute's name.

    Returns:
        By group that has the attribute, all rows: nodes by original id, edges by input edge id.
    """
    comm, leader = store.comm, store.comm.ranks_of_host[0]
    own, sizes = own_attribute(store, name), _sizes(store)
    specs = {
        str(at): ArraySpec(values.dtype, (sizes[group], *values.shape[1:]))
        for at, (group, values) in enumerate(own.items())
    }
    shared = allocate_on_host(comm, specs if leader == comm.rank else {})[leader]
    for at, (group, values) in enumerate(own.items()):
        for piece in _pieces(store, _Rows(_ids(store, group), values)):
            if leader == comm.rank:
                shared[str(at)][piece.ids] = piece.values
    comm.barrier()
    return {group: shared[str(at)] for at, group in enumerate(own)}


def _sizes(store: DistFeatureStore) -> dict[Group, int]:
    """Returns the number of rows of each group in the whole graph."""
    schema, part = store.part.schema, store.part
    nodes = zip(schema.node_groups, part.book.sizes.sum(0).tolist(), strict=True)
    return {**dict(nodes), **dict(zip(schema.edge_groups, part.edge_counts, strict=True))}


def _ids(store: DistFeatureStore, group: Group) -> Tensor:
    """Returns the ids of a rank's rows of a group in the whole graph, [n] int64."""
    part, schema = store.part, store.part.schema
    if group.is_node:
        return part.original_ids(schema.node_groups.index(group))
    return part.relations[schema.edge_groups.index(group)].explicit_edge_ids().to(torch.int64)


def _pieces(store: DistFeatureStore, own: _Rows) -> Iterator[_Rows]:
    """Yields the rows of all ranks at the first rank of every host, in bounded pieces."""
    row_bytes = own.values[:0].new_empty(1, *own.values.shape[1:]).nbytes + own.ids.itemsize
    for rows in own_rounds(store.comm, own.ids.numel(), row_bytes):
        at = slice(rows.start, rows.stop)
        ids = [piece for _, piece in to_hosts(store.comm, own.ids[at])]
        values = [piece for _, piece in to_hosts(store.comm, own.values[at])]
        yield _Rows(torch.cat(ids), torch.cat(values))
