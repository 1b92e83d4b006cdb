"""The sampler of a loader in one process."""

from __future__ import annotations

from typing import Any

from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.loader.sampling import SamplingRequest
from pyg_batchgnn.loader.world import LocalWorld
from pyg_batchgnn.sample import PygNeighborSampler, PygParts


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
    parts = PygParts.of(
        data, request.num_neighbors, request.replace, request.choice, world.seed(request.seed), threads
    )
    return PygNeighborSampler.of(parts, request.num_neighbors)


def _check(given: PygNeighborSampler, data: Any, seed: int | None, threads: int | None) -> None:
    if seed is not None or threads is not None:
        raise ValueError(
            f"neighbor_sampler has a seed and threads of its own, so seed={seed} and threads={threads} "
            f"would have no effect; give them to PygNeighborSampler"
        )
    nodes = sum(given.graph.num_nodes)
    if isinstance(data, (Data, HeteroData)) and data.num_nodes != nodes:
        raise ValueError(f"neighbor_sampler is for a graph of {nodes} nodes, but data has {data.num_nodes}")
