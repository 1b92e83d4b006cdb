"""The distinct nodes and edges of a fetch group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.store import RowRequest


@dataclass(frozen=True, eq=False)
class DistinctNodes:
    """The nodes of one type in a fetch group, each once.

    Attributes:
        node: [U] int64, the distinct nodes, ascending.
        places: for each minibatch, [N] int64, the place of each of its nodes in ``node``.
    """

    node: Tensor
    places: list[Tensor]


@dataclass(frozen=True, eq=False)
class DistinctEdges:
    """The edges of one relation in a fetch group, each once.

    Attributes:
        request: the distinct edges, ascending by target.
        places: for each minibatch, [E] int64, the place of each of its edges in ``request``.
    """

    request: RowRequest
    places: list[Tensor]


def distinct_nodes(nodes: Sequence[Tensor], num_nodes: int) -> DistinctNodes:
    """Finds the distinct nodes of one type.

    Args:
        nodes: for each minibatch, [N] int64 ids.
        num_nodes: a number above all ids.
    """
    # A search takes time that grows with num_nodes.
    if not any(node.numel() for node in nodes):
        return DistinctNodes(torch.empty(0, dtype=torch.int64), list(nodes))
    return DistinctNodes(*ops.unique_nodes(nodes, num_nodes))


def distinct_edges(edges: Sequence[Tensor], targets: Sequence[Tensor]) -> DistinctEdges:
    """Finds the distinct edges of one relation.

    Args:
        edges: for each minibatch, [E] int64 input edge ids.
        targets: for each minibatch, [E] int64, the target of each edge by internal id.
    """
    none = torch.empty(0, dtype=torch.int64)
    edge, inverse = torch.unique(torch.cat([none, *edges]), return_inverse=True)
    target = torch.empty_like(edge)
    target[inverse] = torch.cat([none, *targets])
    order = torch.argsort(target, stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel())
    places = place[inverse].split([len(one) for one in edges])
    return DistinctEdges(RowRequest(target[order], edge[order]), list(places))
