"""The conditions under which native code computes what PyG's loop over the layers does."""

from __future__ import annotations

import torch
import torch_geometric.nn
from torch_geometric.nn.models.basic_gnn import BasicGNN

from pyg_batchgnn import nn
from pyg_batchgnn.nn.models import is_row_wise_norm
from pyg_batchgnn.port.modules import (
    AcceleratedBatchNorm1d,
    AcceleratedGATConv,
    AcceleratedGATv2Conv,
    AcceleratedGCNConv,
    AcceleratedGINConv,
    AcceleratedMLP,
    AcceleratedSAGEConv,
    AcceleratedTrim,
    is_probability,
)

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


#: What follows the layers, by its name in a model.
_AFTER: dict[str, tuple[type[torch.nn.Module], ...]] = {
    "jk": (torch_geometric.nn.JumpingKnowledge,),
    "lin": (torch.nn.Linear, torch.nn.Identity),
    "_trim": (AcceleratedTrim,),
}
_CONVS = (
    *(AcceleratedSAGEConv, AcceleratedGCNConv, AcceleratedGINConv),
    *(AcceleratedGATConv, AcceleratedGATv2Conv),
)


def can_run(model: BasicGNN) -> bool:
    """Returns whether `run` computes what PyG's loop does.

    It does not if a part was left to PyG, or if a module may look at other rows than its own.
    """
    acts = [model.act, *(perceptron.act for perceptron in _perceptrons(model))]
    return (
        all(type(norm) is AcceleratedBatchNorm1d or is_row_wise_norm(norm) for norm in _norms(model))
        and all(act is None or is_row_wise(act) for act in acts)
        and type(model.dropout) is torch.nn.Dropout
        and is_probability(model.dropout.p)
        and left_to_pyg(model) is None
    )


def left_to_pyg(model: BasicGNN) -> str | None:
    """Returns a part that only PyG's loop calls as it should be called, with the reason, or None.

    These are convolutions that are not native or not as PyG made them, what hooks wait on, and
    modules of other classes than PyG's after the layers.
    """
    layers = len(model.convs)
    if layers != model.num_layers or layers != len(model.norms):
        return f"there are {layers} convs and {len(model.norms)} norms for {model.num_layers} layers"
    for name, kinds in _AFTER.items():
        part = getattr(model, name, None)
        if part is not None and type(part) not in kinds:
            return f"{name} is a {nn.layer_name(part)}, which may look at other rows"
    for place, conv in enumerate(model.convs):
        if not _is_ours(conv):
            return f"convs.{place} is a {nn.layer_name(conv)} that is left to PyG"
        if nn.is_watched(conv):
            return f"convs.{place} has hooks"
        if nn.as_made(conv) is None:
            return f"convs.{place} is no longer as PyG made it"
    norms = {f"norms.{place}": norm for place, norm in enumerate(model.norms)}
    parts = {**norms, **{f"{name}.module": _inner(norm) for name, norm in norms.items()}}
    parts |= {name: getattr(model, name, None) for name in ("act", "dropout", *_AFTER)}
    for name, part in parts.items():
        if isinstance(part, torch.nn.Module) and nn.is_watched(part):
            return f"{name} has hooks"
    return None


def drops(model: BasicGNN) -> bool:
    between = model.dropout.training and model.dropout.p > 0.0
    return between or any(conv.training and getattr(conv, "dropout", 0.0) > 0.0 for conv in model.convs)


def takes_row_statistics(model: BasicGNN) -> bool:
    """Returns whether rows of a hidden layer depend on each other now."""
    norms = _norms(model)
    return any(isinstance(norm, AcceleratedBatchNorm1d) and norm.takes_row_statistics() for norm in norms)


def _is_ours(conv: torch.nn.Module) -> bool:
    if type(conv) is AcceleratedGINConv:
        drops = conv.nn.training and any(conv.nn.dropout) if type(conv.nn) is AcceleratedMLP else True
        return not drops and conv.nn.plain_last and not nn.is_watched(conv.nn)
    return type(conv) in _CONVS


def _perceptrons(model: BasicGNN) -> list[AcceleratedMLP]:
    found = (getattr(conv, "nn", None) for conv in model.convs)
    return [one for one in found if isinstance(one, AcceleratedMLP)]


def _norms(model: BasicGNN) -> list[torch.nn.Module]:
    inside = (norm for perceptron in _perceptrons(model) for norm in perceptron.norms)
    return [_inner(norm) for norm in (*model.norms, *inside)]


def _inner(norm: torch.nn.Module) -> torch.nn.Module:
    return norm.get_submodule("module") if type(norm) is torch_geometric.nn.BatchNorm else norm
