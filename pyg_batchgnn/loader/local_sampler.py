"""The sampler of a loader in one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.loader.arguments import index_dtype
from pyg_batchgnn.loader.sampling import NeighborChoice, SamplingRequest, plan_of
from pyg_batchgnn.loader.world import LocalWorld
from pyg_batchgnn.sample import Layout, MacrobatchSampler, Names, PygForm, PygNeighborSampler
from pyg_batchgnn.store import (
    CscGraph,
    TimeOrder,
    Times,
    WeightSums,
    attribute_by_group,
    is_typed,
    sum_weights,
    typed_graph_from_pyg,
)


def local_sampler(
    data: Any, request: SamplingRequest, threads: int | None, world: LocalWorld
) -> PygNeighborSampler:
    """Returns the user's sampler, or makes one for the graph in ``data``."""
    given = request.sampler
    if isinstance(given, PygNeighborSampler):
        _check(given, data, request.seed, threads)
        return given
    if given is not None:
        raise TypeError(
            f"neighbor_sampler must be a pyg_batchgnn.PygNeighborSampler, got {type(given).__name__}; "
            f"use torch_geometric.loader.NodeLoader with samplers of another kind"
        )
    graph, choice = typed_graph_from_pyg(data).advise_huge_pages(), request.choice
    plan = plan_of(request, graph.schema)
    times: Times | None = None
    orders: tuple[TimeOrder | None, ...] = (None,) * len(graph.relations)
    if choice.time_attr is not None:
        found = attribute_by_group(data, choice.time_attr, graph.schema)
        times = Times.of(choice.time_attr, found, graph)
        orders = times.orders(graph, choice.sortedness)
    weights: Sequence[WeightSums | None] = ()
    if choice.weight_attr is not None:
        found = attribute_by_group(data, choice.weight_attr, graph.schema)
        weights = sum_weights(choice.weight_attr, found, graph, orders)
    macrobatch = MacrobatchSampler(
        graph if is_typed(data) else CscGraph(graph.relations[0]),
        plan,
        world.seed(request.seed),
        threads,
        Layout.COO,
        times=orders,
        weights=weights,
    )
    return PygNeighborSampler.of(macrobatch, form_of(data, choice), times)


def form_of(data: Any, choice: NeighborChoice) -> PygForm:
    """Returns the form of the samples of ``data``."""
    names = Names.TYPES if is_typed(data) else Names.NONE
    return PygForm(names, choice.subgraph, index_dtype(data))


def _check(given: PygNeighborSampler, data: Any, seed: int | None, threads: int | None) -> None:
    if seed is not None or threads is not None:
        raise ValueError(
            f"neighbor_sampler has a seed and threads of its own, so seed={seed} and threads={threads} "
            f"would have no effect; give them to PygNeighborSampler"
        )
    nodes = sum(given.graph.num_nodes)
    if isinstance(data, (Data, HeteroData)) and data.num_nodes != nodes:
        raise ValueError(f"neighbor_sampler is for a graph of {nodes} nodes, but data has {data.num_nodes}")
