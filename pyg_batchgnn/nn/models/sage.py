"""GraphSAGE with mean aggregation (Hamilton et al. 2017)."""

from __future__ import annotations

from pyg_batchgnn.nn.models.native import NativeModel
from pyg_batchgnn.nn.sage import SAGEConv


class SAGE(NativeModel):
    """PyG's `GraphSAGE` on native layers: the same arguments (`LayerStack`) and ``state_dict``."""

    conv = SAGEConv
