"""What follows a layer's product, done while its rows are in the cache."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Update:
    """ReLU and dropout fused into the product's last pass (DistGNN-MB's update, which follows the bias).

    ``conv(x, minibatch, layer, update=Update(relu=True, drop=0.5))`` gives ``dropout(relu(conv(...)))``.
    Dropout is active while the layer is in training mode, keyed as docs/nn.md says.

    Attributes:
        relu: whether negative values become zero.
        drop: probability of dropping an element, in [0, 1).
    """

    relu: bool = False
    drop: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.drop < 1.0:
            raise ValueError(f"drop must be in [0, 1), got {self.drop}")
