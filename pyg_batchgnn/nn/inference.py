"""The inference of all nodes with a model: every node once, from all its in-neighbours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
import torch_geometric.nn
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from pyg_batchgnn.nn.graph import LayerGraph
from pyg_batchgnn.nn.inputs import Rows
from pyg_batchgnn.nn.layerwise import LayerStep, infer_layers
from pyg_batchgnn.nn.owned_nodes import OwnedNodes
from pyg_batchgnn.nn.refusals import layer_name
from pyg_batchgnn.nn.sampled import Relation
from pyg_batchgnn.nn.typed_edges import TypedEdges

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


class Evaluated(Protocol):
    """A model that can be set to evaluation mode."""

    def modules(self) -> Iterator[torch.nn.Module]: ...
    def eval(self) -> Any: ...


class StackedModel(Evaluated, Protocol):
    """A model with the attributes of PyG's `BasicGNN`; ``jk`` and ``lin`` where it has them."""

    convs: torch.nn.ModuleList


#: Computes a layer: see `infer_model`.
ComputeLayer = Callable[[int, Rows, LayerGraph], Tensor]


class LayerwiseOutput(NamedTuple):
    """The output of a model for the nodes of one type that a process owns.

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
        ValueError: the model normalises over the nodes of a call, or the graph has several node
            types or relations.
    """
    relation = _only_relation(nodes.schema)
    name = relation[0]

    def computed(number: int, x: Mapping[str, Rows], edges: TypedEdges) -> dict[str, Tensor]:
        graph = edges.graph(relation)
        assert graph is not None, "a piece has the edges of its relations"
        return {name: compute(number, x[name], graph)}

    steps = [LayerStep({relation: conv}, partial(computed, n)) for n, conv in enumerate(model.convs)]
    knowledge, last = getattr(model, "jk", None), getattr(model, "lin", None)
    with evaluating(model):
        kept = infer_layers(steps, nodes, keep=states_kept(len(steps), knowledge))
        return finished([rows[name] for rows in kept], knowledge, last)


def _only_relation(schema: Any) -> Relation:
    """Returns the only relation of a graph of one node type."""
    if not schema.is_plain:
        raise ValueError(
            f"the model is for one node type and one relation, but the graph has the node types "
            f"{list(schema.node_types)} and the relations {list(schema.relations)}; use "
            f"pyg_batchgnn.nn.to_hetero(model, metadata)"
        )
    relation: Relation = schema.relations[0]
    return relation


@contextlib.contextmanager
def evaluating(model: Evaluated) -> Iterator[None]:
    """Sets a model to evaluation mode for the duration of a block.

    Raises:
        ValueError: a module looks at all rows of a call; see `check_row_wise`.
    """
    check_row_wise(model.modules())
    were_training = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, was_training in were_training:
            module.training = was_training


def states_kept(num_layers: int, knowledge: torch.nn.Module | None) -> int:
    """Returns the number of layers whose rows `finished` takes."""
    return 2 if knowledge is None else num_layers


@torch.no_grad()
def finished(
    layers: Sequence[Tensor], knowledge: torch.nn.Module | None, last: torch.nn.Module | None
) -> LayerwiseOutput:
    """Computes what follows the layers, some rows at a time.

    Args:
        layers: [n, C] after each of the last layers; see `states_kept`.
        knowledge: the jumping knowledge over all layers, or None.
        last: the last linear layer, or None.
    """
    if last is None:
        return LayerwiseOutput(layers[-1], layers[0])
    found = []
    for rows in zip(*(layer.split(_ROWS) for layer in layers), strict=True):
        hidden = rows[-1] if knowledge is None else knowledge(list(rows))
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
