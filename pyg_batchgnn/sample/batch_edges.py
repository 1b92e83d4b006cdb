"""The samples behind the edges of the PyG batches that loaders hand out.

A sample is found by the identity of its ``edge_index``, the version counter of that tensor and sums
of its contents. It is kept as long as the tensor lives. Nothing is stored on the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from pyg_batchgnn import ops
from pyg_batchgnn.types import SampledMinibatch


@dataclass(frozen=True, eq=False)
class HandedOut:
    """The sample behind a PyG batch in CSC form, which layers take like a minibatch."""

    node: Tensor  # [N] int64, original ids in order of discovery
    indptr: Tensor  # [D + 1] int64, where the in-edges of each expanded node begin
    indices: Tensor  # [E], local ids of the sources, in the order of ``edge_index``
    # nodes_per_hop, edges_per_hop, key, seed, epoch: as in the minibatch.
    nodes_per_hop: list[int]
    edges_per_hop: list[int]
    key: int
    seed: int
    epoch: int

    @property
    def num_nodes(self) -> int:
        return self.node.numel()


@dataclass
class _Entry:
    """The sample of an edge tensor at one version, with sums of its contents. ``indices`` are
    copied when they are first read."""

    version: int
    sums: Tensor
    sample: HandedOut
    is_complete: bool = False


#: By ``edge_index``. No value may hold that tensor or a view of it, which would keep it alive.
_entries: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
#: By the ``edge_index`` of a batch of several types, original ids of its sources and targets.
ENDS: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def remember(edge_index: Tensor, minibatch: SampledMinibatch) -> None:
    """Registers a minibatch as the sample behind ``edge_index``, which holds its edges in order."""
    if edge_index.is_inference():  # such a tensor has no version counter
        return
    counts = list(minibatch.nodes_per_hop), list(minibatch.edges_per_hop)
    numbers = minibatch.key, minibatch.seed, minibatch.epoch
    indices = torch.empty(0, dtype=torch.int32)
    sample = HandedOut(minibatch.node, minibatch.indptr, indices, *counts, *numbers)
    _entries[edge_index] = _Entry(edge_index._version, ops.content_sums(edge_index), sample)


def handed_out(edge_index: Tensor) -> HandedOut | None:
    """Returns the sample behind ``edge_index``; None unless a loader of this process made the
    tensor and nobody has modified it."""
    entry: _Entry | None = None if edge_index.is_inference() else _entries.get(edge_index)
    if entry is None or entry.version != edge_index._version:
        return None
    if not torch.equal(entry.sums, ops.content_sums(edge_index)):  # written to by a way around torch
        return None
    if not entry.is_complete:
        indices = edge_index[0].to(ops.id_dtype(entry.sample.num_nodes), copy=True)
        entry.sample, entry.is_complete = replace(entry.sample, indices=indices), True
    return entry.sample
