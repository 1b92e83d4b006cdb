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
        return self._product(input, after_relu=False)

    def after_relu(self, input: Tensor) -> Tensor:
        """``self(input)`` for the result of a ReLU: gradients that the ReLU would drop are left out."""
        result: Tensor = self(input) if is_watched(self) else self._product(input, after_relu=True)
        return result

    def _product(self, input: Tensor, after_relu: bool) -> Tensor:
        rows = input.reshape(-1, self.in_features)
        y = ops.linear(
            [rows], [self.weight], self.bias, num_rows=input[..., :1].numel(), after_relu=after_relu
        )
        return y.view(*input.shape[:-1], self.out_features)


def is_watched(module: torch.nn.Module) -> bool:
    """Whether hooks, the module's or torch's global ones, or a ``forward`` of its own wait for the module to
    be called by itself."""
    hooks = (
        torch.nn.modules.module._has_any_global_hook(),
        "forward" in vars(module),
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return any(hooks)
