"""GraphSAGE with mean aggregation (Hamilton et al. 2017) of PyG's `SAGEConv`."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn import SAGEConv

from pyg_batchgnn.train.model.pyg_layers.pyg_model import PygModel


class AccumulatingSAGEConv(SAGEConv):
    """A `SAGEConv` that adds the root's product into the neighbours' product. The sums are the
    same.

    This saves a pass over [D, hidden]. It also avoids MKL's product without an addend, which is
    five times slower for some widths (100 columns: 16 against 88 GFLOP/s on an AMD EPYC).
    """

    def forward(self, x: tuple[Tensor, Tensor], edge_index: Tensor) -> Tensor:
        """Returns [rows_out, F'].

        Args:
            x: [rows_in, F] of the sources and [rows_out, F] of the destinations.
            edge_index: [rows_out, rows_in] CSR.
        """
        out: Tensor = self.lin_l(self.propagate(edge_index, x=x, size=None))
        return out.addmm_(x[1], self.lin_r.weight.t())


class PygSAGE(PygModel):
    """GraphSAGE of PyG's layers."""

    conv = AccumulatingSAGEConv
