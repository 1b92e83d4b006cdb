"""The arguments of a loader: those of PyG's and PyTorch's loaders, checked."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Data

from pyg_batchgnn.loader.reading import Features
from pyg_batchgnn.ops import check_range, check_vector
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, group_of

#: Attributes that are the graph itself.
TOPOLOGY = ("edge_index", "adj_t")

_OF_WORKERS = ("num_workers", "persistent_workers", "prefetch_factor", "multiprocessing_context")


@dataclass(frozen=True)
class SamplingRequest:
    """The user's wishes about sampling, as given to the loader.

    Attributes:
        num_neighbors: fanouts by hop in one of PyG's forms.
        replace: True to sample with replacement.
        seed: the key of every random choice; None draws one.
        sampler: the user's own sampler, or None.
        schedule: which minibatches a rank trains; None is the default.

    Raises:
        TypeError, ValueError: a seed or schedule that cannot be.
    """

    num_neighbors: Any
    replace: bool
    seed: int | None
    sampler: Any
    schedule: str | None

    def __post_init__(self) -> None:
        if self.seed is not None and (isinstance(self.seed, bool) or not isinstance(self.seed, int)):
            raise TypeError(f"seed must be an integer or None, got {self.seed!r}")
        if self.schedule not in (None, "local", "global"):
            raise ValueError(f"schedule must be 'local' or 'global', got {self.schedule!r}")


def is_partitioned(data: Any) -> bool:
    """Returns whether a graph is partitioned over ranks."""
    return isinstance(data, (tuple, list)) and any(
        isinstance(store, (DistFeatureStore, DistGraphStore)) for store in data
    )


def partitioned_stores(data: Any) -> tuple[DistFeatureStore, DistGraphStore]:
    """Returns the two stores of a partitioned graph, checked."""
    features, graph = data
    if not isinstance(features, DistFeatureStore) or not isinstance(graph, DistGraphStore):
        raise TypeError(
            f"data must be (DistFeatureStore, DistGraphStore), got ({type(features).__name__}, "
            f"{type(graph).__name__})"
        )
    if features.comm is not graph.comm:
        raise ValueError("the feature store and the graph store must be made with the same communicator")
    return features, graph


def refuse_over_ranks(request: SamplingRequest, features: Features, kwargs: dict[str, Any]) -> None:
    """Raises ValueError for what a loader over ranks cannot do.

    ``kwargs`` are those of DataLoader.
    """
    if request.sampler is not None:
        raise ValueError("neighbor_sampler works in one process; over ranks give num_neighbors and seed")
    for name in ("generator", "sampler", "batch_sampler"):
        if kwargs.get(name) is not None:
            raise ValueError(
                f"{name} may draw another order on every rank; over ranks use shuffle=True, which is a keyed "
                f"permutation by seed and epoch"
            )
    if features is Features.IN_PLACE:
        raise ValueError("features='in_place' is for one process; over ranks rows are copied")


def without_workers(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns DataLoader's arguments without those of worker processes, and warns of them."""
    if kwargs.get("num_workers", 0) > 0:
        warnings.warn(
            f"num_workers={kwargs['num_workers']}: worker processes cannot talk to other ranks, so the "
            f"loader does the work itself; use prefetch=1 to prepare macrobatches beside training",
            stacklevel=4,
        )
    return {name: value for name, value in kwargs.items() if name not in _OF_WORKERS}


def seed_nodes(data: Any, input_nodes: Any, num_nodes: int) -> Any:
    """Returns ``input_nodes`` as PyG's loaders take them, checked.

    A boolean mask stays one (a mask decides what ``input_id`` means); anything else becomes a
    vector of node ids. None, which PyG takes for a ``Data`` alone, means all nodes of a pair of
    stores as well.

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
            f"input_nodes={input_nodes!r} names a node type: heterogeneous graphs are not supported yet; "
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


def split_nodes(graph: DistGraphStore, name: str) -> Tensor:
    """Returns the original ids of a split's nodes, ascending, on every rank; collective."""
    names = sorted({key for keys in graph.comm.all_gather_json(sorted(graph.part.splits)) for key in keys})
    if name not in names:
        raise ValueError(f"the graph has no split {name!r}; it has {', '.join(names) or 'none'}")
    rows = graph.part.splits.get(name, torch.empty(0, dtype=torch.int64))
    return graph.comm.all_gather(graph.part.node[rows]).rows.sort().values


def count_seeds(input_nodes: Tensor | None, input_id: Tensor | None, num_nodes: int) -> int:
    """Returns how many nodes `seed_nodes` returned.

    Raises:
        ValueError: ``input_id`` has another number of entries.
    """
    if input_nodes is None:
        return num_nodes
    count = int(input_nodes.sum()) if input_nodes.dtype is torch.bool else input_nodes.numel()
    if input_id is not None and input_id.numel() != count:
        raise ValueError(
            f"input_id has {input_id.numel()} entries for {count} input_nodes; give one for each"
        )
    return count


def worker_arguments(loader: DataLoader) -> dict[str, Any]:
    """Returns the arguments that the worker processes' own DataLoader takes over."""
    return {
        "num_workers": loader.num_workers,
        "persistent_workers": loader.persistent_workers,
        "prefetch_factor": loader.prefetch_factor,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context,
    }


def has_edge_attributes(data: Any) -> bool:
    """Returns whether the edges of a ``Data`` or of a pair of stores have attributes."""
    if isinstance(data, Data):
        return any(data.is_edge_attr(key) for key in data.keys() if key not in TOPOLOGY)  # noqa: SIM118
    return any(group_of(attr).is_edge for attr in data[0].get_all_tensor_attrs())
