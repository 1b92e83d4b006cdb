"""A whole graph as the edges of one layer."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from pyg_batchgnn import ops
from pyg_batchgnn.nn.graph import LayerGraph

#: For each edge_index: its version and sizes when it was sorted, the sums of its contents, and the
#: graph.
_whole: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def whole_graph(edge_index: Tensor, num_sources: int, num_targets: int) -> LayerGraph:
    """Returns a whole graph from edges in any order.

    The edges of a tensor are sorted once, as long as the tensor is not modified. Its contents are
    compared by sums, because writes through ``.data``, NumPy or DLPack do not change its version.

    Args:
        edge_index: [2, E] int64 (or int32), sources above targets, checked here.
        num_sources: the number of sources, N.
        num_targets: the number of targets, D.

    Raises:
        TypeError: ``edge_index`` is not a dense integer tensor.
        ValueError, IndexError: it has another shape, or it names nodes that do not exist.
    """
    edge_index = _dense_edges(edge_index)
    stamp = (None if edge_index.is_inference() else edge_index._version, num_sources, num_targets)
    if stamp[0] is not None and edge_index in _whole:
        known, sums, graph = _whole[edge_index]
        if known == stamp and torch.equal(sums, ops.content_sums(edge_index)):
            return graph
    if edge_index.size(1):
        ops.check_range("edge_index[0]", edge_index[0].contiguous(), num_sources, "sources")
        ops.check_range("edge_index[1]", edge_index[1].contiguous(), num_targets, "targets")
    found = ops.build_csc(edge_index, max(num_sources, num_targets))
    graph = LayerGraph(
        ops.InEdges(ops.prefix(found.indptr, num_targets + 1), found.indices, found.edge_ids),
        num_sources,
    )
    if stamp[0] is not None:
        _whole[edge_index] = (stamp, ops.content_sums(edge_index), graph)
    return graph


def _dense_edges(edge_index: Tensor) -> Tensor:
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        kind = edge_index.layout if isinstance(edge_index, Tensor) else type(edge_index).__name__
        raise TypeError(
            f"edges must be a [2, E] tensor or a minibatch, got {kind}; for a sparse matrix use "
            f"torch_geometric.utils.to_edge_index(adj_t), for a SparseTensor torch.stack(adj_t.t().coo()[:2])"
        )
    if type(edge_index) is not Tensor:  # PyG's EdgeIndex
        edge_index = edge_index.as_subclass(Tensor)
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"edge_index must have shape [2, num_edges], got {list(edge_index.shape)}")
    return edge_index
