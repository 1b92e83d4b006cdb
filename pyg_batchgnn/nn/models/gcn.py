"""GCN (Kipf and Welling 2017), normalised once for the whole minibatch."""

from __future__ import annotations

from pyg_batchgnn.nn.gcn import GCNConv
from pyg_batchgnn.nn.models.native import NativeModel


class GCN(NativeModel):
    """PyG's `GCN` on native layers: the same arguments (`LayerStack`) and ``state_dict``."""

    conv = GCNConv
    supports_edge_weight = True
