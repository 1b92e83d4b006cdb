"""Minibatches without edges, for tests that fetch attributes."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.ops import minibatch_key
from pyg_batchgnn.sample import SampledEdges, SampledMinibatch, SampledNodes


def only_nodes(node: Tensor) -> SampledMinibatch:
    """Returns a minibatch of the given nodes, all of them seeds, with no edges."""
    empty = torch.empty(0, dtype=torch.int64)
    edges = SampledEdges(torch.tensor([0]), empty, None, [0])
    return SampledMinibatch.homogeneous(SampledNodes(node, [node.numel()]), edges, minibatch_key(node.long()))
