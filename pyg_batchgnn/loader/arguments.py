"""From a loader's arguments, which are those of PyG's and PyTorch's loaders, to the parts that use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Data

from pyg_batchgnn.ops import check_range, check_vector
from pyg_batchgnn.sample import PygNeighborSampler
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, graph_from_pyg

#: Attributes that are the graph itself.
TOPOLOGY = ("edge_index", "adj_t")


@dataclass(frozen=True)
class Sampling:
    """What the user wants sampled, as given to the loader."""

    num_neighbors: Any
    replace: bool
    seed: int | None
    given: Any  # a sampler
    schedule: str | None

    def __post_init__(self) -> None:
        if self.seed is not None and (isinstance(self.seed, bool) or not isinstance(self.seed, int)):
            raise TypeError(f"seed must be an integer or None, got {self.seed!r}")
        if self.schedule not in (None, "local", "global"):
            raise ValueError(f"schedule must be 'local' or 'global', got {self.schedule!r}")


def is_spread(data: Any) -> bool:
    """Whether a graph is spread over ranks."""
    return isinstance(data, (tuple, list)) and any(
        isinstance(store, (DistFeatureStore, DistGraphStore)) for store in data
    )


def drawn_seed() -> int:
    """A seed from torch's default generator."""
    return int(torch.empty((), dtype=torch.int64).random_())


def sampler_for(
    data: Any, num_neighbors: Any, replace: bool, seed: int | None, threads: int | None, given: Any
) -> PygNeighborSampler:
    """The user's sampler, or one for the graph in ``data``; ``seed=None`` draws one from torch."""
    if isinstance(given, PygNeighborSampler):
        return _checked(given, data, seed, threads)
    if given is not None:
        raise TypeError(
            f"neighbor_sampler must be a pyg_batchgnn.PygNeighborSampler, got {type(given).__name__}; "
            f"use torch_geometric.loader.NodeLoader with samplers of another kind"
        )
    graph = graph_from_pyg(data).advise_huge_pages()
    seed = drawn_seed() if seed is None else seed
    return PygNeighborSampler(graph, num_neighbors, replace, seed, threads)


def _checked(
    given: PygNeighborSampler, data: Any, seed: int | None, threads: int | None
) -> PygNeighborSampler:
    if seed is not None or threads is not None:
        raise ValueError(
            f"seed={seed} and threads={threads} have no effect beside neighbor_sampler, which has its own; "
            f"give them to PygNeighborSampler"
        )
    nodes = given.macrobatch.graph.num_nodes
    if isinstance(data, Data) and data.num_nodes != nodes:
        raise ValueError(f"neighbor_sampler is for a graph of {nodes} nodes, but data has {data.num_nodes}")
    return given


def seed_nodes(data: Any, input_nodes: Any, num_nodes: int) -> Any:
    """``input_nodes`` as PyG's loaders take them, checked.

    A boolean mask stays one (it decides what ``input_id`` means); anything else becomes a vector of node
    ids. None, which PyG takes for a ``Data`` alone, means all nodes of a pair of stores as well.

    Raises:
        NotImplementedError: a node type, which only heterogeneous graphs have.
        TypeError, ValueError, IndexError: no node ids, or ids outside the graph.
    """
    if input_nodes is None:
        return None if isinstance(data, Data) else torch.arange(num_nodes)
    if isinstance(input_nodes, str) or (
        isinstance(input_nodes, (list, tuple)) and input_nodes and isinstance(input_nodes[0], str)
    ):
        raise NotImplementedError(
            f"input_nodes={input_nodes!r} names a node type: heterogeneous graphs are still to come; "
            f"give a mask or node ids"
        )
    nodes = input_nodes if isinstance(input_nodes, Tensor) else torch.as_tensor(input_nodes)
    if nodes.numel() == 0 and nodes.dtype.is_floating_point:
        nodes = nodes.long()  # an empty list
    if nodes.dtype is torch.bool:
        if list(nodes.shape) != [num_nodes]:
            raise ValueError(
                f"input_nodes is a mask of shape {list(nodes.shape)} for a graph of {num_nodes} nodes"
            )
        return nodes.cpu()
    if nodes.dtype.is_floating_point or nodes.dtype.is_complex:
        raise TypeError(
            f"input_nodes must be a mask or integer node ids, got {nodes.dtype}; use .long() or .bool()"
        )
    ids = nodes.to("cpu", torch.int64).contiguous()
    check_vector("input_nodes", ids)
    check_range("input_nodes", ids, num_nodes)
    return ids


def count_seeds(input_nodes: Tensor | None, input_id: Tensor | None, num_nodes: int) -> int:
    """How many nodes `seed_nodes` returned; raises ValueError unless ``input_id`` has as many entries."""
    if input_nodes is None:
        return num_nodes
    count = int(input_nodes.sum()) if input_nodes.dtype is torch.bool else input_nodes.numel()
    if input_id is not None and input_id.numel() != count:
        raise ValueError(
            f"input_id has {input_id.numel()} entries for {count} input_nodes; give one for each"
        )
    return count


def worker_arguments(loader: DataLoader) -> dict[str, Any]:
    """What the worker processes' own DataLoader is to have of this one's arguments."""
    return {
        "num_workers": loader.num_workers,
        "persistent_workers": loader.persistent_workers,
        "prefetch_factor": loader.prefetch_factor,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context,
    }


def has_edge_attributes(data: Any) -> bool:
    if isinstance(data, Data):
        return any(data.is_edge_attr(key) for key in data.keys() if key not in TOPOLOGY)  # noqa: SIM118
    return any(isinstance(attr.group_name, tuple) for attr in data[0].get_all_tensor_attrs())
