"""A layer of ours and the same one of PyG's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def both(ours: type, pygs: type, *arguments: Any, dtype: torch.dtype, **options: Any) -> tuple[Any, Any]:
    """Both with the same parameters, which went from ours into PyG's and back."""
    torch.manual_seed(3)
    one, other = ours(*arguments, **options).to(dtype), pygs(*arguments, **options).to(dtype)
    other.load_state_dict(one.state_dict())
    one.load_state_dict(other.state_dict())
    for parameter in (*one.parameters(), *other.parameters()):
        if parameter.dim() == 1:  # biases begin at zero, where they prove little
            parameter.data.copy_(torch.linspace(-0.5, 0.5, parameter.numel()))
    return one, other


def gradients(module: torch.nn.Module, out: Tensor, *inputs: Tensor) -> list[Tensor]:
    """Returns the gradients of a weighted sum of the output, for parameters and inputs."""
    weights = torch.linspace(-1.0, 1.0, out.numel(), dtype=out.dtype).view_as(out)
    leaves = [*module.parameters(), *inputs]
    found = torch.autograd.grad((out * weights).sum(), leaves, allow_unused=True, materialize_grads=True)
    return list(found)
