"""One sampled minibatch."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pyg_batchgnn.ops import minibatch_key


@dataclass(frozen=True, eq=False)
class Minibatch:
    """A sampled subgraph as one CSC by destination that holds every layer (design, section 3).

    Layer l of L (1 is nearest the input) computes the first ``sum(nodes_per_hop[:L-l+1])`` rows from the
    first ``sum(edges_per_hop[:L-l+1])`` edges; its inputs are the rows of the layer before.

    Attributes:
        node: [N] int64, node ids in order of discovery; the first ``batch_size`` are the seeds.
        indptr: [D + 1] int64, where each of the D expanded rows' in-edges begin.
        indices: [E] local ids of the sources, int32 in native batches and int64 in those for PyG.
        edge: [E] int64 input edge ids, or None where the plan does not ask for them.
        nodes_per_hop: seeds, then nodes discovered at hop 0, 1, ...; one more entry than there are hops.
        edges_per_hop: edges of hop 0, 1, ...
        coo: [2, E] int64 local sources above local destinations where sampled for PyG, else None.
        input_id: [S] int64 positions of the seeds in the loader's input, where a loader made the batch.
        row: [N] int64, where each node's attributes lie in ``block``, where a loader fetched them; ``node``
            itself where attributes are read in place.
        block: attributes by name: rows of the distinct nodes of the fetch group that the minibatch belongs
            to, or the user's own tables, a row a node of the graph.
        edge_block: edge attributes by name, [E, ...], a row an edge of the minibatch, where a loader over
            distributed stores fetched them.
        seed: of the sampler, which with `epoch` and `key` also keys dropout.
        epoch: in which the minibatch was sampled.
    """

    node: Tensor
    indptr: Tensor
    indices: Tensor
    edge: Tensor | None
    nodes_per_hop: list[int]
    edges_per_hop: list[int]
    coo: Tensor | None = None
    input_id: Tensor | None = None
    row: Tensor | None = None
    block: dict[str, Tensor] = field(default_factory=dict)
    edge_block: dict[str, Tensor] = field(default_factory=dict)
    seed: int = 0
    epoch: int = 0

    @property
    def batch_size(self) -> int:
        """Number of seed nodes."""
        return self.nodes_per_hop[0]

    @property
    def key(self) -> int:
        """Digest of the seed nodes, order included."""
        return minibatch_key(self.node[: self.batch_size])

    @property
    def num_nodes(self) -> int:
        return self.node.numel()

    @property
    def num_edges(self) -> int:
        return self.indices.numel()

    @property
    def edge_index(self) -> Tensor:
        """[2, E] int64 local sources above local destinations, grouped by destination in hop order."""
        if self.coo is not None:
            return self.coo
        degrees = self.indptr[1:] - self.indptr[:-1]
        destinations = torch.repeat_interleave(torch.arange(degrees.numel()), degrees)
        return torch.stack([self.indices.long(), destinations])

    def attribute(self, name: str, rows: int | None = None) -> Tensor:
        """Attribute ``name`` of the first ``rows`` nodes (all where None), gathered from the fetch group's
        block."""
        if self.row is None or name not in self.block:
            held = sorted(self.block) or "none"
            raise KeyError(f"the minibatch holds no attribute {name!r} (held: {held})")
        return self.block[name].index_select(0, self.row[:rows])

    @property
    def nbytes(self) -> int:
        """Bytes of the minibatch's own tensors, the block that it shares with others not counted."""
        edges = self.indices if self.coo is None else self.coo
        own = [self.node, self.indptr, edges, self.edge, None if self.row is self.node else self.row]
        own += self.edge_block.values()
        return sum(tensor.nbytes for tensor in own if tensor is not None)
