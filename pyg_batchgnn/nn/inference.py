"""The inference of all nodes with a model: every node once, from all its in-neighbours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase
from torch_geometric.nn import GraphNorm, GraphSizeNorm, MeanSubtractionNorm, PairNorm

from pyg_batchgnn.nn.edge_features import GINEConv
from pyg_batchgnn.nn.gat import GATConv
from pyg_batchgnn.nn.gcn import GCNConv
from pyg_batchgnn.nn.gin import GINConv
from pyg_batchgnn.nn.hetero import PieceEdges
from pyg_batchgnn.nn.inputs import Rows, RowView
from pyg_batchgnn.nn.layer_steps import ModelOutput, end_of, last_rows, wide
from pyg_batchgnn.nn.modules import widest
from pyg_batchgnn.nn.native_conv import layer_name
from pyg_batchgnn.nn.sage import SAGEConv
from pyg_batchgnn.types import NewRows, OwnedNodes, ReadableRows, Relation

#: Arrays of a layer's width that a layer holds for each node: sums, products and two between.
_ARRAYS = 4
#: Layers that add up the rows of the sources before they multiply.
_SUMS_FIRST = (GATConv, GCNConv, GINConv, GINEConv, SAGEConv)
#: Rows that are computed together where every row is computed by itself.
_CHUNK = 1 << 16

#: Computes the input of the first layer from features by node type, each row by itself.
ComputeInputs = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]


@dataclass(frozen=True)
class LayerStep:
    """A layer of a model for `infer_layers`, with the row-wise steps that follow it."""

    # The convolution of each relation; relations that the graph does not have are left out.
    convs: Mapping[Relation, torch.nn.Module]
    # Returns the layer's rows of the targets by node type, from the rows before by node type and
    # the edges. A `HeteroConv` takes both: ``conv(x_dict, edges)``.
    compute: Callable[[Mapping[str, Rows], PieceEdges], Mapping[str, Tensor]]
    edge_values: Sequence[str] = ()  # the names of the values of edges that ``compute`` reads
    #: by relation, the name of the weights by which a `GCNConv` normalises; None: of all
    #: "edge_weight", if that is read
    weights: Mapping[Relation, str] | None = None

    def weight(self, relation: Relation) -> str | None:
        if self.weights is None:
            return GCNConv.edge_values if GCNConv.edge_values in self.edge_values else None
        return self.weights.get(relation)

    def result_bytes(self, columns: Mapping[str, int], relations: Sequence[Relation]) -> dict[str, int]:
        """Returns the bytes of memory that the layer takes for each target, by node type."""
        found: dict[str, int] = {}
        for relation in relations:
            source, _, target = relation
            most = max(columns.get(source, 1), columns.get(target, 1), widest(self.convs[relation]))
            found[target] = found.get(target, 0) + 4 * _ARRAYS * most
        return found

    def edge_bytes(self, relations: Sequence[Relation]) -> int:
        """Returns the bytes of memory that the layer takes for each edge, beside node ids. Most
        native layers take none, as they aggregate before they multiply. Others multiply all
        sources, and PyG's store a message per edge: it and two arrays like it are counted."""
        convs = [self.convs[one] for one in relations]
        others = [one for one in convs if not isinstance(one, _SUMS_FIRST) or getattr(one, "project", False)]
        return 4 * 3 * max(map(widest, others), default=0)


@torch.no_grad()
def infer_layers(
    steps: Sequence[LayerStep],
    nodes: OwnedNodes,
    keep: int = 1,
    *,
    node_types: Collection[str] | None = None,
    inputs: ComputeInputs | None = None,
) -> list[dict[str, Tensor]]:
    """Computes all nodes of a graph, layer by layer. Collective over ranks.

    Call ``eval()`` before; modules keep their mode. Every module must compute each row by itself
    (`check_row_wise`).

    Args:
        steps: the layers from the input on.
        nodes: the nodes that this process owns: ``loader.all_nodes()``.
        keep: how many of the last layers' results to return.
        node_types: the types wanted after the last layer; None for all. Types on which these do not
            depend are not computed.
        inputs: computes the input of the first layer from the features of a type, each row by
            itself, such as a `HeteroDictLinear`. None takes the features.

    Returns:
        For each of the last ``keep`` layers the rows of the owned nodes by type, [n, F] each. The
            input of the first layer counts as layer 0.

    Raises:
        ValueError: a wanted type is computed by no layer, or a type that is read has no features.
    """
    relations = _relations_read(steps, nodes.schema.relations, node_types)
    return _infer_steps(steps, relations, nodes, keep, inputs)


