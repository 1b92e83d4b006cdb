"""The sampled nodes of a type and the sampled edges of a relation."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import torch
from torch import Tensor


class Layout(enum.Enum):
    """The form of a minibatch's edges."""

    CSC = "csc"  # int32 sources by destination: what native layers read
    COO = "coo"  # int64 sources and destinations as well: what PyG's edge_index is


@dataclass(frozen=True, eq=False)
class SampledNodes:
    """The sampled nodes of one type.

    Attributes:
        node: [N_t] int64, node ids within the type in order of discovery, seeds first.
        nodes_per_hop: the number of seeds, then of the nodes discovered at hop 0, 1, ...; one more
            entry than there are hops.
        example: [N_t] int64, in disjoint sampling the number of each node's example, else None.
    """

    node: Tensor
    nodes_per_hop: list[int]
    example: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of the tensors."""
        return self.node.nbytes + (0 if self.example is None else self.example.nbytes)


@dataclass(frozen=True, eq=False)
class SampledEdges:
    """The sampled edges of one relation, as one CSC by target that holds every layer.

    Attributes:
        indptr: [D_t + 1] int64, where the in-edges of each of the D_t expanded rows of the target
            type begin.
        indices: [E_r] local ids of the sources within their type, int32 in native batches and int64
            in those for PyG.
        edge: [E_r] int64 input edge ids, or None if the plan does not ask for them.
        edges_per_hop: the number of edges of hop 0, 1, ...; empty in an induced subgraph, which has
            no hops.
        coo: [2, E_r] int64, local sources above local targets, if sampled for PyG, else None.
    """

    indptr: Tensor
    indices: Tensor
    edge: Tensor | None
    edges_per_hop: list[int]
    coo: Tensor | None = None

    @property
    def num_edges(self) -> int:
        """The number of edges, E_r."""
        return self.indices.numel()

    @property
    def destination(self) -> Tensor:
        """[E_r] int64, the local target of each edge."""
        if self.coo is not None:
            return self.coo[1]
        degrees = self.indptr[1:] - self.indptr[:-1]
        return torch.repeat_interleave(torch.arange(degrees.numel()), degrees)

    @property
    def edge_index(self) -> Tensor:
        """[2, E_r] int64, local sources above local targets, by target in hop order."""
        return torch.stack([self.indices.long(), self.destination]) if self.coo is None else self.coo

    @property
    def nbytes(self) -> int:
        """The bytes of the tensors."""
        edges = self.indices if self.coo is None else self.coo
        return sum(one.nbytes for one in (self.indptr, edges, self.edge) if one is not None)
