"""What follows a layer's product, done while its rows are in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.graph import LayerGraph


@dataclass(frozen=True)
class Update:
    """ReLU and dropout fused into the product's last pass, behind the bias (DistGNN-MB's fused update).

    ``conv(x, minibatch, layer, update=Update(relu=True, drop=0.5))`` gives ``dropout(relu(conv(...)))``.
    Dropout is active while the layer is in training mode, keyed as docs/reference/layers.md says.

    Attributes:
        relu: whether negative values become zero.
        drop: probability of dropping an element, in [0, 1).
    """

    relu: bool = False
    drop: float = 0.0

    def __post_init__(self) -> None:
        ops.check_drop(self.drop)


class UpdateArguments(TypedDict):
    """An update as operators take it (`ops.linear`, `ops.activate`)."""

    relu: bool
    drop: float
    key: int
    node: Tensor | None


def update_arguments(update: Update | None, graph: LayerGraph, training: bool) -> UpdateArguments:
    """The update of a layer's targets; nothing where ``update`` is None, no dropout unless ``training``."""
    if update is None:
        return {"relu": False, "drop": 0.0, "key": 0, "node": None}
    drop = update.drop if training else 0.0
    return {
        "relu": update.relu,
        "drop": drop,
        "key": graph.dropout_key() if drop > 0 else 0,
        "node": graph.node,
    }
