"""The arguments of a loader: those of PyG's and PyTorch's loaders, checked."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.loader.reading import Features
from pyg_batchgnn.loader.sampling import SamplingRequest
from pyg_batchgnn.store import AttributeGroups, DistFeatureStore, DistGraphStore, TypedGraph

#: Attributes that are the graph itself.
TOPOLOGY = ("edge_index", "adj_t")

#: The keywords of PyG's loaders and of DataLoader that our signatures leave to ``kwargs``.
_KEYWORDS = {"input_id", "custom_cls", *inspect.signature(DataLoader).parameters}

_OF_WORKERS = ("num_workers", "persistent_workers", "prefetch_factor", "multiprocessing_context")


def refuse_unknown(loader: DataLoader, kwargs: Mapping[str, Any]) -> None:
    """Raises TypeError for a keyword that neither a loader nor DataLoader takes.

    Args:
        loader: the loader that is being made.
        kwargs: the arguments that its signature does not name.
    """
    for name in kwargs:
        if name not in _KEYWORDS:
            raise TypeError(
                f"{type(loader).__name__} got an unexpected keyword argument {name!r}: it takes its own and "
                f"those of torch.utils.data.DataLoader"
            )


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


def with_splits(graph: DistGraphStore, nodes: Any) -> Any:
    """Returns ``input_nodes`` with node ids for the names of splits; collective.

    In a homogeneous graph a string names a split. In a typed one it names a type, and the nodes of
    a type may be the name of a split: ("paper", "train"), or a dict with such values.
    """
    schema = graph.part.schema
    if not schema.has_names:
        return _split_nodes(graph, schema.node_types[0], nodes) if isinstance(nodes, str) else nodes
    if isinstance(nodes, Mapping):
        return {name: with_splits(graph, (name, own))[1] for name, own in nodes.items()}
    is_pair = isinstance(nodes, (tuple, list)) and len(nodes) == 2 and isinstance(nodes[0], str)
    if is_pair and isinstance(nodes[1], str) and nodes[0] in schema.node_types:
        return nodes[0], _split_nodes(graph, nodes[0], nodes[1])
    return nodes


def _split_nodes(graph: DistGraphStore, node_type: str, name: str) -> Tensor:
    """Returns the original ids of a split's nodes, ascending, on every rank; collective."""
    part = graph.part
    number = part.schema.type_number(node_type)
    own = part.splits.get(part.schema.node_groups[number], {})
    names = sorted({key for keys in graph.comm.all_gather_json(sorted(own)) for key in keys})
    if name not in names:
        whose = f"nodes of type {node_type!r} have" if part.schema.has_names else "the graph has"
        raise ValueError(f"{whose} no split {name!r}; there is {', '.join(names) or 'none'}")
    nodes = part.original_ids(number)[part.split(name, node_type)]
    return graph.comm.all_gather(nodes).rows.sort().values


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


def has_edge_attributes(data: Any, graph: TypedGraph) -> bool:
    """Returns whether edges have attributes, in a ``Data``, ``HeteroData`` or a pair of stores."""
    if isinstance(data, (Data, HeteroData)):
        return any(
            store.is_edge_attr(key) for store in data.edge_stores for key in store if key not in TOPOLOGY
        )
    groups = AttributeGroups(data[0], graph)
    return any(groups.of(attr).is_edge for attr in data[0].get_all_tensor_attrs())
