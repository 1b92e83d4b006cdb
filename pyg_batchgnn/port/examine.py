"""The modules that can be replaced, and the reasons against it."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch_geometric.nn
from torch.nn.utils import parametrize
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn import nn
from pyg_batchgnn.port import convs, models, modules
from pyg_batchgnn.port.accelerated_model import AcceleratedModel
from pyg_batchgnn.port.hetero import AcceleratedHeteroConv

Module = torch.nn.Module

#: The class that each class becomes. An instance keeps its parameters and attributes.
NATIVE: dict[type[Module], type[Module]] = {
    torch_geometric.nn.GraphSAGE: models.AcceleratedGraphSAGE,
    torch_geometric.nn.GCN: models.AcceleratedGCN,
    torch_geometric.nn.GIN: models.AcceleratedGIN,
    torch_geometric.nn.GAT: models.AcceleratedGAT,
    torch_geometric.nn.SAGEConv: convs.AcceleratedSAGEConv,
    torch_geometric.nn.GCNConv: convs.AcceleratedGCNConv,
    torch_geometric.nn.GINConv: convs.AcceleratedGINConv,
    torch_geometric.nn.GATConv: convs.AcceleratedGATConv,
    torch_geometric.nn.GATv2Conv: convs.AcceleratedGATv2Conv,
    torch_geometric.nn.HeteroConv: AcceleratedHeteroConv,
    torch_geometric.nn.MLP: modules.AcceleratedMLP,
    torch.nn.BatchNorm1d: modules.AcceleratedBatchNorm1d,
    torch.nn.ReLU: modules.AcceleratedReLU,
    torch.nn.Dropout: modules.AcceleratedDropout,
}
_CHECKS: dict[type[Module], Callable[..., None]] = {
    torch_geometric.nn.SAGEConv: nn.SAGEConv.check,
    torch_geometric.nn.GCNConv: nn.GCNConv.check,
    torch_geometric.nn.GINConv: nn.GINConv.check,
    torch_geometric.nn.GATConv: nn.GATConv.check,
    torch_geometric.nn.GATv2Conv: nn.GATv2Conv.check,
}
CONVS = tuple(_CHECKS)


def concerns(module: Module) -> bool:
    """Returns whether the report speaks of a module: it can be replaced, or one might expect it."""
    norm = type(module).__module__.startswith("torch_geometric.nn.norm")
    wraps = type(module) is torch_geometric.nn.BatchNorm  # its inner module is replaced
    return isinstance(module, (*NATIVE, MessagePassing)) or (norm and not wraps)


def reason_against(module: Module, places: int) -> str | None:
    """Returns the reason to leave a module, or None if it can be replaced.

    Args:
        module: one that `concerns`.
        places: how often it occurs in the model.
    """
    kind = type(module)
    if parametrize.is_parametrized(module):
        return "it has parametrisations"
    if kind not in NATIVE:
        known = next((pygs for pygs in NATIVE if isinstance(module, pygs)), None)
        return "there is no native one" if known is None else f"it is a subclass of {known.__name__}"
    if places > 1:
        return f"the same instance stands in {places} places"
    if _is_hooked(module):
        return "it has hooks"
    if isinstance(module, torch_geometric.nn.MLP):
        inside = _reason_inside(module)
        if inside is not None:
            return inside
    try:
        _CHECKS.get(kind, _accept)(module)
    except ValueError as error:
        return str(error)
    except (AttributeError, TypeError, KeyError) as error:  # of attributes that were deleted
        return f"it is not as PyG made it: {error}"
    return None


def _accept(module: Module) -> None:
    del module


def _reason_inside(module: torch_geometric.nn.MLP) -> str | None:
    """Returns the reason to leave a perceptron because of a part that a native one would not
    call."""
    for place, part in enumerate(module.lins):
        if parametrize.is_parametrized(part):
            return f"lins.{place} has parametrisations"
        if type(part) is not torch_geometric.nn.Linear:
            return f"lins.{place} is a {type(part).__name__}, not PyG's Linear"
        if _is_hooked(part):
            return f"lins.{place} has hooks"
    return None


def is_fused(module: Module, name: str) -> bool:
    """Returns whether a native module computes its part ``name`` itself, which then stays as it
    is."""
    return isinstance(module, (AcceleratedModel, modules.AcceleratedMLP)) and name in (
        "act",
        "dropout",
    )


def _is_hooked(module: Module) -> bool:
    """Returns whether hooks wait on a module, but for those by which PyG finds lazy widths."""
    own = getattr(module, "_hook", None)
    lazy = own is not None and is_uninitialized_parameter(getattr(module, "weight", None))
    before = len(module._forward_pre_hooks) - (1 if lazy else 0)
    after = (module._forward_hooks, module._backward_hooks, module._backward_pre_hooks)
    return before > 0 or any(after) or "forward" in vars(module)
