"""PyG's convolutions, computed by native layers where these take the arguments of a call."""

from __future__ import annotations

from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn import nn
from pyg_batchgnn.port.inputs import Accelerated, is_symbolic, takes, traced
from pyg_batchgnn.port.prefixes import layer_edges


class AcceleratedConv(Accelerated, nn.NativeConv):
    """A convolution of PyG that `accelerate` made native.

    The class stands before the native one among the bases of each layer. Calls that the native
    layer does not take go to PyG's ``forward``. Errors name the class that it stands for.
    """

    stands_for: ClassVar[type[MessagePassing]]

    def forward(self, x: Any, edge_index: Any, *arguments: Any, **options: Any) -> Any:
        """Returns what PyG's layer does; the arguments are those of PyG."""
        if not isinstance(x, Tensor) and is_symbolic(x):
            return self._traced(x, edge_index, arguments, options)
        values = arguments[0] if arguments else options.get(str(self.edge_values)) if options else None
        if len(arguments) > 1 or not self.takes_call(x, edge_index, values):
            return self.stands_for.forward(self, x, edge_index, *arguments, **options)
        sized = options.get("size") is not None or any(isinstance(one, (tuple, list)) for one in arguments)
        if not sized and isinstance(x, Tensor) and isinstance(edge_index, Tensor):
            known = layer_edges(edge_index, x.size(0))
            edge_index = edge_index if known is None else known
        return super().forward(x, edge_index, *arguments, **options)

    def takes_call(self, x: Any, edge_index: Any, values: Any = None) -> bool:
        """Returns whether the native layer takes a call, with values of edges."""
        del values
        return takes(self, x, edge_index)

    def check_call(self) -> None:
        """Looks at nothing, because `takes_call` did."""

    def _traced(self, x: Any, edge_index: Any, arguments: Any, options: Any) -> Any:
        """Returns the proxy of a call that ``torch.fx`` traces."""
        if is_symbolic(arguments, options):  # the layer itself is traced: PyG's code says why it cannot be
            arguments, options = (), {}
        return traced(self, (x, edge_index, *arguments), options)


class AcceleratedSAGEConv(AcceleratedConv, nn.SAGEConv):
    """PyG's `SAGEConv` on a native layer."""

    stands_for = torch_geometric.nn.SAGEConv


class AcceleratedGCNConv(AcceleratedConv, nn.GCNConv):
    """PyG's `GCNConv` on a native layer."""

    stands_for = torch_geometric.nn.GCNConv

    def takes_call(self, x: Any, edge_index: Any, values: Any = None) -> bool:
        fits = values is None or (isinstance(values, Tensor) and values.dim() == 1)
        return fits and not isinstance(x, (tuple, list)) and takes(self, x, edge_index)


class AcceleratedGINConv(AcceleratedConv, nn.GINConv):
    """PyG's `GINConv` on a native layer."""

    stands_for = torch_geometric.nn.GINConv


class AcceleratedGATConv(AcceleratedConv, nn.GATConv):
    """PyG's `GATConv` on a native layer."""

    stands_for = torch_geometric.nn.GATConv

    def takes_call(self, x: Any, edge_index: Any, values: Any = None) -> bool:
        return (values is None or self.lin_edge is not None) and takes(self, x, edge_index)


class AcceleratedGATv2Conv(AcceleratedConv, nn.GATv2Conv):
    """PyG's `GATv2Conv` on a native layer."""

    stands_for = torch_geometric.nn.GATv2Conv