@torch.no_grad()
def infer_last_inputs(
    steps: Sequence[LayerStep],
    nodes: OwnedNodes,
    *,
    node_types: Collection[str] | None = None,
    hidden_types: Collection[str] | None = None,
    inputs: ComputeInputs | None = None,
) -> dict[str, Tensor]:
    """Computes the input of the last layer, [n, F] by type, without the last layer itself: the rows
    that it reads for ``node_types``, or the rows of ``hidden_types``. Raises as `infer_layers`."""
    before, existing = steps[:-1], nodes.schema.relations
    relations = _relations_read(steps, existing, node_types)
    if before and hidden_types is not None:
        relations = _relations_read(before, existing, hidden_types)
    (found,) = _infer_steps(before, relations, nodes, 1, inputs)
    return found if hidden_types is None else {name: found[name] for name in hidden_types}


def _relations_read(
    steps: Sequence[LayerStep], existing: Collection[Relation], node_types: Collection[str] | None
) -> list[list[Relation]]:
    found: list[list[Relation]] = []
    needed = None if node_types is None else set(node_types)
    for step in reversed(steps):
        read = [one for one in step.convs if one in existing and (needed is None or one[2] in needed)]
        missing = set() if found else set(node_types or ()) - {target for _, _, target in read}
        if missing or not read:
            named = f"the node types {sorted(missing)}" if missing else "any node type of the graph"
            raise ValueError(
                f"no relation of the layer leads to {named}: its relations are {list(step.convs)}, and those "
                f"of the graph {list(existing)}"
            )
        found.append(read)
        needed = None if needed is None else needed | {source for source, _, _ in read}
    return found[::-1]


def _infer_steps(
    steps: Sequence[LayerStep],
    relations: Sequence[Sequence[Relation]],
    nodes: OwnedNodes,
    keep: int,
    inputs: ComputeInputs | None,
) -> list[dict[str, Tensor]]:
    readable = _inputs(nodes, relations[0], inputs)
    kept = [_own(readable, nodes)]
    for number, (step, read) in enumerate(zip(steps, relations, strict=False), 1):
        del kept[: max(0, len(kept) + 1 - keep)]  # no longer held while the next layer is computed
        readable = _infer_layer(step, nodes, readable, read, f"layer {number} of {len(steps)}")
        kept.append(_own(readable, nodes))
    return kept


def _own(rows: Mapping[str, ReadableRows], nodes: OwnedNodes) -> dict[str, Tensor]:
    return {name: of_type[nodes.rank] for name, of_type in rows.items()}


def _inputs(
    nodes: OwnedNodes, relations: Sequence[Relation], inputs: ComputeInputs | None
) -> Mapping[str, ReadableRows]:
    ends = {name for source, _, target in relations for name in (source, target)}
    features = {name: rows for name, rows in nodes.features.items() if name in ends}
    for relation in relations:
        if relation[0] not in features:
            raise ValueError(
                f"{relation} reads the features x of the nodes of type {relation[0]!r}, but there are none "
                f"(types with features: {sorted(nodes.features)}); add them, or learned rows with "
                f"Embedding.as_features"
            )
    if inputs is None:
        return features
    return {name: _by_rows(name, rows, nodes, inputs) for name, rows in features.items()}


def _by_rows(name: str, rows: ReadableRows, nodes: OwnedNodes, inputs: ComputeInputs) -> ReadableRows:
    own, made = rows[nodes.rank], None
    for span in _chunks(len(own)):
        features = nodes.read(own, span)
        found = inputs({name: features})[name]
        if found is features:
            return rows  # all of them are what they were, on every rank
        if made is None:
            made = nodes.allocate(name, found.shape[1:], found.dtype)
        made.write(span.start, found)
    assert made is not None, "there is one chunk at least"
    readable = made.finish()
    nodes.finish()
    return readable


def _chunks(count: int) -> Iterator[range]:
    """Yields the ranges of rows that are computed at a time; at least one."""
    for begin in range(0, max(1, count), _CHUNK):
        yield range(begin, min(begin + _CHUNK, count))


def _infer_layer(
    step: LayerStep,
    nodes: OwnedNodes,
    before: Mapping[str, ReadableRows],
    relations: Sequence[Relation],
    title: str,
) -> Mapping[str, ReadableRows]:
    ends = {name for source, _, target in relations for name in (source, target)}
    before = {name: rows for name, rows in before.items() if name in ends}
    degrees = {
        relation: nodes.degrees(relation, not conv.add_self_loops, step.weight(relation), conv.fill)
        for relation in relations
        if isinstance(conv := step.convs[relation], GCNConv) and conv.normalize
    }
    columns = {name: rows[nodes.rank].size(1) for name, rows in before.items()}
    made: dict[str, NewRows] = {}
    result_bytes, edge_bytes = step.result_bytes(columns, relations), step.edge_bytes(relations)
    for piece in nodes.pieces(before, relations, result_bytes, title, edge_bytes, step.edge_values):
        degree = {one: values.of(piece.nodes[one[0]].ids) for one, values in degrees.items()}
        read: dict[str, Rows] = {
            name: one.table if one.order is None else RowView(one.table, one.order)
            for name, one in piece.nodes.items()
        }
        found = step.compute(read, PieceEdges(piece, degree))
        for name, own in piece.targets.items():
            if name not in made:
                made[name] = nodes.allocate(name, found[name].shape[1:], found[name].dtype)
            made[name].write(own.start, found[name])
        del piece, read, found, degree
    return {name: rows.finish() for name, rows in made.items()}


