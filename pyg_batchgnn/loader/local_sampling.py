"""The graph and the sampler of a loader in one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch_geometric.data import Data

from pyg_batchgnn.loader.sampling import SamplingRequest
from pyg_batchgnn.loader.world import LocalWorld
from pyg_batchgnn.sample import PygNeighborSampler
from pyg_batchgnn.store import CscGraph, Times, TypedGraph, is_typed, typed_graph_from_pyg


@dataclass(frozen=True, eq=False)
class LocalSampling:
    """The graph and the sampler that a loader has.

    Attributes:
        graph: the graph, with types.
        sampler: the sampler, as PyG's own code knows it.
        times: the nodes' or edges' times if sampling is temporal.
    """

    graph: TypedGraph
    sampler: PygNeighborSampler
    times: Times | None = None


def local_sampling(
    data: Any, request: SamplingRequest, threads: int | None, world: LocalWorld
) -> LocalSampling:
    """Returns the user's sampler, or makes one for the graph in ``data``."""
    given = request.sampler
    if isinstance(given, PygNeighborSampler):
        _check(given, data, request.seed, threads)
        return LocalSampling(given.macrobatch.typed, given)
    if given is not None:
        raise TypeError(
            f"neighbor_sampler must be a pyg_batchgnn.PygNeighborSampler, got {type(given).__name__}; "
            f"use torch_geometric.loader.NodeLoader with samplers of another kind"
        )
    typed = typed_graph_from_pyg(data).advise_huge_pages()
    if is_typed(data):
        raise NotImplementedError(
            "heterogeneous graphs are not supported yet; give a homogeneous Data, for instance "
            "data.to_homogeneous()"
        )
    graph = CscGraph(typed.relations[0])
    seed = world.seed(request.seed)
    sampler = PygNeighborSampler(graph, request.num_neighbors, request.replace, seed, threads)
    return LocalSampling(graph.typed, sampler)


def _check(given: PygNeighborSampler, data: Any, seed: int | None, threads: int | None) -> None:
    if seed is not None or threads is not None:
        raise ValueError(
            f"neighbor_sampler has a seed and threads of its own, so seed={seed} and threads={threads} "
            f"would have no effect; give them to PygNeighborSampler"
        )
    nodes = given.macrobatch.typed.num_nodes[0]
    if isinstance(data, Data) and data.num_nodes != nodes:
        raise ValueError(f"neighbor_sampler is for a graph of {nodes} nodes, but data has {data.num_nodes}")
