"""Where attention keeps what belongs to edges: in slots, each target's edges and then its added loop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from pyg_batchgnn.nn.graph import LayerGraph

#: How the features of an added loop are made: a number, [edge_dim] of them, or a reduction of the target's
#: edges' features.
Fill = float | Tensor | str


@dataclass(frozen=True)
class Slots:
    """Slots of a layer's edges.

    Attributes:
        graph: the layer's edges.
        loops: sampled self loops are left out, and the first ``loops`` targets get one each; None leaves
            edges as they are.
    """

    graph: LayerGraph
    loops: int | None

    @property
    def count(self) -> int:
        return self.graph.num_edges + (self.loops or 0)

    @cached_property
    def of_edges(self) -> Tensor:
        """[E] int64, the slot of every edge."""
        places = torch.arange(self.graph.num_edges)
        return places + self.graph.targets.clamp(max=self.loops) if self.loops else places

    @cached_property
    def of_loops(self) -> Tensor:
        """[loops] int64."""
        ids = torch.arange(self.loops or 0)
        return self.graph.indptr[1 : ids.numel() + 1] + ids

    @cached_property
    def kept(self) -> Tensor:
        """[E] bool, edges that are not left out."""
        if self.loops is None:
            return torch.ones(self.graph.num_edges, dtype=torch.bool)
        return self.graph.indices != self.graph.targets

    def spread(self, edges: Tensor, loops: Tensor | None) -> Tensor:
        """Values of edges [E, H] and loops [loops, H] in their slots; differentiable."""
        if not self.loops or loops is None:
            return edges.contiguous()
        order = torch.cat([self.of_edges, self.of_loops])
        return edges.new_zeros(self.count, edges.size(1)).index_copy(0, order, torch.cat([edges, loops]))

    def loop_features(self, features: Tensor, fill: Fill) -> Tensor | None:
        """Features of the added loops [loops, edge_dim], as PyG's `add_self_loops` makes them.

        Args:
            features: [E, edge_dim] of the edges by target.
            fill: see `Fill`; reductions are those of `torch_geometric.utils.scatter`.
        """
        if not self.loops:
            return None
        if isinstance(fill, str):
            kept, targets = features[self.kept], self.graph.targets[self.kept]
            return scatter(kept, targets, 0, dim_size=self.graph.num_targets, reduce=fill)[: self.loops]
        if isinstance(fill, Tensor):
            row = fill.to(features.device, features.dtype).view(1, -1)
            return row.expand(self.loops, features.size(1))
        return features.new_full((self.loops, features.size(1)), fill)

    def pyg_form(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Edges [2, E'] int64 and their values [E', H] out of slots, in the order of PyG's layer: the user's
        edges but for self loops that were left out, then the added loops."""
        order = torch.arange(self.graph.num_edges)
        if self.graph.edge is not None:
            order = torch.empty_like(order).scatter_(0, self.graph.edge.long(), order)
        order = order[self.kept[order]]
        ids = torch.arange(self.loops or 0)
        edges = torch.stack([self.graph.indices.long(), self.graph.targets])[:, order]
        slots = torch.cat([self.of_edges[order], self.of_loops])
        return torch.cat([edges, torch.stack([ids, ids])], dim=1), values.index_select(0, slots)
