"""The networks on DGL's convolutions and blocks, as in DGL's examples; homogeneous and typed."""

from __future__ import annotations

import dgl
import torch
from dgl.nn import GATConv, GINConv, GraphConv, HeteroGraphConv, SAGEConv
from torch import Tensor, nn

from benchmark.networks.recipe import HEADS, Convolution, Stack, TypedStack, mlp
from benchmark.support.mag import SEEDS


class Heads(nn.Module):
    """An attention layer with concatenated heads, or averaged ones in the last layer."""

    def __init__(self, inputs: int, outputs: int, last: bool) -> None:
        super().__init__()
        self.last = last
        columns = outputs if last else outputs // HEADS
        self.attention = GATConv(inputs, columns, HEADS, allow_zero_in_degree=True)

    def forward(self, block: dgl.DGLGraph, x: torch.Tensor) -> torch.Tensor:
        heads = self.attention(block, x)
        return heads.mean(1) if self.last else heads.flatten(1)


def convolution(model: str, hidden: int) -> Convolution:
    """DGL's layer of the network named ``model``."""

    def gin(inputs: int, outputs: int, _: bool) -> nn.Module:
        return GINConv(mlp(inputs, hidden, outputs), "sum")

    def gcn(inputs: int, outputs: int, _: bool) -> nn.Module:
        return GraphConv(inputs, outputs, norm="both", allow_zero_in_degree=True)

    builders: dict[str, Convolution] = {
        "sage": lambda inputs, outputs, _: SAGEConv(inputs, outputs, "mean"),
        "gcn": gcn,
        "gin": gin,
        "gat": Heads,
    }
    return builders[model]


class BlockNetwork(Stack):
    """A network on DGL's blocks, one a layer."""

    def __init__(self, model: str, features: int, hidden: int, classes: int, count: int) -> None:
        super().__init__(model, convolution(model, hidden), features, hidden, classes, count)

    def forward(self, blocks: list[dgl.DGLGraph], x: torch.Tensor) -> torch.Tensor:
        for layer, (conv, block) in enumerate(zip(self.convs, blocks, strict=True)):
            x = self.between(layer, conv(block, x))
        return x


class TypedBlockNetwork(TypedStack):
    """`HeteroGraphConv` on blocks, one per layer, of "sage" or "gat"."""

    def __init__(
        self, model: str, features: int, hidden: int, classes: int, count: int, graph: dgl.DGLGraph
    ) -> None:
        of_relation = convolution(model, hidden)
        super().__init__(
            model,
            lambda *shape: HeteroGraphConv({name: of_relation(*shape) for name in graph.etypes}),
            graph.ntypes,
            *(features, hidden, classes, count),
        )

    def forward(self, blocks: list[dgl.DGLGraph], x: dict[str, Tensor]) -> Tensor:
        for layer, (conv, block) in enumerate(zip(self.convs, blocks, strict=True)):
            x = self.between_types(layer, conv(block, x))
        return x[SEEDS]
