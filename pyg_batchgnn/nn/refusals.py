"""The errors for features of PyG's convolutions that the native layers do not support."""

from __future__ import annotations

import torch
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn import ops

_HOOKS = (
    "_propagate_forward_pre_hooks",
    "_propagate_forward_hooks",
    "_message_forward_pre_hooks",
    "_message_forward_hooks",
    "_aggregate_forward_pre_hooks",
    "_aggregate_forward_hooks",
    "_message_and_aggregate_forward_pre_hooks",
    "_message_and_aggregate_forward_hooks",
    "_edge_update_forward_pre_hooks",
    "_edge_update_forward_hooks",
)


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


def check_constructed(conv: MessagePassing, node_dim: int = -2) -> None:
    """Raises for arguments of PyG's `MessagePassing` that native layers do not support.

    Args:
        conv: the layer.
        node_dim: the value that PyG's layer sets.
    """
    use_pyg = f"use torch_geometric.nn.{layer_name(conv)}"
    if conv.flow != "source_to_target":
        raise refuse(conv, f"flow={conv.flow!r}", "reverse the edges: edge_index.flip(0)")
    if conv.node_dim != node_dim:
        raise refuse(conv, f"node_dim={conv.node_dim}", use_pyg)
    if conv.decomposed_layers != 1:
        raise refuse(conv, f"decomposed_layers={conv.decomposed_layers}", "leave it at 1")


def check_called(conv: MessagePassing) -> None:
    """Raises if hooks or explanations wait for messages, which native layers never compute, or if
    torch.func transforms the call."""
    if ops.is_transforming():
        what = "transforms of torch.func and differentiation in forward mode"
        raise refuse(conv, what, f"use torch_geometric.nn.{layer_name(conv)}")
    if waits_for_messages(conv):
        what = "explanations" if getattr(conv, "_explain", None) else "hooks on messages"
        raise refuse(conv, what, f"use torch_geometric.nn.{layer_name(conv)}")


def waits_for_messages(conv: torch.nn.Module) -> bool:
    """Returns whether hooks or an explanation wait for the messages of a layer."""
    return any(getattr(conv, name, None) for name in (*_HOOKS, "_explain"))
