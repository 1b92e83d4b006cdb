"""The layer loop of PyG's `BasicGNN` on native layers, with what follows a layer fused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor
from torch_geometric.nn.models.basic_gnn import BasicGNN

from pyg_batchgnn import nn, ops


@dataclass(frozen=True)
class EdgeValues:
    """Weights or features of the edges, in the order of ``edge_index``.

    Attributes:
        weight: [E], for GCN.
        attr: [E, edge_dim], for GAT.
    """

    weight: Tensor | None = None
    attr: Tensor | None = None

    def of(self, graph: nn.LayerGraph) -> dict[str, Tensor]:
        """Returns the arguments of a convolution on a layer."""
        found = {}
        if self.weight is not None:
            found["edge_weight"] = self.weight[: (graph.whole or graph).num_edges]
        if self.attr is not None:
            found["edge_attr"] = self.attr[: graph.num_edges]
        return found


def run(
    model: BasicGNN, x: Tensor | nn.RowView, graphs: Sequence[nn.LayerGraph], values: EdgeValues
) -> Tensor:
    """Returns the model's output for the targets of the last layer.

    Args:
        model: a model for which `can_run` is true.
        x: the rows of the sources of the first layer.
        graphs: the edges of each layer. The targets of one are the sources of the next.
        values: of all edges.
    """
    rows = graphs[-1].num_targets
    hidden: list[Tensor] = []
    for place, graph in enumerate(graphs):
        hidden = [*hidden, compute_layer(model, place, hidden[-1] if hidden else x, graph, values.of(graph))]
        if not hasattr(model, "jk"):
            hidden = hidden[-1:]  # nobody needs the others
    out: Tensor = model.jk([one[:rows] for one in hidden]) if hasattr(model, "jk") else hidden[-1]
    if hasattr(model, "lin"):
        out = model.lin(out)
    return out


def compute_layer(
    model: BasicGNN,
    place: int,
    x: Tensor | nn.RowView,
    graph: nn.LayerGraph,
    values: Mapping[str, Tensor] = MappingProxyType({}),
) -> Tensor:
    """Returns the rows of layer ``place``, counted from 0, with what follows it.

    Norms, activations and dropouts of other classes than torch's own are called as they are.
    ``values`` are arguments of the convolution.
    """
    conv, norm = model.convs[place], model.norms[place]
    if place == model.num_layers - 1 and model.jk_mode is None:
        last: Tensor = conv(x, graph, **values)
        return last
    known = type(model.dropout) is torch.nn.Dropout
    drop = model.dropout.p if known and model.dropout.training else 0.0
    relu = type(model.act) is torch.nn.ReLU
    same_mode = conv.training or drop == 0.0
    plain = type(norm) is torch.nn.Identity and (relu or model.act is None)
    if plain and same_mode and known:
        fused: Tensor = conv(x, graph, update=nn.Update(relu=relu, drop=drop), **values)
        return fused
    out: Tensor = conv(x, graph, **values)
    if model.act is not None and model.act_first:
        out = model.act(out)
    out = norm(out)
    key = graph.dropout_key() if drop > 0.0 else 0
    relu_last = relu and not model.act_first
    if model.act is not None and not model.act_first and not relu:
        out = model.act(out)
    if not relu_last and drop > 0.0:
        out = out.clone()  # autograd may need the values that dropout would overwrite
    out = ops.activate(out, relu=relu_last, drop=drop, key=key, node=graph.node)
    return out if known else model.dropout(out)
