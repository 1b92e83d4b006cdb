"""The base of the four models: PyG convolutions, each applied to its prefix of the minibatch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from pyg_batchgnn.nn.models import ModelOutput
from pyg_batchgnn.train.model.pyg_layers.adjacency import destination_csr
from pyg_batchgnn.train.model.pyg_layers.layer_prefix import LayerPrefix, layer_prefixes, whole_graph_prefixes


class PygModel(nn.Module):
    """A graph neural network that computes only the rows that are read.

    A subclass may change the form in which convolutions take the edges.

    Args:
        convs: one convolution per layer.
        between: makes the module that follows each convolution but the last.
    """

    def __init__(self, convs: Iterable[nn.Module], between: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.activations = nn.ModuleList(between() for _ in self.convs[1:])

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
        x = hidden = x[: prefixes[0].rows_in]
        for layer, (conv, prefix) in enumerate(zip(self.convs, prefixes, strict=True)):
            hidden = x[: prefix.rows_out]
            x = conv((x, hidden), graphs[layer])
            if layer < layers - 1:
                x = self.activations[layer](x)
        return ModelOutput(x, hidden)

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
