"""torch.nn.Linear on the package's own matrix products."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn import ops


class Linear(torch.nn.Linear):
    """``torch.nn.Linear``: the same constructor, initialisation and ``state_dict``, computed by `ops.linear`.

    The result's bits do not depend on the number of threads. Under ``torch.autocast("cpu", torch.bfloat16)``
    products are bfloat16 with float32 sums, and so are the results; otherwise both have the weights' dtype,
    whichever of float32, bfloat16 and float16 the input has.
    """

    def forward(self, input: Tensor) -> Tensor:
        """[..., in_features] -> [..., out_features]."""
        if input.size(-1) != self.in_features:
            raise ValueError(
                f"the input has {input.size(-1)} columns (shape {list(input.shape)}), the layer takes "
                f"{self.in_features}"
            )
        rows = input.reshape(-1, self.in_features)
        y = ops.linear([rows], [self.weight], self.bias, num_rows=input[..., :1].numel())
        return y.view(*input.shape[:-1], self.out_features)
