"""Layers computed for all nodes, one after the other, in pieces of the nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.nn.gcn import GCNConv
from pyg_batchgnn.nn.inputs import Rows
from pyg_batchgnn.nn.lazy import widest
from pyg_batchgnn.nn.owned_nodes import NodePieceLike, NodeValues, OwnedNodes, ReadableRows
from pyg_batchgnn.nn.rows import RowView
from pyg_batchgnn.nn.sampled import Relation
from pyg_batchgnn.nn.typed_edges import OfPiece, TypedEdges

#: Arrays of a layer's width that a layer holds for each node: sums, products and two between.
_ARRAYS = 4
#: Rows that are computed together where every row is computed by itself.
_CHUNK = 1 << 16

#: Computes the input of the first layer from features by node type, each row by itself.
ComputeInputs = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]


@dataclass(frozen=True)
class LayerStep:
    """A layer of a model, with all that follows it row by row.

    Attributes:
        convs: the convolution of each relation; relations that the graph does not have are left
            out.
        compute: returns the layer's rows of the targets by node type, from the rows before by node
            type and the edges. A `HeteroConv` takes both: ``conv(x_dict, edges)``.
    """

    convs: Mapping[Relation, torch.nn.Module]
    compute: Callable[[Mapping[str, Rows], TypedEdges], Mapping[str, Tensor]]

    def degrees(self, nodes: OwnedNodes, relations: Sequence[Relation]) -> dict[Relation, NodeValues]:
        """Returns the degrees that the convolutions of some relations normalise by."""
        found = {}
        for relation in relations:
            conv = self.convs[relation]
            if isinstance(conv, GCNConv) and conv.normalize:
                found[relation] = nodes.degrees(relation, with_loops=not conv.add_self_loops)
        return found

    def result_bytes(self, columns: Mapping[str, int], relations: Sequence[Relation]) -> dict[str, int]:
        """Returns the bytes that the layer takes for each target, by node type.

        Args:
            columns: of its input, by node type.
            relations: the relations that are computed.
        """
        found: dict[str, int] = {}
        for relation in relations:
            source, _, target = relation
            most = max(columns.get(source, 1), columns.get(target, 1), widest(self.convs[relation]))
            found[target] = found.get(target, 0) + 4 * _ARRAYS * most
        return found


@torch.no_grad()
def infer_layers(
    steps: Sequence[LayerStep],
    nodes: OwnedNodes,
    keep: int = 1,
    *,
    node_types: Collection[str] | None = None,
    inputs: ComputeInputs | None = None,
) -> list[dict[str, Tensor]]:
    """Computes all nodes, layer by layer. Collective over ranks.

    Modules keep their mode: call ``eval()`` before. Every module must compute each row by itself
    (`check_row_wise`).

    Args:
        steps: the layers from the input on.
        nodes: the nodes that this process owns: ``loader.all_nodes()``.
        keep: the number of tables to return.
        node_types: the types whose rows after the last layer are wanted; all where None. Layers
            compute the types that these depend on, and no others.
        inputs: computes the input of the first layer from features, each row by itself, such as a
            `HeteroDictLinear`. It is called with rows of one type at a time. The features
            themselves where None.

    Returns:
        The rows of the owned nodes by type after each of the last ``keep`` layers, [n, F] each. The
        input of the first layer counts as layer 0.

    Raises:
        ValueError: a type is wanted that no layer computes, or one is read that has no features.
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
    """Computes what the last layer reads of the owned nodes, [n, F] by type. Collective over ranks.

    The last layer itself is not computed. Errors and the other arguments are those of
    `infer_layers`.

    Args:
        steps: the layers from the input on.
        nodes: the nodes that this process owns.
        node_types: the types that the last layer would compute.
        hidden_types: the types whose rows are wanted, of those that the last layer reads; all where
            None. Others are computed only if these depend on them.
        inputs: computes the input of the first layer.
    """
    before, existing = steps[:-1], nodes.schema.relations
    relations = _relations_read(steps, existing, node_types)
    if before and hidden_types is not None:
        relations = _relations_read(before, existing, hidden_types)
    (found,) = _infer_steps(before, relations, nodes, 1, inputs)
    return found if hidden_types is None else {name: found[name] for name in hidden_types}


