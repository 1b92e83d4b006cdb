"""The parts that the networks of all sides share: widths, activations and the optimiser's step.

SAGE, GCN and GAT have ReLU and dropout after all layers but the last; GIN has two-layer MLPs with
batch normalisation and ReLU inside, and batch normalisation and ReLU after all layers but the last.
Imports torch alone, so that it loads in every interpreter that takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MODELS = ("sage", "gcn", "gin", "gat")
TITLES = {"sage": "SAGE", "gcn": "GCN", "gin": "GIN", "gat": "GAT"}
DROPOUT = 0.5
LEARNING_RATE = 0.003
HEADS = 4


def widths(features: int, hidden: int, classes: int, count: int) -> list[tuple[int, int]]:
    return list(pairwise([features, *[hidden] * (count - 1), classes]))


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    first, last = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs)
    return nn.Sequential(first, nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), last)


def after(model: str, hidden: int) -> nn.Module:
    if model == "gin":
        return nn.Sequential(nn.BatchNorm1d(hidden), nn.ReLU(inplace=True))
    return nn.Sequential(nn.ReLU(inplace=True), nn.Dropout(DROPOUT))


Convolution = Callable[[int, int, bool], nn.Module]
"""Makes the convolution from (input columns, output columns, whether it is the last layer)."""


class Stack(nn.Module):
    """Convolutions and what stands between them."""

    def __init__(
        self, model: str, convolution: Convolution, features: int, hidden: int, classes: int, count: int
    ) -> None:
        super().__init__()
        pairs = widths(features, hidden, classes, count)
        self.convs = nn.ModuleList(
            convolution(a, b, place + 1 == count) for place, (a, b) in enumerate(pairs)
        )
        self.afters = nn.ModuleList(after(model, hidden) for _ in pairs[1:])

    def between(self, layer: int, x: Tensor) -> Tensor:
        return self.afters[layer](x) if layer < len(self.afters) else x


class TypedStack(Stack):
    """The convolutions of a typed network, and what stands between them by node type."""

    def __init__(
        self,
        model: str,
        convolution: Convolution,
        node_types: Sequence[str],
        features: int,
        hidden: int,
        classes: int,
        count: int,
    ) -> None:
        super().__init__(model, convolution, features, hidden, classes, count)
        self.afters = nn.ModuleList(
            nn.ModuleDict({name: after(model, hidden) for name in node_types}) for _ in self.afters
        )

    def between_types(self, layer: int, x: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the inputs of the next layer by type from the outputs of ``layer``."""
        if layer == len(self.afters):
            return x
        follows: Any = self.afters[layer]
        return {name: follows[name](found) for name, found in x.items()}


class Trainer:
    """Minimises the loss of a model with Adam."""

    def __init__(self, model: nn.Module, learning_rate: float = LEARNING_RATE) -> None:
        self.model = model.train()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)

    def update(self, loss: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


class StepTrainer(Trainer):
    """One optimiser step: forward, cross entropy on the seeds, backward, Adam."""

    def step(self, logits: Tensor, labels: Tensor) -> None:
        self.update(F.cross_entropy(logits.float(), labels))


class LinkTrainer(Trainer):
    """One optimiser step on links: forward, dot products, cross entropy, backward, Adam."""

    def step(self, source: Tensor, target: Tensor, label: Tensor) -> None:
        scores = (source * target).sum(dim=-1)
        self.update(F.binary_cross_entropy_with_logits(scores, label.float()))
