"""GCN (Kipf and Welling 2017) of PyG's `GCNConv`, normalised once for the whole minibatch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from pyg_batchgnn.train.model.pyg_layers.adjacency import DestinationCsr, destination_csr
from pyg_batchgnn.train.model.pyg_layers.layer_prefix import LayerPrefix
from pyg_batchgnn.train.model.pyg_layers.pyg_model import PygModel

# One element of an aggregated edge costs about as much as this number of multiply-adds of a matrix
# product: on one thread of an AMD EPYC, 0.84 M edges x 100 columns take 80 ms and 3.66 G
# multiply-adds take 85 ms.
_EDGE_COST = 40


class PrefixGCNConv(GCNConv):
    """A `GCNConv` that takes a normalised matrix, square or not. It has the same `state_dict`.

    Aggregation and product are both linear, so the cheaper order is taken. Aggregating first also
    saves the input layer its transposed aggregation, since features need no gradient.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, normalize=False)

    def forward(self, x: tuple[Tensor, Tensor], edge_index: Tensor) -> Tensor:
        """Returns [rows_out, F'].

        Args:
            x: [rows_in, F], and a second tensor, which is not read.
            edge_index: [rows_out, rows_in] CSR.
        """
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
    """Returns D^-1/2 (A + I) D^-1/2 of the minibatch, with rows up to the last expanded one.

    It equals ``gcn_norm`` on the whole minibatch: degrees count the sampled in-edges and one self
    loop, which replaces sampled edges from a row to itself. It is built in the order of
    destinations, without sorting, and the loop is a destination's last edge.

    Args:
        edge_index: [2, E] int64, local ids.
        prefixes: of the layers, the one with most rows first.
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

    # Each earlier row has a loop, which moves the edges of this row by one place.
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
    """GCN of PyG's layers."""

    conv = PrefixGCNConv

    def layer_graphs(self, edge_index: Tensor, prefixes: list[LayerPrefix]) -> list[Tensor]:
        """Returns normalised CSR matrices [rows_out, rows_in]; degrees are of the whole
        minibatch."""
        csr = normalised_csr(edge_index, prefixes, torch.get_default_dtype())
        return [csr.layer(prefix) for prefix in prefixes]
