"""The inference of all nodes with accelerated models of PyG."""

from __future__ import annotations

import functools
from typing import Any

from torch import Tensor
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn.models.basic_gnn import BasicGNN

from pyg_batchgnn import nn
from pyg_batchgnn.port.chain import compute_layer
from pyg_batchgnn.port.conditions import left_to_pyg


def infer(model: BasicGNN, loader: Any, memory_budget: int | str | None, progress: bool) -> Tensor | None:
    """Returns the output of all nodes, or None if PyG's method computes it.

    Args:
        model: an accelerated model.
        loader: PyG's method is for PyG's loaders, and for models of which a part is left to PyG.
        memory_budget: bytes of the pieces that are computed at once; chosen where None.
        progress: shows the progress.

    Raises:
        TypeError: ``loader`` is no loader.
        ValueError: a module looks at all rows of a call, or PyG's method cannot use the loader.
    """
    if not hasattr(loader, "all_nodes"):
        if not isinstance(loader, NeighborLoader):
            raise TypeError(
                f"inference takes a MacrobatchNeighborLoader or PyG's NeighborLoader, got "
                f"{type(loader).__name__}"
            )
        return None
    nn.check_row_wise(model.modules())
    left = left_to_pyg(model)
    if left is not None:
        _check_for_pyg(model, loader, left)
        return None
    nodes = nn.nodes_of(loader, memory_budget, progress)
    return nn.infer_model(model, nodes, functools.partial(compute_layer, model)).rows


def _check_for_pyg(model: BasicGNN, loader: NeighborLoader, left: str) -> None:
    """Refuses what PyG's ``inference`` cannot compute; it only asserts what it needs."""
    hops, seeds, nodes = len(loader.node_sampler.num_neighbors), len(loader.dataset), loader.data.num_nodes
    if model.jk_mode not in (None, "last"):
        raise ValueError(
            f"{left}, and PyG's inference knows no jk={model.jk_mode!r}; call the model on the whole graph"
        )
    if hops != 1 or seeds != nodes:
        raise ValueError(
            f"{left}, and PyG's inference needs a loader of all {nodes} nodes and of one hop, but this one "
            f"has {seeds} seed nodes and {hops} hops; give it num_neighbors=[-1] and input_nodes=None"
        )
    if model.training:
        raise ValueError(f"{left}, and PyG's inference needs evaluation mode; call model.eval() before")
