"""The inference of all nodes with a model: every node once, from all its in-neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
import torch_geometric.nn
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from pyg_batchgnn.nn.graph import LayerGraph
from pyg_batchgnn.nn.inputs import Rows
from pyg_batchgnn.nn.layerwise import LayerStep, OwnedNodes, infer_layers
from pyg_batchgnn.nn.refusals import layer_name

#: Rows that jumping knowledge and the last linear layer compute together.
_ROWS = 1 << 16
#: Normalisations that take statistics over the rows of a call, in evaluation too.
_OVER_ROWS = (
    torch_geometric.nn.GraphNorm,
    torch_geometric.nn.GraphSizeNorm,
    torch_geometric.nn.MeanSubtractionNorm,
    torch_geometric.nn.PairNorm,
)
#: Activations along a dimension, which is that of the nodes if it is 0.
_ALONG_A_DIMENSION = (torch.nn.Softmax, torch.nn.LogSoftmax, torch.nn.Softmin, torch.nn.GLU)


class HasNodes(Protocol):
    """A loader that knows all nodes of its graph, such as `MacrobatchNeighborLoader`."""

    def all_nodes(self, memory_budget: int | str | None, progress: bool) -> OwnedNodes: ...


class StackedModel(Protocol):
    """A model with the attributes of PyG's `BasicGNN`; ``jk`` and ``lin`` where it has them."""

    convs: torch.nn.ModuleList
    training: bool

    def modules(self) -> Iterator[torch.nn.Module]: ...
    def train(self, mode: bool = True) -> Any: ...
    def eval(self) -> Any: ...


#: Computes a layer: see `infer_model`.
ComputeLayer = Callable[[int, Rows, LayerGraph], Tensor]


class LayerwiseOutput(NamedTuple):
    """The output of a model for the nodes that a process owns.

    Attributes:
        rows: [n, out_channels].
        hidden: [n, C], the input of the last layer, which is the last linear layer if there is
            jumping knowledge.
    """

    rows: Tensor
    hidden: Tensor


def infer_model(model: StackedModel, nodes: OwnedNodes, compute: ComputeLayer) -> LayerwiseOutput:
    """Computes all nodes with a model that is built as PyG's `BasicGNN`. Collective over ranks.

    Args:
        model: is set to evaluation mode meanwhile.
        nodes: the nodes that this process owns.
        compute: returns a layer's rows of the targets, with the normalisation and the activation
            that follow, from the number of the layer (from 0), the rows before and the edges.

    Raises:
        ValueError: the model normalises over the nodes of a call.
    """
    check_row_wise(model.modules())
    steps = [LayerStep(conv, partial(compute, number)) for number, conv in enumerate(model.convs)]
    knowledge, last = getattr(model, "jk", None), getattr(model, "lin", None)
    were_training = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        kept = infer_layers(steps, nodes, keep=2 if knowledge is None else len(steps))
        if last is None:
            return LayerwiseOutput(kept[1], kept[0])
        return _finish(kept if knowledge is not None else kept[1:], knowledge, last)
    finally:
        for module, was_training in were_training:
            module.training = was_training


@torch.no_grad()
def _finish(
    layers: Sequence[Tensor], knowledge: torch.nn.Module | None, last: torch.nn.Module
) -> LayerwiseOutput:
    """Computes what follows the layers, some rows at a time."""
    found = []
    for rows in zip(*(layer.split(_ROWS) for layer in layers), strict=True):
        hidden = rows[0] if knowledge is None else knowledge(list(rows))
        found.append(LayerwiseOutput(last(hidden), hidden))
    if len(found) == 1:
        return found[0]
    return LayerwiseOutput(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def nodes_of(loader: Any, memory_budget: int | str | None, progress: bool) -> OwnedNodes:
    """Returns all nodes of a loader's graph.

    Raises:
        TypeError: it is no loader of this package.
    """
    if not hasattr(loader, "all_nodes"):
        raise TypeError(
            f"inference takes a pyg_batchgnn.MacrobatchNeighborLoader, got {type(loader).__name__}; its "
            f"fanouts and seed nodes do not matter"
        )
    nodes: OwnedNodes = loader.all_nodes(memory_budget, progress)
    return nodes


def check_cpu(*devices: Any) -> None:
    """Raises ValueError for a device that is not the CPU. None stands for the CPU."""
    for one in devices:
        if one is not None and torch.device(one).type != "cpu":
            raise ValueError(f"inference runs on the CPU, got device {one!r}; leave the devices out")


def check_row_wise(modules: Iterable[torch.nn.Module]) -> None:
    """Raises ValueError for a module whose result depends on what else is in a call.

    Layers are computed in pieces of the nodes, so every node must be computed by itself.
    """
    for module in modules:
        name = layer_name(module)
        if isinstance(module, _OVER_ROWS) or getattr(module, "mode", None) == "graph":
            raise ValueError(
                f"{name} takes statistics over all nodes of a call, but inference computes nodes in pieces; "
                f"call the model on the whole graph, or use BatchNorm or LayerNorm(mode='node')"
            )
        if isinstance(module, _NormBase) and module.running_mean is None:
            raise ValueError(
                f"{name} has no running statistics, so it takes those of each piece; use "
                f"track_running_stats=True"
            )
        if isinstance(module, _ALONG_A_DIMENSION) and module.dim in (0, -2):
            raise ValueError(
                f"{name}(dim={module.dim}) goes over all nodes of a call, but inference computes nodes in "
                f"pieces; call the model on the whole graph, or use dim=-1"
            )
