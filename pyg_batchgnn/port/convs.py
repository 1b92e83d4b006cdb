"""PyG's convolutions, computed by native layers where these take the arguments of a call."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn import nn
from pyg_batchgnn.port.inputs import takes
from pyg_batchgnn.port.prefixes import layer_edges


class AcceleratedConv(MessagePassing):
    """A convolution of PyG that `accelerate` made native.

    The class stands before the native one among the bases of each layer. Calls that the native
    layer does not take go to PyG's ``forward``. Errors name the class that it stands for.
    """

    stands_for: ClassVar[type[MessagePassing]]

    def forward(self, x: Any, edge_index: Any, *arguments: Any, **options: Any) -> Any:
        """Returns what PyG's layer does; the arguments are those of PyG."""
        if len(arguments) > 1 or not self.takes_call(x, edge_index, *arguments, **options):
            return self.stands_for.forward(self, x, edge_index, *arguments, **options)
        sized = options.get("size") is not None or any(isinstance(one, (tuple, list)) for one in arguments)
        if not sized and isinstance(x, Tensor) and isinstance(edge_index, Tensor):
            known = layer_edges(edge_index, x.size(0))
            edge_index = edge_index if known is None else known
        return super().forward(x, edge_index, *arguments, **options)

    def takes_call(self, x: Any, edge_index: Any, *arguments: Any, **options: Any) -> bool:
        """Returns whether the native layer takes a call."""
        del arguments, options
        return takes(self, x, edge_index, self._parameter_dtype())

    def _parameter_dtype(self) -> torch.dtype | None:
        """Returns the dtype of the parameters."""
        return next((one.dtype for one in self.parameters()), None)


class AcceleratedSAGEConv(AcceleratedConv, nn.SAGEConv):
    """PyG's `SAGEConv` on a native layer."""

    stands_for = torch_geometric.nn.SAGEConv


class AcceleratedGCNConv(AcceleratedConv, nn.GCNConv):
    """PyG's `GCNConv` on a native layer."""

    stands_for = torch_geometric.nn.GCNConv

    def takes_call(self, x: Any, edge_index: Any, *arguments: Any, **options: Any) -> bool:
        weight = arguments[0] if arguments else options.get("edge_weight")
        fits = weight is None or (isinstance(weight, Tensor) and weight.dim() == 1)
        return fits and not isinstance(x, (tuple, list)) and super().takes_call(x, edge_index)


class AcceleratedGINConv(AcceleratedConv, nn.GINConv):
    """PyG's `GINConv` on a native layer."""

    stands_for = torch_geometric.nn.GINConv


class AcceleratedGATConv(AcceleratedConv, nn.GATConv):
    """PyG's `GATConv` on a native layer."""

    stands_for = torch_geometric.nn.GATConv

    def takes_call(self, x: Any, edge_index: Any, *arguments: Any, **options: Any) -> bool:
        attr = arguments[0] if arguments else options.get("edge_attr")
        return (attr is None or self.lin_edge is not None) and super().takes_call(x, edge_index)


class AcceleratedGATv2Conv(AcceleratedConv, nn.GATv2Conv):
    """PyG's `GATv2Conv` on a native layer."""

    stands_for = torch_geometric.nn.GATv2Conv
