"""The arguments of a loader over ranks: what it needs of them, and what it refuses."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import BaseSampler

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.loader.arguments import Sampling, drawn_seed
from pyg_batchgnn.loader.reading import Features
from pyg_batchgnn.sample import SamplingPlan
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore

_NO_WORKERS = ("num_workers", "persistent_workers", "prefetch_factor", "multiprocessing_context")


class NoSampler(BaseSampler):
    """Stands where PyG keeps a sampler that works on its own, which none does over ranks."""

    def __init__(self, plan: SamplingPlan) -> None:
        self.plan = plan

    def sample_from_nodes(self, *_args: Any, **_kwargs: Any) -> Any:
        raise NotImplementedError("ranks sample macrobatches together: iterate over the loader")

    def sample_from_edges(self, *_args: Any, **_kwargs: Any) -> Any:
        raise NotImplementedError("ranks sample macrobatches together: iterate over the loader")


def seed_of_rank_0(comm: Communicator) -> int:
    """Every rank draws one, so that their generators stay in step."""
    return int(comm.broadcast(torch.tensor([drawn_seed()])))


def spread_stores(data: Any) -> tuple[DistFeatureStore, DistGraphStore]:
    features, graph = data
    if not isinstance(features, DistFeatureStore) or not isinstance(graph, DistGraphStore):
        raise TypeError(
            f"data must be (DistFeatureStore, DistGraphStore), got ({type(features).__name__}, "
            f"{type(graph).__name__})"
        )
    if features.comm is not graph.comm:
        raise ValueError("the feature store and the graph store must be made with the same communicator")
    return features, graph


def refuse_over_ranks(wanted: Sampling, features: Features, kwargs: dict[str, Any]) -> None:
    """Raises for what a loader over ranks cannot do."""
    if wanted.given is not None:
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
    if kwargs.get("num_workers", 0) > 0:
        warnings.warn(
            f"num_workers={kwargs['num_workers']}: worker processes cannot talk to other ranks, so the "
            f"loader does the work itself; use prefetch=1 to prepare macrobatches beside training",
            stacklevel=5,
        )
    return {name: value for name, value in kwargs.items() if name not in _NO_WORKERS}


def split_nodes(graph: DistGraphStore, name: str) -> Tensor:
    """Original ids of a split's nodes, ascending, on every rank; collective."""
    names = sorted({key for keys in graph.comm.all_gather_json(sorted(graph.part.splits)) for key in keys})
    if name not in names:
        raise ValueError(f"the graph has no split {name!r}; it has {', '.join(names) or 'none'}")
    rows = graph.part.splits.get(name, torch.empty(0, dtype=torch.int64))
    return graph.comm.all_gather(graph.part.node[rows]).rows.sort().values
