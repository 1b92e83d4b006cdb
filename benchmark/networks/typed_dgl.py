"""The typed networks on DGL's convolutions and blocks."""

from __future__ import annotations

from typing import Any

import dgl
from dgl.nn import HeteroGraphConv, SAGEConv
from torch import Tensor, nn

from benchmark.networks.dgl import Heads
from benchmark.networks.recipe import after, widths
from benchmark.support.mag import SEEDS


class TypedBlockNetwork(nn.Module):
    """`HeteroGraphConv` on blocks, one per layer."""

    def __init__(
        self, model: str, features: int, hidden: int, classes: int, count: int, graph: dgl.DGLGraph
    ) -> None:
        super().__init__()

        def layer(inputs: int, outputs: int, last: bool) -> nn.Module:
            if model == "sage":
                return SAGEConv(inputs, outputs, "mean")
            return Heads(inputs, outputs, last)

        pairs = widths(features, hidden, classes, count)
        self.convs = nn.ModuleList(
            HeteroGraphConv({name: layer(*pair, place + 1 == count) for name in graph.etypes})
            for place, pair in enumerate(pairs)
        )
        self.afters = nn.ModuleList(
            nn.ModuleDict({name: after(model, hidden) for name in graph.ntypes}) for _ in pairs[1:]
        )

    def forward(self, blocks: list[dgl.DGLGraph], x: dict[str, Tensor]) -> Tensor:
        """Returns the [batch_size, classes] logits of the seeds."""
        for layer, (conv, block) in enumerate(zip(self.convs, blocks, strict=True)):
            x = conv(block, x)
            if layer < len(self.afters):
                follows: Any = self.afters[layer]
                x = {name: follows[name](found) for name, found in x.items()}
        return x[SEEDS]
