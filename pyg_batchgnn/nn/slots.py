"""The slots of attention for values of edges: the edges of each target and then its added loop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from pyg_batchgnn.nn.graph import LayerGraph

#: The features of an added loop: a number, a tensor [edge_dim], or the name of a reduction of the
#: features of the target's edges.
Fill = float | Tensor | str
#: The names of the reductions.
FILLS = ("add", "sum", "mean", "min", "max", "mul")


def edge_rows(graph: LayerGraph, edge_attr: Tensor, columns: int | None) -> Tensor:
    """Returns the features of the edges of a layer in its order, [E, columns].

    Args:
        graph: the edges of the layer.
        edge_attr: [>= E, columns] or [>= E], in the user's order.
        columns: the number of columns that the layer takes.

    Raises:
        ValueError: ``edge_attr`` has another shape.
    """
    features = edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr
    if features.dim() != 2 or features.size(1) != columns:
        raise ValueError(f"edge_attr must be [E, {columns}], got {list(edge_attr.shape)}")
    features = graph.edge_prefix(features, "edge_attr")
    return features if graph.edge is None else features.index_select(0, graph.edge)


@dataclass(frozen=True)
class Slots:
    """The slots of the edges of a layer.

    Attributes:
        graph: the edges of the layer.
        loops: replaces self loops by one for each of the first ``loops`` targets; None takes the
            edges as they are.
    """

    graph: LayerGraph
    loops: int | None

    @property
    def count(self) -> int:
        return self.graph.num_edges + (self.loops or 0)

    @cached_property
    def of_edges(self) -> Tensor:
        """[E] int64, the slot of each edge."""
        places = torch.arange(self.graph.num_edges)
        return places + self.graph.targets.clamp(max=self.loops) if self.loops else places

    @cached_property
    def of_loops(self) -> Tensor:
        """[loops] int64, the slot of each added loop."""
        ids = torch.arange(self.loops or 0)
        return self.graph.indptr[1 : ids.numel() + 1] + ids

    @cached_property
    def kept(self) -> Tensor:
        """[E] bool, True for edges that are not replaced."""
        if self.loops is None:
            return torch.ones(self.graph.num_edges, dtype=torch.bool)
        return self.graph.indices != self.graph.targets

    def spread(self, edges: Tensor, loops: Tensor | None) -> Tensor:
        """Returns the values of edges [E, H] and loops [loops, H] in their slots;
        differentiable."""
        if not self.loops or loops is None:
            return edges.contiguous()
        order = torch.cat([self.of_edges, self.of_loops])
        return edges.new_zeros(self.count, edges.size(1)).index_copy(0, order, torch.cat([edges, loops]))

    def loop_features(self, features: Tensor, fill: Fill) -> Tensor | None:
        """Returns the features of the added loops [loops, edge_dim], as PyG's `add_self_loops`
        does.

        Args:
            features: [E, edge_dim], of the edges by target.
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
        """Returns edges [2, E'] int64 and their values [E', H] in the order of PyG's layer.

        These are the edges of the user without the replaced self loops, then the added loops.
        """
        order = torch.arange(self.graph.num_edges)
        if self.graph.edge is not None:
            order = torch.empty_like(order).scatter_(0, self.graph.edge.long(), order)
        order = order[self.kept[order]]
        ids = torch.arange(self.loops or 0)
        edges = torch.stack([self.graph.indices.long(), self.graph.targets])[:, order]
        slots = torch.cat([self.of_edges[order], self.of_loops])
        return torch.cat([edges, torch.stack([ids, ids])], dim=1), values.index_select(0, slots)
