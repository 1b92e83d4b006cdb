"""The errors for features of PyG's convolutions that the native layers do not support."""

from __future__ import annotations

import torch
from torch_geometric.nn.conv import MessagePassing


def layer_name(module: torch.nn.Module) -> str:
    """Returns the name of the class that the user wrote.

    A module that `pyg_batchgnn.accelerate` made native has the attribute ``stands_for``, the class
    of PyG or torch.
    """
    kind: type = getattr(module, "stands_for", type(module))
    return kind.__name__


def refuse(conv: MessagePassing, what: str, remedy: str) -> ValueError:
    """Returns the error for a feature that PyG's layer supports."""
    return ValueError(f"pyg_batchgnn.nn.{layer_name(conv)} does not support {what}; {remedy}")
