"""The modules whose result for a row is known to depend on that row alone."""

from __future__ import annotations

import torch
import torch_geometric.nn

_BY_ELEMENT = (
    *(torch.nn.ReLU, torch.nn.LeakyReLU, torch.nn.ELU, torch.nn.SELU, torch.nn.CELU, torch.nn.GELU),
    *(torch.nn.SiLU, torch.nn.Mish, torch.nn.Tanh, torch.nn.Sigmoid, torch.nn.Softplus, torch.nn.ReLU6),
    *(torch.nn.Hardtanh, torch.nn.Hardswish, torch.nn.LogSigmoid, torch.nn.Identity, torch.nn.PReLU),
)
_SOFTMAX = (torch.nn.Softmax, torch.nn.LogSoftmax, torch.nn.Softmin)


def is_row_wise(act: torch.nn.Module) -> bool:
    """Returns whether an activation is known to compute each row by itself."""
    if type(act) in _SOFTMAX:
        return act.dim in (None, 1, -1)  # of two dimensions torch chooses the last one
    return type(act) in _BY_ELEMENT


def is_row_wise_norm(norm: torch.nn.Module) -> bool:
    """Returns whether a norm is known to compute each row by itself, and to keep no result for its
    gradient."""
    if type(norm) is torch.nn.LayerNorm:
        return len(norm.normalized_shape) == 1
    if type(norm) is torch_geometric.nn.LayerNorm:
        return bool(norm.mode == "node")
    return type(norm) is torch.nn.Identity
