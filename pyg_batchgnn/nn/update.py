"""ReLU and dropout after the product of a layer, applied while its rows are in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.graph import Targets


@dataclass(frozen=True)
class Update:
    """ReLU and dropout in the last pass of a product, after the bias (the fused update of
    DistGNN-MB).

    ``conv(x, minibatch, layer, update=Update(relu=True, drop=0.5))`` returns
    ``dropout(relu(conv(...)))``. Dropout is active in training mode, keyed as
    docs/reference/layers.md says.

    Attributes:
        relu: sets negative values to zero.
        drop: the probability of dropping an element, in [0, 1).
    """

    relu: bool = False
    drop: float = 0.0

    def __post_init__(self) -> None:
        ops.check_drop(self.drop)


class UpdateArguments(TypedDict):
    """The arguments of an update for `ops.linear` and `ops.activate`."""

    relu: bool
    drop: float
    key: int
    node: Tensor | None


def update_arguments(update: Update | None, targets: Targets, training: bool) -> UpdateArguments:
    """Returns the arguments of an update of the rows of a layer, without dropout unless
    ``training``."""
    if update is None:
        return {"relu": False, "drop": 0.0, "key": 0, "node": None}
    drop = update.drop if training else 0.0
    return {
        "relu": update.relu,
        "drop": drop,
        "key": targets.dropout_key() if drop > 0 else 0,
        "node": targets.node,
    }
