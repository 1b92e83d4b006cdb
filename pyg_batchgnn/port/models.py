"""The models of PyG that `accelerate` makes native."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn.models.basic_gnn import BasicGNN

from pyg_batchgnn import nn
from pyg_batchgnn.port.inputs import Accelerated
from pyg_batchgnn.port.layerwise import LayerwiseError, check_for_pyg, inference
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
        scratch: str | Path | None = None,
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
            memory_budget: bytes (or a text like "2GiB") of the pieces that are computed at once,
                and of the rows of layers; chosen where None.
            scratch: the folder of rows that do not fit; see `AllNodes`.

        Returns:
            [n, out_channels], one row per node that this process owns. Where it does not fit, the
            tensor is mapped from a file that is gone with it.

        Raises:
            TypeError: ``loader`` is no loader.
            ValueError: a module looks at all rows of a call, such as `GraphNorm`; or a part of the
                model is left to PyG, whose method needs a loader of all nodes and of one hop.
        """
        if hasattr(loader, "all_nodes"):
            nn.check_cpu(device, embedding_device)
            nn.check_row_wise(self.modules())
            try:
                found: Tensor = inference(self, loader, memory_budget, progress_bar, scratch)
                return found
            except LayerwiseError as error:
                check_for_pyg(self, loader, str(error))
        elif not isinstance(loader, NeighborLoader):
            raise TypeError(
                f"inference takes a MacrobatchNeighborLoader or PyG's NeighborLoader, got "
                f"{type(loader).__name__}"
            )
        return super().inference(loader, device, embedding_device, progress_bar, cache)


class AcceleratedGraphSAGE(AcceleratedModel, torch_geometric.nn.GraphSAGE):
    stands_for = torch_geometric.nn.GraphSAGE


class AcceleratedGCN(AcceleratedModel, torch_geometric.nn.GCN):
    stands_for = torch_geometric.nn.GCN


class AcceleratedGIN(AcceleratedModel, torch_geometric.nn.GIN):
    stands_for = torch_geometric.nn.GIN


class AcceleratedGAT(AcceleratedModel, torch_geometric.nn.GAT):
    stands_for = torch_geometric.nn.GAT
