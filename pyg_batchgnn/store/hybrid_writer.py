"""Writing parts, as they arrive, into the arrays of a whole topology."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.data import Schema
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition import PartitionBook


@dataclass(frozen=True, eq=False)
class HybridArrays:
    """The arrays of a whole topology, all zeros at first.

    Attributes:
        relations: the in-edges of all nodes by original id, of each relation.
        internal: for each node type, [N_t] ``book.id_dtype``, the internal id of each node.
    """

    relations: tuple[InEdges, ...]
    internal: tuple[Tensor, ...]


class TopologyWriter:
    """Writes parts that other ranks send, all nodes before the first edge.

    The targets of a relation are counted here in order of their internal ids, so those of a part
    are a contiguous range.

    Args:
        schema: the node types and the relations.
        book: the partition book.
        arrays: the arrays to write.
    """

    def __init__(self, schema: Schema, book: PartitionBook, arrays: HybridArrays) -> None:
        self._schema, self._book, self._arrays = schema, book, arrays
        #: [N] the original id of each internal id.
        self._original = torch.empty(book.num_nodes, dtype=book.id_dtype)
        #: [parts, types], how many nodes of the type the parts before have.
        self._before = book.sizes.cumsum(0) - book.sizes
        #: By relation, [N_t + 1] int64, where the in-edges of each target begin, in order of
        #: internal ids.
        self._starts = [
            torch.zeros(book.num_nodes_of(target) + 1, dtype=torch.int64) for target in schema.target_types
        ]

    def nodes(self, part: int, first: int, columns: Tensor) -> None:
        """Writes nodes.

        Args:
            part: the part that they belong to.
            first: internal id of the first of them.
            columns: [n, 1 + w], original ids, and the numbers of in-edges of each relation into the
                node's type.
        """
        self._original[first : first + len(columns)] = columns[:, 0]
        for node_type, relations in enumerate(self._schema.relations_into):
            own = self._book.nodes_of(part, node_type)
            begin, end = max(first, own.start), min(first + len(columns), own.stop)
            if begin >= end:
                continue
            rows = columns[begin - first : end - first]
            node, row = rows[:, 0], begin + self._shift(part, node_type)
            self._arrays.internal[node_type][node] = torch.arange(begin, end, dtype=self._book.id_dtype)
            for at, relation in enumerate(relations):
                self._starts[relation][row + 1 : row + 1 + len(rows)] = rows[:, 1 + at]
                self._arrays.relations[relation].indptr[node + 1] = rows[:, 1 + at]

    def end_nodes(self) -> None:
        """Adds up the numbers of in-edges. Edges can be written after it."""
        for starts, edges in zip(self._starts, self._arrays.relations, strict=True):
            torch.cumsum(starts, 0, out=starts)
            torch.cumsum(edges.indptr, 0, out=edges.indptr)

    def edges(self, relation: int, part: int, first: int, columns: Tensor) -> None:
        """Writes edges of a relation.

        Args:
            relation: the number of the relation.
            part: the part that their targets belong to.
            first: position of the first of them among all edges of the relation, by internal id of
                their targets.
            columns: [n, 2], internal ids of the sources, and edge ids.
        """
        starts, arrays = self._starts[relation], self._arrays.relations[relation]
        place = torch.arange(first, first + len(columns))
        row = torch.searchsorted(starts, place, right=True) - 1
        target = self._original[row - self._shift(part, self._schema.target_types[relation])]
        slot = arrays.indptr[target.to(torch.int64)] + (place - starts[row])
        arrays.indices[slot] = self._original[columns[:, 0].to(torch.int64)].to(arrays.indices.dtype)
        assert arrays.edge_ids is not None
        arrays.edge_ids[slot] = columns[:, 1].to(arrays.edge_ids.dtype)

    def _shift(self, part: int, node_type: int) -> int:
        """Returns what must be added to a part's internal id to count it among the nodes of its
        type."""
        return int(self._before[part, node_type]) - self._book.nodes_of(part, node_type).start
