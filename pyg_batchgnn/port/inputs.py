"""The inputs that native layers take. PyG's own code computes all others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parametrize
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn import nn, ops

#: The parts of a convolution that native layers read instead of calling them.
READ_PARTS = ("lin", "lin_l", "lin_r", "lin_src", "lin_dst", "lin_edge", "res")
_DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def is_plain(x: Any, dtype: torch.dtype | None = None) -> bool:
    """Returns whether ``x`` is a dense [rows, columns] tensor on the CPU that native layers read.

    Args:
        x: the argument of a module.
        dtype: the dtype of the module's parameters; None if it has none.
    """
    return (
        isinstance(x, Tensor)
        and x.dim() == 2
        and x.device.type == "cpu"
        and x.layout is torch.strided
        and x.dtype in _DTYPES
        and (dtype is None or x.dtype is dtype or _autocasts(x))
    )


def _autocasts(x: Tensor) -> bool:
    autocast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.bfloat16
    return autocast and x.dtype is not torch.float64


def are_plain_edges(edge_index: Any) -> bool:
    """Returns whether edges are a dense [2, E] tensor on the CPU."""
    return (
        isinstance(edge_index, Tensor)
        and edge_index.layout is torch.strided
        and edge_index.device.type == "cpu"
        and edge_index.dim() == 2
        and edge_index.size(0) == 2
        and edge_index.dtype in (torch.int64, torch.int32)
    )


def refuse_batch(x: Any, edge_index: Any) -> None:
    """Raises TypeError if ``x`` is a batch, which has edges of its own."""
    if not isinstance(x, Tensor) and (hasattr(x, "edge_index") or nn.is_sampled(x)):
        raise TypeError(
            f"model(batch) reads the edges of the batch, but {type(edge_index).__name__} was given as "
            f"edge_index beside a {type(x).__name__}; call model(batch), or model(batch.x, batch.edge_index)"
        )


def is_traced() -> bool:
    """Returns whether torch compiles, traces or transforms the call, which native operators do not
    take part in."""
    compiles = torch.compiler.is_compiling()
    return compiles or torch._C._get_tracing_state() is not None or ops.is_transforming()


def watches_parts(conv: torch.nn.Module) -> bool:
    """Returns whether hooks, pruning or parametrisations wait on a part that is only read."""
    found = (conv._modules.get(name) for name in READ_PARTS)
    return any(
        part is not None
        and not is_uninitialized_parameter(getattr(part, "weight", None))
        and (nn.is_watched(part) or parametrize.is_parametrized(part))
        for part in found
    )


def takes(conv: torch.nn.Module, x: Any, edge_index: Any, dtype: torch.dtype | None) -> bool:
    """Returns whether a native convolution takes the arguments of a call."""
    if isinstance(edge_index, nn.LayerGraph):
        return True
    parts = x if isinstance(x, (tuple, list)) else (x,)
    return (
        are_plain_edges(edge_index)
        and all(part is None or is_plain(part, dtype) for part in parts)
        and parts[0] is not None
        and not is_traced()
        and not nn.waits_for_messages(conv)
        and not watches_parts(conv)
    )
