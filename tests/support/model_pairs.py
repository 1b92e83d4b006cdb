"""Native models, and what tests feed them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pyg_batchgnn import Minibatch, SampledMinibatch, nn
from tests.support.layer_cases import FEATURES, sampled, table

HIDDEN, CLASSES = 16, 5
SHAPE = (FEATURES, HIDDEN, 3, CLASSES)
#: By name, what makes a model with a probability of dropout, where it has one.
KINDS: dict[str, Callable[[float], nn.NativeModel]] = {
    "sage": lambda drop: nn.SAGE(*SHAPE, drop),
    "gcn": lambda drop: nn.GCN(*SHAPE, drop),
    "gat": lambda drop: nn.GAT(*SHAPE, drop, heads=4, attention_dropout=0.0),
    "gin": lambda _: nn.GIN(*SHAPE, norm="batch_norm", inner_channels=HIDDEN),
}


def native(kind: str, drop: float = 0.0) -> nn.NativeModel:
    torch.manual_seed(7)
    return KINDS[kind](drop)


def with_features(minibatch: SampledMinibatch, dtype: torch.dtype = torch.float32) -> Minibatch:
    """The minibatch as a native loader hands it out, its features read in place."""
    return Minibatch.in_place(minibatch, {"x": table(dtype)})


def larger(epoch: int = 0, first: int = 0) -> Minibatch:
    return with_features(sampled(list(range(first, first + 30)), (15, 10, 5), epoch))
