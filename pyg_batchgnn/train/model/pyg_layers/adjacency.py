"""The sampled edges as a sparse matrix by destination, which PyG aggregates fastest on a CPU."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.index import index2ptr

from pyg_batchgnn.train.model.pyg_layers.layer_prefix import LayerPrefix

with warnings.catch_warnings():  # torch warns once per process that CSR is in beta; the user need not know
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(
        [0, 0], torch.empty(0, dtype=torch.int64), torch.empty(0), (1, 1), check_invariants=False
    )


@dataclass(frozen=True)
class DestinationCsr:
    """The edges grouped by destination. The first destinations are a prefix of all three arrays.

    Attributes:
        crow: [D + 1] int64, the position of each destination's first edge.
        col: [E] int64, the source row of each edge.
        value: [E] float, the weight of each edge.
    """

    crow: Tensor
    col: Tensor
    value: Tensor

    def layer(self, prefix: LayerPrefix) -> Tensor:
        """Returns one layer's adjacency matrix, [rows_out, rows_in] ``torch.sparse_csr``; it shares
        memory."""
        edges = int(self.crow[prefix.rows_out])
        return torch.sparse_csr_tensor(
            self.crow[: prefix.rows_out + 1],
            self.col[:edges],
            self.value[:edges],
            (prefix.rows_out, prefix.rows_in),
            check_invariants=False,
        )


def grouped_by_destination(edge_index: Tensor) -> Tensor:
    """Returns `edge_index` with ascending destinations; itself if they ascend, as in minibatches.

    The order is stable, and the destinations of a later hop have larger ids, so hops stay prefixes.
    """
    destinations = edge_index[1]
    if bool((destinations[1:] >= destinations[:-1]).all()):
        return edge_index
    return edge_index[:, torch.sort(destinations, stable=True).indices]


def destination_csr(edge_index: Tensor, prefixes: list[LayerPrefix], dtype: torch.dtype) -> DestinationCsr:
    """Returns the edges of all layers in one `DestinationCsr`, with weights of 1.

    Args:
        edge_index: [2, E] int64, row 0 sources, row 1 destinations, local ids.
        prefixes: of the layers, the one with most rows first.
        dtype: of the features; the weights have the same.

    Raises:
        ValueError: the edges of a hop do not belong to the rows expanded at that hop.
    """
    edge_index = grouped_by_destination(edge_index[:, : prefixes[0].edges])
    crow = index2ptr(edge_index[1].contiguous(), prefixes[0].rows_out)
    for prefix in prefixes:
        found = int(crow[prefix.rows_out])
        if found != prefix.edges:
            raise ValueError(
                f"the first {prefix.rows_out} rows have {found} in-edges, but num_sampled_edges says "
                f"{prefix.edges}; give the batch unchanged, from a loader of directional neighbour sampling"
            )
    value = torch.ones(edge_index.size(1), dtype=dtype)
    return DestinationCsr(crow, edge_index[0].contiguous(), value)