# Models ###########################################################################################


def infer_model(
    model: torch.nn.Module,
    steps: Sequence[LayerStep],
    nodes: OwnedNodes,
    node_types: Collection[str] | None = None,
    inputs: ComputeInputs | None = None,
) -> dict[str, ModelOutput]:
    """Computes all nodes with a model in evaluation mode, by node type; arguments as in
    `infer_layers`. Collective over ranks. ``hidden`` of a type may have no columns: not
    computed."""
    keep = 2 if model._modules.get("jk") is None else len(steps)
    with evaluating(model):
        kept = infer_layers(steps, nodes, keep, node_types=node_types, inputs=inputs)
        return {
            name: _finished(model, nodes, name, [rows.get(name, kept[-1][name][:, :0]) for rows in kept])
            for name in (kept[-1] if node_types is None else node_types)
        }


@torch.no_grad()
def _finished(
    model: torch.nn.Module, nodes: OwnedNodes, node_type: str, layers: Sequence[Tensor]
) -> ModelOutput:
    knowledge, last = end_of(model, node_type)
    if last is None and wide(layers[-1][:0]).dtype == layers[-1].dtype:
        return ModelOutput(layers[-1], layers[0])
    made: list[NewRows] = []
    for span in _chunks(len(layers[-1])):
        if last is None:
            found = [wide(nodes.read(layers[-1], span))]
        else:
            rows = [nodes.read(layer, span) for layer in layers]
            hidden = last_rows(rows, len(rows[-1]), knowledge)
            found = [wide(last(hidden)), hidden]
        if not made:
            made = [nodes.keep(node_type, one.shape[1:], one.dtype) for one in found]
        for table, one in zip(made, found, strict=True):
            table.write(span.start, one)
    logits, *others = (one.finish()[nodes.rank] for one in made)
    return ModelOutput(logits, others[0] if others else layers[0])


def nodes_of(
    loader: Any, memory_budget: int | str | None, progress: bool, scratch: str | Path | None = None
) -> OwnedNodes:
    """Returns ``loader.all_nodes(...)``. Raises TypeError if ``loader`` is none of this package."""
    if not hasattr(loader, "all_nodes"):
        raise TypeError(
            f"inference takes a pyg_batchgnn.MacrobatchNeighborLoader, got {type(loader).__name__}; its "
            f"fanouts and seed nodes do not matter"
        )
    nodes: OwnedNodes = loader.all_nodes(memory_budget, progress, scratch)
    return nodes


def check_cpu(*devices: Any) -> None:
    """Raises ValueError for a device that is not the CPU. None stands for the CPU."""
    for one in devices:
        if one is not None and torch.device(one).type != "cpu":
            raise ValueError(f"inference runs on the CPU, got device {one!r}; leave the devices out")


@contextlib.contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Sets a model to evaluation mode for the duration of a block."""
    check_row_wise(model.modules())
    were_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in were_training:
            module.training = True


#: Normalisations that take statistics over the rows of a call, in evaluation too.
_OVER_ROWS = (GraphNorm, GraphSizeNorm, MeanSubtractionNorm, PairNorm)
#: Activations along a dimension; 0 is the dimension of the nodes.
_ALONG_A_DIMENSION = (torch.nn.Softmax, torch.nn.LogSoftmax, torch.nn.Softmin, torch.nn.GLU)


def check_row_wise(modules: Iterable[torch.nn.Module]) -> None:
    """Raises ValueError for a module that mixes the rows of a call, as by batch statistics:
    inference computes nodes in pieces."""
    for module in modules:
        name = layer_name(module)
        if isinstance(module, _OVER_ROWS) or getattr(module, "mode", None) == "graph":
            raise ValueError(
                f"{name} takes statistics over all nodes of a call, but inference computes nodes in pieces; "
                f"call the model on the whole graph, or use BatchNorm or LayerNorm(mode='node')"
            )
        if isinstance(module, _NormBase) and module.running_mean is None:
            fact = "has no running statistics, so it takes those of each piece"
            raise ValueError(f"{name} {fact}; use track_running_stats=True")
        if isinstance(module, _ALONG_A_DIMENSION) and module.dim in (0, -2):
            raise ValueError(
                f"{name}(dim={module.dim}) goes over all nodes of a call, but inference computes nodes in "
                f"pieces; call the model on the whole graph, or use dim=-1"
            )
