"""The transforms of torch.func and forward-mode differentiation, which operators do not support."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch.autograd import forward_ad
from torch.compiler import is_compiling


def is_transforming() -> bool:
    """Returns whether a transform or forward-mode differentiation is under way.

    False where torch compiles the call: its compiler follows transforms itself.
    """
    if is_compiling():
        return False
    return _are_functorch_transforms_active() or forward_ad._current_level >= 0


def refuse_transformed(name: str, tensor: Tensor) -> None:
    """Raises RuntimeError for a tensor that takes part in one.

    Torch would compute an operator without a rule for it as a constant.
    """
    if not is_transforming():
        return
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    if wrapped or forward_ad.unpack_dual(tensor).tangent is not None:
        raise RuntimeError(
            f"{name} is transformed by torch.func or differentiated in forward mode, which native layers do "
            f"not support; use PyG's layers there, or torch.autograd for first derivatives"
        )
