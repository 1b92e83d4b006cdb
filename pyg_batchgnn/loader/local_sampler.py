"""The sampler of a loader in one process."""

from __future__ import annotations

from typing import Any

from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.loader.sampling import SamplingRequest
from pyg_batchgnn.loader.world import LocalWorld
from pyg_batchgnn.sample import Names, NeighborChoice, PygNeighborSampler, PygParts, Replacement
from pyg_batchgnn.store import Sortedness


def local_sampler(
    data: Any, request: SamplingRequest, threads: int | None, world: LocalWorld
) -> PygNeighborSampler:
    """Returns the user's sampler, or makes one for the graph in ``data``."""
    given = request.sampler
    if isinstance(given, PygNeighborSampler):
        _check(given, request, threads)
        _check_graph(given, data)
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


def _check(given: PygNeighborSampler, request: SamplingRequest, threads: int | None) -> None:
    if request.seed is not None or threads is not None:
        raise ValueError(
            f"neighbor_sampler has a seed and threads of its own, so seed={request.seed} and "
            f"threads={threads} would have no effect; give them to PygNeighborSampler"
        )
    wanted = {"replace": request.replace, **_fields(request.choice)}
    own = {
        "replace": given.macrobatch.plan.replacement is Replacement.WITH,
        **_fields(given.choice),
    }
    default = {"replace": False, **_fields(NeighborChoice())}
    for name, value in wanted.items():
        if value not in (default[name], own[name]):
            raise ValueError(
                f"{name}={value!r} would have no effect, as neighbor_sampler has {own[name]!r}; give it to "
                f"PygNeighborSampler"
            )


def _fields(choice: NeighborChoice) -> dict[str, Any]:
    """Returns the rules by the names of the loader's arguments."""
    return {
        "subgraph_type": choice.subgraph.value,
        "disjoint": choice.disjoint,
        "temporal_strategy": choice.temporal_strategy,
        "time_attr": choice.time_attr,
        "time_window": choice.time_window,
        "weight_attr": choice.weight_attr,
        "is_sorted": choice.sortedness is Sortedness.PROMISED,
    }


def _check_graph(given: PygNeighborSampler, data: Any) -> None:
    """Raises ValueError unless the nodes of ``data`` are those of the sampler's graph."""
    schema, counts = given.graph.schema, given.graph.num_nodes
    is_typed = given.form.names is Names.TYPES
    if isinstance(data, (Data, HeteroData)) and isinstance(data, HeteroData) != is_typed:
        kind, other = ("typed", "homogeneous") if is_typed else ("homogeneous", "typed")
        raise ValueError(f"neighbor_sampler is for a {kind} graph, but data is {other}; make it for data")
    if isinstance(data, HeteroData):
        expected = dict(zip(schema.node_types, counts, strict=True))
        found = {name: data[name].num_nodes for name in data.node_types}
        if found != expected:
            raise ValueError(f"neighbor_sampler is for a graph of {expected} nodes, but data has {found}")
    elif isinstance(data, Data) and data.num_nodes != counts[0]:
        raise ValueError(
            f"neighbor_sampler is for a graph of {counts[0]} nodes, but data has {data.num_nodes}"
        )
