"""The base of the four models: PyG convolutions, each applied to its prefix of the minibatch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pyg_batchgnn.nn.models import LayerStack, ModelOutput
from pyg_batchgnn.train.model.pyg_layers.adjacency import destination_csr
from pyg_batchgnn.train.model.pyg_layers.layer_prefix import LayerPrefix, layer_prefixes, whole_graph_prefixes
from pyg_batchgnn.train.model.pyg_layers.relu_dropout import ReluDropout


@dataclass(frozen=True)
class PygLayerEdges:
    """The edges of one layer.

    Attributes:
        graph: the edges in the form that the convolution takes.
        rows_out: the number of rows that it computes.
    """

    graph: Tensor
    rows_out: int


class PygModel(LayerStack):
    """A graph neural network of PyG's convolutions, with ReLU and dropout after all layers but the
    last.

    A subclass may change the form in which convolutions take the edges. The other arguments are
    those of `LayerStack`.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        act = nn.ReLU(inplace=True)
        super().__init__(in_channels, hidden_channels, num_layers, out_channels, dropout, act=act, **kwargs)
        self.relu_dropout = ReluDropout(dropout)

    def compute(self, index: int, x: Tensor, edges: PygLayerEdges) -> Tensor:
        """Computes layer ``index`` (from 0), with what follows it."""
        result: Tensor = self.convs[index]((x, x[: edges.rows_out]), edges.graph)
        if self.is_followed(index):
            result = self.relu_dropout(self.norms[index](result))
        return result

    def layer_graphs(self, edge_index: Tensor, prefixes: list[LayerPrefix]) -> list[Tensor]:
        """Returns the edges of each layer as its convolution takes them, here [rows_out, rows_in]
        CSR."""
        csr = destination_csr(edge_index, prefixes, torch.get_default_dtype())
        return [csr.layer(prefix) for prefix in prefixes]

    def outputs(
        self,
        x: Tensor,
        edge_index: Tensor,
        num_sampled_nodes: Sequence[int] | None = None,
        num_sampled_edges: Sequence[int] | None = None,
    ) -> ModelOutput:
        """Returns logits and the last hidden layer. The arguments are those of `forward`."""
        layers = len(self.convs)
        if num_sampled_nodes is None or num_sampled_edges is None:
            prefixes = whole_graph_prefixes(layers, x.size(0), edge_index.size(1))
        else:
            prefixes = layer_prefixes(layers, num_sampled_nodes, num_sampled_edges)
        graphs = self.layer_graphs(edge_index, prefixes)
        edges = [
            PygLayerEdges(graph, prefix.rows_out) for graph, prefix in zip(graphs, prefixes, strict=True)
        ]
        return self._run(x[: prefixes[0].rows_in], edges)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        num_sampled_nodes: Sequence[int] | None = None,
        num_sampled_edges: Sequence[int] | None = None,
    ) -> Tensor:
        """Returns the logits of the seed nodes of a minibatch, or of all nodes of a whole graph.

        Args:
            x: [N, features] float32.
            edge_index: [2, E] int64, sources in row 0, destinations in row 1.
            num_sampled_nodes: the minibatch's attribute of that name, length layers + 1; None for a
                whole graph.
            num_sampled_edges: the minibatch's attribute of that name, length layers; None for a
                whole graph.

        Returns:
            [S, classes], one row per seed node in their order, S = ``num_sampled_nodes[0]``; or
            [N, classes].
        """
        return self.outputs(x, edge_index, num_sampled_nodes, num_sampled_edges).logits
