"""Each native model with the PyG model of the same parameters, and what tests feed them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from pyg_batchgnn import Minibatch, SampledMinibatch, nn
from pyg_batchgnn.nn.models import ModelOutput
from tests.support.layer_cases import FEATURES, sampled, table

HIDDEN, CLASSES = 16, 5


class PygGIN(pyg.GIN):
    """GIN with batch normalisation inside the perceptrons and between layers."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, norm="batch_norm", norm_kwargs={"allow_single_element": True})

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> pyg.GINConv:
        channels = [in_channels, self.hidden_channels, out_channels]
        made = pyg.MLP(channels, act=self.act, norm=self.norm, norm_kwargs=self.norm_kwargs)
        return pyg.GINConv(made, **kwargs)


class Pair(NamedTuple):
    """Constructors; the argument is the probability of dropout, where the model has it."""

    native: Callable[[float], nn.NativeModel]
    pyg: Callable[[], torch.nn.Module]


SHAPE = (FEATURES, HIDDEN, 3, CLASSES)
PAIRS: dict[str, Pair] = {
    "sage": Pair(lambda drop: nn.SAGE(*SHAPE, drop), lambda: pyg.GraphSAGE(*SHAPE)),
    "gcn": Pair(lambda drop: nn.GCN(*SHAPE, drop), lambda: pyg.GCN(*SHAPE, normalize=False)),
    "gat": Pair(
        lambda drop: nn.GAT(*SHAPE, drop, heads=4, attention_dropout=0.0), lambda: pyg.GAT(*SHAPE, heads=4)
    ),
    "gin": Pair(lambda _: nn.GIN(*SHAPE, norm="batch_norm", inner_channels=HIDDEN), lambda: PygGIN(*SHAPE)),
}


def both(
    kind: str, drop: float = 0.0, dtype: torch.dtype = torch.float32
) -> tuple[nn.NativeModel, torch.nn.Module]:
    """The two models of a kind with the same weights; PyG's never drops anything."""
    torch.manual_seed(7)
    native, reference = PAIRS[kind].native(drop).to(dtype), PAIRS[kind].pyg().to(dtype)
    reference.load_state_dict(native.state_dict())
    return native, reference


def on_prefixes(model: Any, x: Tensor, minibatch: SampledMinibatch) -> ModelOutput:
    """Applies a model of PyG's so that each layer computes only the rows that are read."""
    layers, hidden, edges, weight = len(model.convs), x, minibatch.edge_index, None
    nodes = minibatch.nodes_per_hop if minibatch.has_layers else [x.size(0), *[0] * layers]
    if isinstance(model, pyg.GCN):
        edges, weight = gcn_norm(edges, None, x.size(0), dtype=x.dtype)
    for index, conv in enumerate(model.convs):
        rows = sum(nodes[: layers - index])
        mine, hidden = edges[1] < rows, x[: sum(nodes[: layers - index + 1])]
        if weight is None:
            x = conv((x, x[:rows]), edges[:, mine])
        else:
            x = conv(x, edges[:, mine], weight[mine])[:rows]
        if index < layers - 1:
            x = model.norms[index](x).relu()
    return ModelOutput(x, hidden[: x.size(0)])


def with_features(minibatch: SampledMinibatch, dtype: torch.dtype = torch.float32) -> Minibatch:
    """The minibatch as a native loader hands it out, its features read in place."""
    return Minibatch.in_place(minibatch, {"x": table(dtype)})


def larger(epoch: int = 0, first: int = 0) -> Minibatch:
    return with_features(sampled(list(range(first, first + 30)), (15, 10, 5), epoch))
