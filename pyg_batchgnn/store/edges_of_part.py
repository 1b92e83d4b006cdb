"""A rank's own edges of a relation by original id."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition import Part, node_values


@dataclass(frozen=True, eq=False)
class OwnEdges:
    """The edges of a relation into a rank's own nodes.

    Attributes:
        index: [2, m] int64, sources above targets, original ids within their types.
        edge: [m] int64, their input edge ids, ascending.
        total: the number of edges of the relation in the whole graph.
    """

    index: Tensor
    edge: Tensor
    total: int


def own_edges(part: Part, comm: Communicator, relation: int) -> OwnEdges:
    """Returns a rank's own edges. Collective; counts as `MessageKind.PARTITION`.

    The original ids of sources that other ranks own are asked of their owners, in rounds.

    Args:
        part: this rank's.
        comm: of all ranks.
        relation: the number of the relation.
    """
    edges = part.relations[relation]
    distinct, (place,) = ops.unique_nodes([edges.indices.to(torch.int64)], part.book.num_nodes)
    source = node_values(comm, part.book, distinct, part.node)[place.long()]
    target = part.original_ids(part.schema.target_types[relation])[edges.targets()]
    edge, order = edges.explicit_edge_ids().to(torch.int64).sort()
    return OwnEdges(torch.stack([source, target])[:, order], edge, part.edge_counts[relation])