def _infer_steps(
    steps: Sequence[LayerStep],
    relations: Sequence[Sequence[Relation]],
    nodes: OwnedNodes,
    keep: int,
    inputs: ComputeInputs | None,
) -> list[dict[str, Tensor]]:
    """Computes the first layers of a model; see `infer_layers`.

    Args:
        steps: the layers to compute, possibly none.
        relations: the relations that each layer of the model reads.
        nodes: the nodes that this process owns.
        keep: the number of tables to return.
        inputs: computes the input of the first layer.
    """
    readable = _inputs(nodes, relations[0], inputs)
    kept = [_own(readable, nodes)]
    for number, (step, read) in enumerate(zip(steps, relations, strict=False), 1):
        del kept[: max(0, len(kept) + 1 - keep)]  # no longer held while the next layer is computed
        readable = _infer_layer(step, nodes, readable, read, f"layer {number} of {len(steps)}")
        kept.append(_own(readable, nodes))
    return kept


def _own(rows: Mapping[str, ReadableRows], nodes: OwnedNodes) -> dict[str, Tensor]:
    return {name: of_type[nodes.rank] for name, of_type in rows.items()}


def _relations_read(
    steps: Sequence[LayerStep], existing: Collection[Relation], node_types: Collection[str] | None
) -> list[list[Relation]]:
    """Returns the relations that each layer computes, from the input on."""
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


def _inputs(
    nodes: OwnedNodes,
    relations: Sequence[Relation],
    inputs: ComputeInputs | None,
) -> Mapping[str, ReadableRows]:
    """Returns the input of the first layer, of the types that it reads."""
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


def _by_rows(
    name: str,
    rows: ReadableRows,
    nodes: OwnedNodes,
    inputs: ComputeInputs,
) -> ReadableRows:
    """Returns what a function computes of the rows of a type, some rows at a time."""
    made, begin = None, 0
    for chunk in rows[nodes.rank].split(_CHUNK):
        found = inputs({name: chunk})[name]
        if made is None:
            made = nodes.allocate(name, found.size(1), found.dtype)
        made[nodes.rank][begin : begin + len(chunk)] = found
        begin += len(chunk)
    nodes.finish()
    assert made is not None, "there is one chunk at least"
    return made


def _infer_layer(
    step: LayerStep,
    nodes: OwnedNodes,
    before: Mapping[str, ReadableRows],
    relations: Sequence[Relation],
    title: str,
) -> Mapping[str, ReadableRows]:
    """Returns the rows after one layer by node type, of the ranks that this one can read."""
    ends = {name for source, _, target in relations for name in (source, target)}
    before = {name: rows for name, rows in before.items() if name in ends}
    degrees = step.degrees(nodes, relations)
    columns = {name: rows[nodes.rank].size(1) for name, rows in before.items()}
    made: dict[str, ReadableRows] = {}
    for piece in nodes.pieces(before, relations, step.result_bytes(columns, relations), title):
        degree = {one: values.of(piece.nodes[one[0]].ids) for one, values in degrees.items()}
        found = step.compute(_rows(piece), OfPiece(piece.targets, _counts(piece), piece.edges, degree))
        for name, own in piece.targets.items():
            if name not in made:
                made[name] = nodes.allocate(name, found[name].size(1), found[name].dtype)
            made[name][nodes.rank][own.start : own.stop] = found[name]
        del piece, found, degree
    return made


def _rows(piece: NodePieceLike) -> dict[str, Rows]:
    """Returns the rows of the layer before that a piece reads, by node type."""
    return {
        name: one.table if one.order is None else RowView(one.table, one.order)
        for name, one in piece.nodes.items()
    }


def _counts(piece: NodePieceLike) -> dict[str, int]:
    """Returns the number of nodes of each type that a piece reads."""
    return {
        name: len(one.table) if one.order is None else len(one.order) for name, one in piece.nodes.items()
    }
