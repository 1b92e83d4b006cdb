"""A torch.nn.Linear on the matrix products of the package."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn import ops


class Linear(torch.nn.Linear):
    """A ``torch.nn.Linear`` with the same constructor, initialisation and ``state_dict``.

    `ops.linear` computes it. The bits of the result do not depend on the number of threads. Under
    ``torch.autocast("cpu", torch.bfloat16)`` products and results are bfloat16, with float32 sums.
    Otherwise they have the dtype of the weights; the input may be float32, bfloat16 or float16.
    """

    @classmethod
    def sharing(cls, linear: torch.nn.Linear) -> Linear:
        """Returns a layer with the parameters of another one."""
        made = cls(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        made.weight, made.bias = linear.weight, linear.bias
        return made

    def forward(self, input: Tensor) -> Tensor:
        """Returns the product, [..., out_features], of an input [..., in_features]."""
        return self._product(input)

    def with_relu(self, input: Tensor) -> Tensor:
        """Returns ``relu(self(input))``, in one pass if nobody watches this layer."""
        return self(input).relu() if is_watched(self) else self._product(input, relu=True)

    def after_relu(self, input: Tensor) -> Tensor:
        """Returns ``self(input)`` for the result of a ReLU. Gradients that the ReLU drops are not
        computed."""
        result: Tensor = self(input) if is_watched(self) else self._product(input, after_relu=True)
        return result

    def _product(self, input: Tensor, *, relu: bool = False, after_relu: bool = False) -> Tensor:
        if input.size(-1) != self.in_features:
            raise ValueError(
                f"the input has {input.size(-1)} columns (shape {list(input.shape)}), the layer takes "
                f"{self.in_features}"
            )
        y = ops.linear(
            [input.reshape(-1, self.in_features)],
            [self.weight],
            self.bias,
            num_rows=input[..., :1].numel(),
            relu=relu,
            after_relu=after_relu,
        )
        return y.view(*input.shape[:-1], self.out_features)


def is_watched(module: torch.nn.Module) -> bool:
    """Returns whether the module must be called by itself: it has hooks or a ``forward`` of its
    own, or ``compile`` was called on it.

    Hooks are those of the module and the global ones of torch. Fused computations call no modules,
    so they are used only for modules that are not watched.
    """
    hooks = (
        torch.nn.modules.module._has_any_global_hook(),
        "forward" in vars(module),
        vars(module).get("_compiled_call_impl"),
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return any(hooks)
