"""Fetch groups over ranks: each distinct remote node's row crosses the wire once a group (BatchGNN, appendix
D.2.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Header
from pyg_batchgnn.sample import Minibatch
from pyg_batchgnn.store import NODE_ID, DistFeatureStore, Wanted


@dataclass(frozen=True)
class Fetched:
    """A fetch group.

    Attributes:
        minibatches: with ``row``, ``block``, ``edge_block`` and original ids as ``node``.
        rows: how many nodes' rows came from other hosts.
        bytes: of the block and of the edge attributes.
    """

    minibatches: list[Minibatch]
    rows: int
    bytes: int


class RemoteFetch:
    """Fetches the attributes of sampled minibatches.

    Args:
        store: where they are.
        names: node attributes that are wanted, the same on every rank.
        edge_names: edge attributes that are wanted; minibatches must then carry edge ids.
        internal: [N] internal ids by original id where minibatches hold original ids (topology on every
            rank); None where they hold internal ids, which then become original ones.
        threads: at most so many threads.
    """

    def __init__(
        self,
        store: DistFeatureStore,
        names: Sequence[str],
        edge_names: Sequence[str] = (),
        internal: Tensor | None = None,
        threads: int | None = None,
    ) -> None:
        wanted = list(names) if internal is not None else [*names, NODE_ID]
        self._reader = store.reader(wanted, edge_names, threads)
        self._edges, self._internal, self._threads = bool(edge_names), internal, threads
        self._num_nodes = store.book.num_nodes

    @property
    def row_bytes(self) -> int:
        """Of a node on the wire, its original id included."""
        layout = self._reader.node_layout
        return 0 if layout is None else layout.row_bytes

    def group(self, minibatches: Sequence[Minibatch], header: Header) -> Fetched:
        """Fetches for some minibatches together; collective, two rounds, whatever the minibatches hold."""
        nodes = [self._internal_ids(minibatch.node) for minibatch in minibatches]
        unique, rows = ops.unique_nodes(nodes, self._num_nodes)
        if self._edges:
            edge, target, places = _distinct_edges(minibatches, nodes)
            wanted = Wanted(unique, edge, target)
        else:
            wanted, places = Wanted.nodes(unique), []
        found = self._reader.read(wanted, header)
        original = found.node.pop(NODE_ID, None)
        original = None if original is None else original.to(torch.int64)
        edge_blocks = [
            {name: ops.gather_rows(block, place, self._threads) for name, block in found.edge.items()}
            for place in places
        ] or [{} for _ in minibatches]
        ready = [
            dataclasses.replace(
                minibatch,
                node=minibatch.node if original is None else ops.gather_rows(original, row, self._threads),
                row=row,
                block=found.node,
                edge_block=edge_block,
            )
            for minibatch, row, edge_block in zip(minibatches, rows, edge_blocks, strict=True)
        ]
        gathered = [*found.node.values(), *(table for block in edge_blocks for table in block.values())]
        return Fetched(ready, found.fetched, sum(tensor.nbytes for tensor in gathered))

    def _internal_ids(self, node: Tensor) -> Tensor:
        if self._internal is None:
            return node
        return ops.gather_rows(self._internal, node, self._threads).to(torch.int64)


def _distinct_edges(
    minibatches: Sequence[Minibatch], nodes: Sequence[Tensor]
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The distinct edges by destination, their destinations, and where each minibatch's edges are among
    them."""
    edges = []
    targets = []
    for minibatch, node in zip(minibatches, nodes, strict=True):
        assert minibatch.edge is not None
        edges.append(minibatch.edge)
        targets.append(node[_destinations(minibatch)])
    edge, inverse = torch.unique(torch.cat(edges), return_inverse=True)
    target = torch.empty_like(edge)
    target[inverse] = torch.cat(targets)
    order = torch.argsort(target, stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel())
    sizes = [len(part) for part in edges]
    return edge[order], target[order], list(place[inverse].split(sizes))


def _destinations(minibatch: Minibatch) -> Tensor:
    """[E] int64 local destinations."""
    if minibatch.coo is not None:
        return minibatch.coo[1]
    degrees = minibatch.indptr[1:] - minibatch.indptr[:-1]
    return torch.repeat_interleave(torch.arange(degrees.numel()), degrees)
