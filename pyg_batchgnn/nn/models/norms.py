"""PyG's batch normalisation, computed by the native one."""

from __future__ import annotations

import torch
from torch_geometric.nn.norm import BatchNorm as PygBatchNorm

from pyg_batchgnn.nn.linear import is_watched
from pyg_batchgnn.nn.norm import BatchNorm


def native_norm(norm: torch.nn.Module, relu: bool) -> torch.nn.Module:
    """Makes a batch normalisation of PyG compute natively; returns other modules as they are.

    Args:
        norm: a module; its ``state_dict`` stays the same.
        relu: adds a ReLU in the same pass.
    """
    if type(norm) is PygBatchNorm and type(norm.module) is torch.nn.BatchNorm1d:
        norm.module = BatchNorm.sharing(norm.module, relu)
    return norm


def fused_norm(norm: torch.nn.Module) -> BatchNorm | None:
    """Returns the native batch normalisation with ReLU inside a module that nobody watches, else
    None."""
    inside = norm.module if type(norm) is PygBatchNorm and not is_watched(norm) else None
    return inside if isinstance(inside, BatchNorm) and inside.relu else None
