"""What the four models share: a stack of PyG convolutions, each applied to its prefix of the minibatch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pyg_batchgnn.nn.models import ModelOutput
from pyg_batchgnn.train.model.pyg_layers.adjacency import destination_csr
from pyg_batchgnn.train.model.pyg_layers.layer_prefix import LayerPrefix, layer_prefixes, whole_graph_prefixes


class PygModel(nn.Module):
    """A graph neural network that computes no row that nothing reads.

    A subclass fills `convs` with one convolution a layer and `activations` with what follows each but the
    last, and may change how convolutions see the edges.
    """

    convs: nn.ModuleList
    activations: nn.ModuleList

    def layer_graphs(self, edge_index: Tensor, prefixes: list[LayerPrefix]) -> list[Tensor]:
        """The edges of each layer as its convolution takes them: by default CSR [rows_out, rows_in]."""
        csr = destination_csr(edge_index, prefixes, torch.get_default_dtype())
        return [csr.layer(prefix) for prefix in prefixes]

    def outputs(
        self,
        x: Tensor,
        edge_index: Tensor,
        num_sampled_nodes: Sequence[int] | None = None,
        num_sampled_edges: Sequence[int] | None = None,
    ) -> ModelOutput:
        """Logits and last hidden layer; the arguments are those of `forward`."""
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
        """Logits of the seeds of a minibatch, or of all nodes of a whole graph.

        Args:
            x: [N, features] float32.
            edge_index: [2, E] int64, row 0 sources, row 1 destinations.
            num_sampled_nodes: the batch's attribute of that name, length layers + 1; None for a whole graph.
            num_sampled_edges: the batch's attribute of that name, length layers; None for a whole graph.

        Returns:
            [S, classes], S = ``num_sampled_nodes[0]``, the rows of the seeds in order; or [N, classes].
        """
        return self.outputs(x, edge_index, num_sampled_nodes, num_sampled_edges).logits
