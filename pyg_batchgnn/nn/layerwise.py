"""Layers computed for all nodes, one after the other, in pieces of the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.gcn import GCNConv
from pyg_batchgnn.nn.graph import LayerGraph
from pyg_batchgnn.nn.inputs import Rows
from pyg_batchgnn.nn.lazy import widest
from pyg_batchgnn.nn.rows import RowView

#: Arrays of a layer's width that a layer holds for each node: sums, products and two between.
_ARRAYS = 4


class NodeValues(Protocol):
    """A value for each node that a process owns and for each of their sources."""

    def of(self, ids: Tensor | None) -> Tensor: ...


class NodePieceLike(Protocol):
    """Some nodes with all their in-edges; `pyg_batchgnn.cache.AllNodes` says what is what."""

    @property
    def rows(self) -> range: ...
    @property
    def table(self) -> Tensor: ...
    @property
    def order(self) -> Tensor | None: ...
    @property
    def indptr(self) -> Tensor: ...
    @property
    def indices(self) -> Tensor: ...
    @property
    def ids(self) -> Tensor | None: ...


class OwnedNodes(Protocol):
    """The nodes that a process owns. `pyg_batchgnn.cache.AllNodes` has these attributes."""

    @property
    def rank(self) -> int: ...
    @property
    def features(self) -> Mapping[int, Tensor]: ...

    def pieces(
        self, rows: Mapping[int, Tensor], result_bytes: int, title: str
    ) -> Iterator[NodePieceLike]: ...
    def allocate(self, columns: int, dtype: torch.dtype) -> Mapping[int, Tensor]: ...
    def degrees(self, with_loops: bool) -> NodeValues: ...


@dataclass(frozen=True)
class LayerStep:
    """A layer of a model, with all that follows it row by row.

    Attributes:
        conv: the convolution.
        compute: returns the layer's rows of the targets of a graph from the rows before.
    """

    conv: torch.nn.Module
    compute: Callable[[Rows, LayerGraph], Tensor]

    def degrees(self, nodes: OwnedNodes) -> NodeValues | None:
        """Returns the degrees that the convolution normalises by; None if it needs none."""
        if not isinstance(self.conv, GCNConv) or not self.conv.normalize:
            return None
        return nodes.degrees(with_loops=not self.conv.add_self_loops)

    def result_bytes(self, columns: int) -> int:
        """Returns the bytes that the layer takes for each node. ``columns``: of its input."""
        return 4 * _ARRAYS * max(columns, widest(self.conv))


@torch.no_grad()
def infer_layers(steps: Sequence[LayerStep], nodes: OwnedNodes, keep: int) -> list[Tensor]:
    """Computes all nodes, layer by layer. Collective over ranks.

    Args:
        steps: the layers from the input on.
        nodes: the nodes that this process owns.
        keep: the number of tables to return.

    Returns:
        The rows of the owned nodes after each of the last ``keep`` layers, [n, F] each. The
        features count as layer 0.
    """
    readable = nodes.features
    kept = [readable[nodes.rank]]
    for number, step in enumerate(steps, 1):
        del kept[: max(0, len(kept) + 1 - keep)]  # no longer held while the next layer is computed
        readable = _infer_layer(step, nodes, readable, f"layer {number} of {len(steps)}")
        kept.append(readable[nodes.rank])
    return kept


def _infer_layer(
    step: LayerStep, nodes: OwnedNodes, before: Mapping[int, Tensor], title: str
) -> Mapping[int, Tensor]:
    """Returns the rows after one layer, of the ranks that this one can read."""
    degrees, made = step.degrees(nodes), None
    result_bytes = step.result_bytes(before[nodes.rank].size(1))
    for piece in nodes.pieces(before, result_bytes, title):
        degree = None if degrees is None else degrees.of(piece.ids)
        rows = step.compute(_sources(piece), _graph(piece, degree))
        if made is None:
            made = nodes.allocate(rows.size(1), rows.dtype)
        made[nodes.rank][piece.rows.start : piece.rows.stop] = rows
        del piece, rows, degree
    assert made is not None, "there is one piece at least"
    return made


def _sources(piece: NodePieceLike) -> Rows:
    return piece.table if piece.order is None else RowView(piece.table, piece.order)


def _graph(piece: NodePieceLike, degree: Tensor | None) -> LayerGraph:
    sources = len(piece.table) if piece.order is None else len(piece.order)
    return LayerGraph(ops.InEdges(piece.indptr, piece.indices), num_sources=sources, degree=degree)
