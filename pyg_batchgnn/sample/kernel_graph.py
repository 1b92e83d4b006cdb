"""A graph in the form that the sampling kernels take."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pyg_batchgnn import ops
from pyg_batchgnn.data import Schema
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.store import CscGraph, TimeOrder, TypedGraph, WeightSums


def typed_of(graph: CscGraph | TypedGraph) -> TypedGraph:
    """Returns a graph with types.

    Raises:
        TypeError: it is no graph of this package.
    """
    ops.check_type(
        "graph",
        graph,
        (CscGraph, TypedGraph),
        "graph_from_pyg(data) makes one of a Data, typed_graph_from_pyg(data) one of a HeteroData",
    )
    return graph.typed if isinstance(graph, CscGraph) else graph


def kernel_graph(
    graph: TypedGraph, times: Sequence[TimeOrder | None] = (), weights: Sequence[WeightSums | None] = ()
) -> ops.SampledGraph:
    """Returns the arrays of a graph; see `kernel_arrays`."""
    return kernel_arrays(graph.schema, graph.num_nodes, graph.relations, times, weights)


def kernel_arrays(
    schema: Schema,
    num_nodes: Sequence[int],
    relations: Sequence[InEdges],
    times: Sequence[TimeOrder | None],
    weights: Sequence[WeightSums | None],
) -> ops.SampledGraph:
    """Returns the arrays of the in-edges of some nodes.

    Args:
        schema: the node types and the relations.
        num_nodes: the number of nodes of each type that may be targets.
        relations: the in-edges of each relation.
        times: by relation, the order of its edges by time, or None; empty if no relation has times.
        weights: likewise the weights.

    Raises:
        ValueError: the number of times or weights is wrong.
    """
    none = torch.empty(0, dtype=torch.int64)
    no_weights = torch.empty(0, dtype=torch.float64)
    for what, given in (("time orders", times), ("lists of weights", weights)):
        if len(given) not in (0, schema.num_relations):
            raise ValueError(
                f"{len(given)} {what} came for {schema.num_relations} relations; give one or None for each"
            )
    return ops.SampledGraph(
        list(num_nodes),
        [one.indptr for one in relations],
        [one.indices for one in relations],
        [none if one.edge_ids is None else one.edge_ids for one in relations],
        list(schema.source_types),
        list(schema.target_types),
        [ops.to_signed(ops.names_key(names)) for names in schema.relations],
        [array for one in times for array in ((none, none) if one is None else one.arrays)],
        [
            array
            for one in weights
            for array in ((no_weights, no_weights, none) if one is None else one.arrays)
        ],
    )
