"""Each native model with the PyG model of the same parameters, and what tests feed them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn import Minibatch, SampledMinibatch, nn
from tests.support import pyg_models as pyg
from tests.support.layer_cases import FEATURES, batch_cases, sampled, table

HIDDEN, CLASSES = 16, 5


class Pair(NamedTuple):
    """Constructors; the argument is the probability of dropout, where the model has it."""

    native: Callable[[float], nn.NativeModel]
    pyg: Callable[[float], pyg.PygOnPrefixes]


PAIRS: dict[str, Pair] = {
    "sage": Pair(
        lambda drop: nn.SAGE(FEATURES, HIDDEN, 3, CLASSES, drop),
        lambda drop: pyg.PygSAGE(FEATURES, HIDDEN, 3, CLASSES, drop),
    ),
    "gcn": Pair(
        lambda drop: nn.GCN(FEATURES, HIDDEN, 3, CLASSES, drop),
        lambda drop: pyg.PygGCN(FEATURES, HIDDEN, 3, CLASSES, drop),
    ),
    "gat": Pair(
        lambda drop: nn.GAT(FEATURES, HIDDEN, 3, CLASSES, drop, heads=4, attention_dropout=0.0),
        lambda drop: pyg.PygGAT(FEATURES, HIDDEN, 3, CLASSES, drop, heads=4),
    ),
    "gin": Pair(
        lambda _: nn.GIN(FEATURES, HIDDEN, 3, CLASSES, norm="batch_norm", inner_channels=HIDDEN),
        lambda _: pyg.PygGIN(FEATURES, HIDDEN, 3, CLASSES),
    ),
}


def both(
    kind: str, drop: float = 0.0, dtype: torch.dtype = torch.float32
) -> tuple[nn.NativeModel, pyg.PygOnPrefixes]:
    """The two models of a kind with the same weights."""
    torch.manual_seed(7)
    native, reference = PAIRS[kind].native(drop).to(dtype), PAIRS[kind].pyg(drop).to(dtype)
    reference.load_state_dict(native.state_dict())
    return native, reference


def with_features(minibatch: SampledMinibatch, dtype: torch.dtype = torch.float32) -> Minibatch:
    """The minibatch as a native loader hands it out, its features read in place."""
    return Minibatch.in_place(minibatch, {"x": table(dtype)})


def cases() -> dict[str, SampledMinibatch]:
    return batch_cases()


def larger(epoch: int = 0, first: int = 0) -> Minibatch:
    """A minibatch that covers most of the small graph."""
    return with_features(sampled(list(range(first, first + 30)), (15, 10, 5), epoch))


def step_gradients(model: torch.nn.Module, out: Tensor, *inputs: Tensor) -> dict[str, Tensor]:
    """Gradients of a loss that weighs every output differently, by parameter and input."""
    weights = torch.linspace(-1.0, 1.0, out.numel(), dtype=out.dtype).view_as(out)
    leaves = {**dict(model.named_parameters()), **{f"x{i}": x for i, x in enumerate(inputs)}}
    grads = torch.autograd.grad(
        (out * weights).sum(), list(leaves.values()), materialize_grads=True, allow_unused=True
    )
    return dict(zip(leaves, grads, strict=True))


def same_start(model: nn.NativeModel) -> nn.NativeModel:
    """A copy that shares nothing."""
    return copy.deepcopy(model)
