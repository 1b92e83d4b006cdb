"""The layer loop of PyG's `BasicGNN` on native layers, with what follows a layer fused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.models.basic_gnn import BasicGNN

from pyg_batchgnn import nn, ops
from pyg_batchgnn.port.convs import (
    AcceleratedGATConv,
    AcceleratedGCNConv,
    AcceleratedGINConv,
    AcceleratedSAGEConv,
)
from pyg_batchgnn.port.inputs import watches_parts
from pyg_batchgnn.port.modules import AcceleratedBatchNorm1d, AcceleratedMLP, is_probability

_CONVS = (AcceleratedSAGEConv, AcceleratedGCNConv, AcceleratedGINConv, AcceleratedGATConv)
#: Activations whose result for an element depends on that element alone.
_ELEMENTWISE = (
    *(torch.nn.ReLU, torch.nn.LeakyReLU, torch.nn.ELU, torch.nn.SELU, torch.nn.CELU, torch.nn.GELU),
    *(torch.nn.SiLU, torch.nn.Mish, torch.nn.Tanh, torch.nn.Sigmoid, torch.nn.Softplus, torch.nn.ReLU6),
    *(torch.nn.Hardtanh, torch.nn.Hardswish, torch.nn.LogSigmoid, torch.nn.Identity, torch.nn.PReLU),
)


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


def can_run(model: BasicGNN) -> bool:
    """Returns whether `run` computes what PyG's loop does.

    It does not if a convolution was left to PyG, if hooks wait on what the loop passes over, or if
    a module may look at other rows than its own.
    """
    norms = [_inner(norm) for norm in model.norms]
    between = [one for one in (model.act, model.dropout) if isinstance(one, torch.nn.Module)]
    return (
        all(map(_is_ours, model.convs))
        and not any(map(nn.waits_for_messages, model.convs))
        and not any(map(watches_parts, model.convs))
        and all(type(norm) in (torch.nn.Identity, AcceleratedBatchNorm1d) for norm in norms)
        and (model.act is None or type(model.act) in _ELEMENTWISE)
        and type(model.dropout) is torch.nn.Dropout
        and not any(map(nn.is_watched, (*model.norms, *norms, *between, *model.convs)))
        and is_probability(model.dropout.p)
    )


def drops(model: BasicGNN) -> bool:
    """Returns whether dropout takes part in a call now, between layers or of attention."""
    between = model.dropout.training and model.dropout.p > 0.0
    return between or any(conv.training and getattr(conv, "dropout", 0.0) > 0.0 for conv in model.convs)


def takes_row_statistics(model: BasicGNN) -> bool:
    """Returns whether rows of a hidden layer depend on each other now."""
    norms = (_inner(norm) for norm in model.norms)
    return any(isinstance(norm, AcceleratedBatchNorm1d) and norm.takes_row_statistics() for norm in norms)


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

    ``values`` are arguments of the convolution.
    """
    conv, norm = model.convs[place], model.norms[place]
    if place == model.num_layers - 1 and model.jk_mode is None:
        last: Tensor = conv(x, graph, **values)
        return last
    drop = model.dropout.p if model.dropout.training else 0.0
    relu = type(model.act) is torch.nn.ReLU
    same_mode = conv.training or drop == 0.0
    plain = type(norm) is torch.nn.Identity and (relu or model.act is None)
    if plain and same_mode:
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
    return ops.activate(out, relu=relu_last, drop=drop, key=key, node=graph.node)


def _is_ours(conv: torch.nn.Module) -> bool:
    """Returns whether a convolution is native, with what it holds."""
    if type(conv) is AcceleratedGINConv:
        return type(conv.nn) is AcceleratedMLP and conv.nn.plain_last
    return type(conv) in _CONVS


def _inner(norm: torch.nn.Module) -> torch.nn.Module:
    """Returns torch's module inside PyG's `BatchNorm`, and any other norm itself."""
    return norm.get_submodule("module") if type(norm) is torch_geometric.nn.BatchNorm else norm
