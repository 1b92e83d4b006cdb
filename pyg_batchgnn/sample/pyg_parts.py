"""The parts of a PyG sampler, made from what PyG's samplers take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.sample.choice import NeighborChoice
from pyg_batchgnn.sample.macrobatch import MacrobatchSampler
from pyg_batchgnn.sample.pyg_output import Direction, Names, PygForm
from pyg_batchgnn.sample.sampled_parts import Layout
from pyg_batchgnn.store import (
    CscGraph,
    TimeOrder,
    Times,
    TypedGraph,
    WeightSums,
    attribute_by_group,
    is_typed,
    reversed_graph,
    reversed_group,
    sum_weights,
    typed_graph_from_pyg,
    weight_by_group,
)


@dataclass(frozen=True, eq=False)
class PygParts:
    """The parts of a PyG sampler.

    Attributes:
        graph: the graph as the user knows it.
        macrobatch: samples it with edges in the layout `Layout.COO`; backward, it samples the
            reversed graph.
        form: the form of the samples.
        choice: the rules by which neighbours are chosen.
        times: the times of the graph if sampling is temporal.
    """

    graph: TypedGraph
    macrobatch: MacrobatchSampler
    form: PygForm
    choice: NeighborChoice
    times: Times | None = None

    @classmethod
    def of(
        cls,
        data: Any,
        num_neighbors: Any,
        replace: bool,
        choice: NeighborChoice,
        seed: int,
        threads: int | None,
        direction: Direction = Direction.FORWARD,
    ) -> PygParts:
        """Makes the parts.

        Args:
            data: a ``Data``, a ``HeteroData``, a pair of stores, or a graph of this package.
            num_neighbors: the fanouts in one of PyG's forms.
            replace: True if a neighbour may be picked more than once.
            choice: the rules by which neighbours are chosen.
            seed: the key of every random choice.
            threads: at most this many threads work; torch's number if None.
            direction: whether the neighbours of a node are the sources of edges into it or the
                targets of edges from it.

        Raises:
            NotImplementedError: times backward.
            TypeError, ValueError, IndexError: arguments that do not fit the graph.
        """
        forward = graph_of(data)
        graph = forward if direction is Direction.FORWARD else reversed_graph(forward)
        plan = choice.plan(direction.fanouts(num_neighbors), replace, graph.schema)
        times: Times | None = None
        orders: tuple[TimeOrder | None, ...] = (None,) * len(graph.relations)
        if choice.time_attr is not None:
            if direction is Direction.BACKWARD:
                raise NotImplementedError(
                    "times go with sample_direction='forward' only: a seed's time does not bound what "
                    "comes after it; leave time_attr out"
                )
            found = attribute_by_group(data, choice.time_attr, forward)
            times = Times.of(choice.time_attr, found, graph.rows_by_group)
            orders = times.orders(graph, choice.sortedness)
        weights: Sequence[WeightSums | None] = ()
        if choice.weight_attr is not None:
            found = weight_by_group(data, choice.weight_attr, forward)
            if direction is Direction.BACKWARD:
                found = {reversed_group(group): weight for group, weight in found.items()}
            weights = sum_weights(choice.weight_attr, found, graph, orders)
        names = names_of(data)
        macrobatch = MacrobatchSampler(
            graph if names is Names.TYPES else CscGraph(graph.relations[0]),
            plan,
            seed,
            threads,
            Layout.COO,
            times=orders,
            weights=weights,
        )
        form = PygForm(names, choice.subgraph, index_dtype(data), direction)
        return cls(forward, macrobatch, form, choice, times)


def graph_of(data: Any) -> TypedGraph:
    """Returns the graph of a ``Data``, a ``HeteroData``, a pair of stores, or of this package."""
    if isinstance(data, TypedGraph):
        return data
    return data.typed if isinstance(data, CscGraph) else typed_graph_from_pyg(data).advise_huge_pages()


def names_of(data: Any) -> Names:
    """Returns whether the samples of a graph name its types."""
    is_named = not isinstance(data, CscGraph) and (isinstance(data, TypedGraph) or is_typed(data))
    return Names.TYPES if is_named else Names.NONE


def index_dtype(data: Any) -> torch.dtype:
    """Returns the dtype of the ids in PyG's batches: that of the user's edges, int64 without."""
    if not isinstance(data, (Data, HeteroData)):
        return torch.int64
    for store in data.edge_stores:
        edges = store.get("edge_index", None)
        if isinstance(edges, Tensor):
            return edges.dtype
    return torch.int64
