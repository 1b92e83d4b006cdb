"""The conditions under which native code computes what PyG's loop over the layers does."""

from __future__ import annotations

import torch
import torch_geometric.nn
from torch_geometric.nn.models.basic_gnn import BasicGNN

from pyg_batchgnn import nn
from pyg_batchgnn.port.convs import (
    AcceleratedGATConv,
    AcceleratedGATv2Conv,
    AcceleratedGCNConv,
    AcceleratedGINConv,
    AcceleratedSAGEConv,
)
from pyg_batchgnn.port.inputs import watches_parts
from pyg_batchgnn.port.modules import AcceleratedBatchNorm1d, AcceleratedMLP, is_probability
from pyg_batchgnn.port.row_wise import is_row_wise, is_row_wise_norm

_CONVS = (
    *(AcceleratedSAGEConv, AcceleratedGCNConv, AcceleratedGINConv),
    *(AcceleratedGATConv, AcceleratedGATv2Conv),
)


def can_run(model: BasicGNN) -> bool:
    """Returns whether `run` computes what PyG's loop does.

    It does not if a part was left to PyG, or if a module may look at other rows than its own.
    """
    norms = [_inner(norm) for norm in model.norms]
    return (
        all(type(norm) is AcceleratedBatchNorm1d or is_row_wise_norm(norm) for norm in norms)
        and (model.act is None or is_row_wise(model.act))
        and type(model.dropout) is torch.nn.Dropout
        and is_probability(model.dropout.p)
        and left_to_pyg(model) is None
    )


def left_to_pyg(model: BasicGNN) -> str | None:
    """Returns a part that only PyG's loop calls as it should be called, with the reason, or None.

    These are convolutions that are not native, and what hooks wait on.
    """
    for place, conv in enumerate(model.convs):
        if not _is_ours(conv):
            return f"convs.{place} is a {nn.layer_name(conv)} that is left to PyG"
        if nn.waits_for_messages(conv) or watches_parts(conv) or nn.is_watched(conv):
            return f"convs.{place} has hooks"
    norms = {f"norms.{place}": norm for place, norm in enumerate(model.norms)}
    parts = {**norms, **{f"{name}.module": _inner(norm) for name, norm in norms.items()}}
    for name, part in {**parts, "act": model.act, "dropout": model.dropout}.items():
        if isinstance(part, torch.nn.Module) and nn.is_watched(part):
            return f"{name} has hooks"
    return None


def drops(model: BasicGNN) -> bool:
    """Returns whether dropout takes part in a call now, between layers or of attention."""
    between = model.dropout.training and model.dropout.p > 0.0
    return between or any(conv.training and getattr(conv, "dropout", 0.0) > 0.0 for conv in model.convs)


def takes_row_statistics(model: BasicGNN) -> bool:
    """Returns whether rows of a hidden layer depend on each other now."""
    norms = (_inner(norm) for norm in model.norms)
    return any(isinstance(norm, AcceleratedBatchNorm1d) and norm.takes_row_statistics() for norm in norms)


def _is_ours(conv: torch.nn.Module) -> bool:
    """Returns whether a convolution is native, with what it holds."""
    if type(conv) is AcceleratedGINConv:
        return type(conv.nn) is AcceleratedMLP and conv.nn.plain_last
    return type(conv) in _CONVS


def _inner(norm: torch.nn.Module) -> torch.nn.Module:
    """Returns torch's module inside PyG's `BatchNorm`, and any other norm itself."""
    return norm.get_submodule("module") if type(norm) is torch_geometric.nn.BatchNorm else norm
