"""The models of PyG that `accelerate` makes native."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn.models.basic_gnn import BasicGNN

from pyg_batchgnn import nn
from pyg_batchgnn.nn.models import LayerEnd
from pyg_batchgnn.port.conditions import left_to_pyg
from pyg_batchgnn.port.inputs import Accelerated
from pyg_batchgnn.port.traced import TracedModel


class AcceleratedModel(Accelerated, TracedModel, BasicGNN):
    """A model of PyG that `accelerate` made native.

    It is called as PyG's model is, with the same results, or as ``model(batch)``. Weights and
    features of edges that a batch holds are used only if they are given: ``model(batch,
    edge_weight=batch.edge_weight)``.
    """

    stands_for: ClassVar[type[BasicGNN]]
    bound_names = ("x", "edge_index")

    def inference(
        self,
        loader: Any,
        device: Any = None,
        embedding_device: Any = "cpu",
        progress_bar: bool = False,
        cache: bool = False,
        memory_budget: int | str | None = None,
    ) -> Tensor:
        """Returns the output of all nodes, layer by layer, each node once from all its neighbours.

        Weights and features of edges that the data holds are not used.

        Args:
            loader: a loader of this package, of any fanouts and seed nodes. PyG's own loaders go to
                PyG's method.
            device: as in PyG; the CPU where None.
            embedding_device: as in PyG.
            progress_bar: shows the progress.
            cache: as in PyG; not needed with a loader of this package.
            memory_budget: bytes (or a text like "2GiB") of the pieces that are computed at once;
                chosen where None.

        Returns:
            [n, out_channels], one row per node that this process owns.

        Raises:
            TypeError: ``loader`` is no loader.
            ValueError: a module looks at all rows of a call, such as `GraphNorm`; or a part of the
                model is left to PyG, whose method needs a loader of all nodes and of one hop.
        """
        if hasattr(loader, "all_nodes"):
            nn.check_cpu(device, embedding_device)
        inferred = infer(self, loader, memory_budget, progress_bar)
        if inferred is None:
            inferred = super().inference(loader, device, embedding_device, progress_bar, cache)
        return inferred


class AcceleratedGraphSAGE(AcceleratedModel, torch_geometric.nn.GraphSAGE):
    stands_for = torch_geometric.nn.GraphSAGE


class AcceleratedGCN(AcceleratedModel, torch_geometric.nn.GCN):
    stands_for = torch_geometric.nn.GCN


class AcceleratedGIN(AcceleratedModel, torch_geometric.nn.GIN):
    stands_for = torch_geometric.nn.GIN


class AcceleratedGAT(AcceleratedModel, torch_geometric.nn.GAT):
    stands_for = torch_geometric.nn.GAT


def compute_layer(
    model: BasicGNN,
    index: int,
    x: Tensor | nn.RowView,
    graph: nn.LayerGraph,
    values: Mapping[str, Tensor] = MappingProxyType({}),
) -> Tensor:
    """Returns the rows of layer ``index``, counted from 0, with what follows it.

    Norms, activations and dropouts of other classes than torch's own are called as they are.
    ``values`` are arguments of the convolution.
    """
    conv = model.convs[index]

    def convolve(update: nn.Update | None) -> Tensor:
        rows: Tensor = conv(x, graph, **({} if update is None else {"update": update}), **values)
        return rows

    if index == model.num_layers - 1 and model.jk_mode is None:
        return convolve(None)
    is_torchs = type(model.dropout) is torch.nn.Dropout
    drop = model.dropout.p if is_torchs and model.dropout.training else 0.0
    end = LayerEnd(model.norms[index], model.act, model.act_first, drop, conv.training)
    out = end.apply(convolve, lambda: (graph.dropout_key(), graph.node))
    return out if is_torchs else model.dropout(out)


def infer(model: BasicGNN, loader: Any, memory_budget: int | str | None, progress: bool) -> Tensor | None:
    """Returns the output of all nodes, or None if PyG's method computes it. ``loader``: PyG's
    method takes PyG's loaders, and every loader if a part of the model is left to PyG."""
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
