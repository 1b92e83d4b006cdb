"""GCN (Kipf and Welling 2017) on PyG's `GCNConv`, normalised once for the whole minibatch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from pyg_batchgnn.nn.models import layer_widths
from pyg_batchgnn.train.model.pyg_layers.adjacency import DestinationCsr, destination_csr
from pyg_batchgnn.train.model.pyg_layers.layer_prefix import LayerPrefix
from pyg_batchgnn.train.model.pyg_layers.pyg_model import PygModel
from pyg_batchgnn.train.model.pyg_layers.relu_dropout import ReluDropout

# One element of an aggregated edge costs about as much as this many multiply-adds of a matrix product (80 ms
# for 0.84 M edges x 100 columns, 85 ms for 3.66 G multiply-adds, one thread of an AMD EPYC).
_EDGE_COST = 40


class PrefixGCNConv(GCNConv):
    """`GCNConv` for a ready normalised matrix that need not be square; same parameters and `state_dict`.

    Aggregation and product are both linear, so the cheaper order is taken. Aggregating first also spares the
    input layer its transposed aggregation, since features need no gradient.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, normalize=False)

    def forward(self, x: tuple[Tensor, Tensor], edge_index: Tensor) -> Tensor:
        """`x`: ([rows_in, F], unused); `edge_index`: CSR [rows_out, rows_in]; gives [rows_out, F']."""
        sources = x[0]
        edges = edge_index.values().numel()
        weights = self.in_channels * self.out_channels
        aggregate_first = edge_index.size(0) * weights + _EDGE_COST * edges * self.in_channels
        product_first = edge_index.size(1) * weights + _EDGE_COST * edges * self.out_channels
        if aggregate_first <= product_first:
            aggregated = self.propagate(edge_index, x=sources, edge_weight=None)
            return torch.addmm(self.bias, aggregated, self.lin.weight.t())
        return self.propagate(edge_index, x=self.lin(sources), edge_weight=None) + self.bias


def normalised_csr(edge_index: Tensor, prefixes: list[LayerPrefix], dtype: torch.dtype) -> DestinationCsr:
    """D^-1/2 (A + I) D^-1/2 of the minibatch, rows up to the last expanded one.

    Equal to ``gcn_norm`` on the whole minibatch: degrees count sampled in-edges and one self loop, and an
    edge from a row to itself gives way to that loop. Built in destination order without sorting; a
    destination's loop comes last.

    Args:
        edge_index: [2, E] int64, local ids.
        prefixes: the layers, widest first.
        dtype: of the weights.
    """
    csr = destination_csr(edge_index, prefixes, dtype)
    rows = csr.crow.numel() - 1
    row_ids = torch.arange(rows)
    destination = torch.repeat_interleave(row_ids, csr.crow.diff(), output_size=csr.col.numel())
    crow, col = csr.crow, csr.col
    other = col != destination
    if not bool(other.all()):
        col, destination = col[other], destination[other]
        crow = torch.cat([crow.new_zeros(1), torch.bincount(destination, minlength=rows).cumsum(0)])
    scale = torch.ones(prefixes[0].rows_in, dtype=dtype)
    scale[:rows] = (crow.diff() + 1).to(dtype).pow_(-0.5)

    # Every row that comes earlier has put its loop in front: one place an earlier row.
    sources = torch.empty(col.numel() + rows, dtype=col.dtype)
    value = torch.empty(sources.numel(), dtype=dtype)
    place = torch.arange(col.numel()) + destination
    loop = crow[1:] + row_ids
    sources[place] = col
    sources[loop] = row_ids
    value[place] = scale[col] * scale[destination]
    value[loop] = scale[:rows] * scale[:rows]
    return DestinationCsr(crow + torch.arange(rows + 1), sources, value)


class PygGCN(PygModel):
    """ReLU and dropout after all layers but the last."""

    def __init__(
        self, in_channels: int, hidden: int, out_channels: int, layers: int = 3, dropout: float = 0.5
    ) -> None:
        super().__init__()
        widths = layer_widths(in_channels, hidden, out_channels, layers)
        self.convs = nn.ModuleList(PrefixGCNConv(a, b) for a, b in widths)
        self.activations = nn.ModuleList(ReluDropout(dropout) for _ in widths[1:])

    def layer_graphs(self, edge_index: Tensor, prefixes: list[LayerPrefix]) -> list[Tensor]:
        """Normalised CSR matrices [rows_out, rows_in]; degrees are those of the whole minibatch."""
        csr = normalised_csr(edge_index, prefixes, torch.get_default_dtype())
        return [csr.layer(prefix) for prefix in prefixes]
