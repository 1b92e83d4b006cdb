"""PyG's own models, applied to the prefixes of a minibatch: the reference of the native models.

A node is expanded once, at the hop where it is found first. So layer l of L computes the first rows
of a minibatch, those of the first L - l + 1 hops, from the edges of these hops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GAT, GCN, GIN, MLP, GINConv, GraphSAGE
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.nn.models.basic_gnn import BasicGNN

from pyg_batchgnn.nn.models import ModelOutput


class PygOnPrefixes(BasicGNN):
    """A model of PyG's that computes in each layer only the rows that are read."""

    def weights(self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> tuple[Tensor, Any]:
        """Returns the edges of the whole minibatch, and what the convolutions take beside them."""
        del num_nodes, dtype
        return edge_index, None

    def layer(self, index: int, x: Tensor, rows: int, edges: Tensor, weight: Tensor | None) -> Tensor:
        """Returns [rows, C], the result of a convolution."""
        del weight
        result: Tensor = self.convs[index]((x, x[:rows]), edges)
        return result

    def outputs(
        self,
        x: Tensor,
        edge_index: Tensor,
        num_sampled_nodes: Sequence[int] | None = None,
        num_sampled_edges: Sequence[int] | None = None,
    ) -> ModelOutput:
        """Returns logits and the input of the last layer, of the seeds or of a whole graph."""
        layers, hidden = len(self.convs), x
        nodes = num_sampled_nodes or [x.size(0), *[0] * layers]
        edge_counts = num_sampled_edges or [edge_index.size(1), *[0] * (layers - 1)]
        sampled = edge_index[:, : sum(edge_counts)]
        edges, weight = self.weights(sampled, x.size(0), x.dtype)
        for index in range(layers):
            rows = sum(nodes[: layers - index])
            mine = edges[1] < rows
            hidden, x = (
                x[: sum(nodes[: layers - index + 1])],
                self.layer(index, x, rows, edges[:, mine], None if weight is None else weight[mine]),
            )
            if index < layers - 1:
                x = self.norms[index](x).relu()
        return ModelOutput(x, hidden[: x.size(0)])

    def forward(self, *args: Any) -> Tensor:
        """Returns the logits; the arguments are those of `outputs`."""
        return self.outputs(*args).logits


class PygSAGE(PygOnPrefixes, GraphSAGE):
    """GraphSAGE of PyG's layers."""


class PygGCN(PygOnPrefixes, GCN):
    """GCN of PyG's layers, normalised by the degrees of the whole minibatch."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, normalize=False)

    def weights(self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> tuple[Tensor, Any]:
        edges, weight = gcn_norm(edge_index, None, num_nodes, dtype=dtype)
        return edges, weight

    def layer(self, index: int, x: Tensor, rows: int, edges: Tensor, weight: Tensor | None) -> Tensor:
        result: Tensor = self.convs[index](x, edges, weight)[:rows]
        return result


class PygGAT(PygOnPrefixes, GAT):
    """GAT of PyG's layers, without dropout of attention."""

    def __init__(self, *args: Any, heads: int) -> None:
        super().__init__(*args, heads=heads)
        for conv in self.convs:
            conv.dropout = 0.0


class _OnceInitialised(MLP):
    """An `MLP` that leaves it to its convolution to draw the weights again, as native ones do."""

    _is_made = False

    def reset_parameters(self) -> None:
        if self._is_made:
            super().reset_parameters()
        self._is_made = True


class PygGIN(PygOnPrefixes, GIN):
    """GIN of PyG's layers, with batch normalisation inside the perceptrons and between layers."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, norm="batch_norm", norm_kwargs={"allow_single_element": True})

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> GINConv:
        channels = [in_channels, self.hidden_channels, out_channels]
        made = _OnceInitialised(channels, act=self.act, norm=self.norm, norm_kwargs=self.norm_kwargs)
        return GINConv(made, **kwargs)
