"""Makes a directed edge list undirected."""

from __future__ import annotations

import enum
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data.dataset import Dataset
from pyg_batchgnn.data.errors import broken

_PIECE = 1 << 22  # edges that are compared at a time
_FACTORS = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)  # the odd factors of splitmix64, for a digest


class ParallelEdges(enum.Enum):
    """How several edges between the same two nodes are treated."""

    KEEP = "keep"
    MERGE = "merge"


def make_undirected(
    edge_index: Tensor, num_nodes: int, parallel: ParallelEdges = ParallelEdges.KEEP
) -> Tensor:
    """Returns the edges in both directions. Raises `TypeError` or `ValueError`.

    >>> make_undirected(torch.tensor([[0, 1], [1, 2]]), 3, ParallelEdges.MERGE)
    tensor([[0, 1, 1, 2],
            [1, 0, 2, 1]])

    ``edge_index``: [2, E] int32 or int64, of ids below ``num_nodes``. KEEP returns [2, 2E], as
    BatchGNN does: the reverse of edge e is at E + e. MERGE returns [2, at most 2E]: one edge per
    ordered pair, sorted by source, then destination. The dtype stays.
    """
    _check(edge_index, num_nodes)
    both = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    if parallel is ParallelEdges.KEEP:
        return both
    return _merge(both, num_nodes)


def is_symmetric(edge_index: Tensor) -> bool:
    """Returns True if each edge of ``edge_index`` [2, E] is there as often as its reverse. Digests
    of the edges are summed; edges that differ have equal sums with probability 2^-64."""
    total = torch.zeros((), dtype=torch.int64)
    for source, target in zip(*(row.split(_PIECE) for row in edge_index), strict=True):
        total += (_digest(source.long(), target.long()) - _digest(target.long(), source.long())).sum()
    return not total


def _digest(source: Tensor, target: Tensor) -> Tensor:
    mixed = source
    for more, factor in ((0, _FACTORS[0]), (target, _FACTORS[1]), (0, _FACTORS[0])):
        mixed = (mixed ^ (mixed >> 29)) * factor + more
        mixed = mixed ^ (mixed >> 32)
    return mixed


def undirected_dataset(dataset: Dataset, parallel: ParallelEdges) -> Dataset:
    """Returns the data set with every edge in both directions. KEEP repeats the attributes of
    edges. Raises `DatasetError` for attributes with MERGE, or for several types or relations."""
    if not dataset.schema.is_plain:
        fact = f"the reverses of {len(dataset.edge_sets)} relations are relations of their own"
        raise broken(
            dataset.name, "edge_index", fact, "apply PyG's ToUndirected to a HeteroData, and give that"
        )
    edges = dataset.edges.tables
    if edges and parallel is ParallelEdges.MERGE:
        fact = "attributes of parallel edges cannot be merged without a rule"
        raise broken(dataset.name, next(iter(edges)), fact, "use ParallelEdges.KEEP or drop the attribute")
    edge_index = make_undirected(dataset.edge_index, dataset.num_nodes, parallel)
    both = {
        name: ops.rows_like(table, torch.cat([ops.as_stored(table)] * 2)) for name, table in edges.items()
    }
    source = f"{dataset.source.rstrip('.')}; made undirected (parallel edges: {parallel.value})."
    both_ways = replace(dataset.edges, topology=edge_index, tables=both)
    return replace(dataset, edge_sets=(both_ways,), source=source)


def _check(edge_index: Tensor, num_nodes: int) -> None:
    if edge_index.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"edge_index is {edge_index.dtype}; convert it to torch.int32 or torch.int64")
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise ValueError(f"edge_index has shape {list(edge_index.shape)}; it must be [2, E]")
    if edge_index.numel() == 0:
        return
    smallest, largest = (int(v) for v in torch.aminmax(edge_index))
    if smallest < 0 or largest >= num_nodes:
        value = smallest if smallest < 0 else largest
        raise ValueError(
            f"edge_index holds node id {value}, outside [0, {num_nodes}); correct num_nodes or the id"
        )


def _merge(edge_index: Tensor, num_nodes: int) -> Tensor:
    source, destination = edge_index.numpy()
    if num_nodes <= 3_037_000_499:  # num_nodes^2 fits int64: one sort of one number an edge
        key = source.astype(np.int64)
        key *= num_nodes
        key += destination
        key.sort()
        if key.size:
            key = key[np.concatenate(([True], key[1:] != key[:-1]))]
        pairs = np.stack(np.divmod(key, max(num_nodes, 1)))
    else:
        pairs = np.unique(np.stack([source, destination]), axis=1)
    return torch.from_numpy(pairs).to(edge_index.dtype)
