"""Trains a message passing layer of one's own on native minibatches of a typed graph.

    python examples/own_layer.py

`minibatch.layer` gives what PyG's `MessagePassing` takes. It takes a few seconds on one core and
downloads nothing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.nn import Linear, MessagePassing

from pyg_batchgnn import MacrobatchNeighborLoader, Minibatch
from pyg_batchgnn.data import load_dataset

HIDDEN, EPOCHS = 32, 4


class GatedConv(MessagePassing):
    """Sums of neighbours, each weighed by a gate that looks at both ends."""

    def __init__(self, out_channels: int) -> None:
        super().__init__(aggr="mean")
        self.value = Linear(-1, out_channels)
        self.gate = Linear(-1, 1)
        self.own = Linear(-1, out_channels)

    def forward(self, x: tuple[Tensor, Tensor], edge_index: Tensor) -> Tensor:
        """Returns [D, out_channels] from rows of sources and of targets."""
        out: Tensor = self.propagate(edge_index, x=x, value=(self.value(x[0]), None))
        return out + self.own(x[1])

    def message(self, x_i: Tensor, x_j: Tensor, value_j: Tensor) -> Tensor:
        """Returns what goes along the edges."""
        gate: Tensor = self.gate(torch.cat([x_i, x_j], dim=1)).sigmoid()
        return gate * value_j


class Network(torch.nn.Module):
    """Two layers, with a convolution per relation."""

    def __init__(self, data: HeteroData, classes: int) -> None:
        super().__init__()
        self.relations = data.edge_types
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleList(GatedConv(width) for _ in self.relations) for width in (HIDDEN, classes)
        )

    def forward(self, minibatch: Minibatch) -> Tensor:
        """Returns [S, classes], one row per seed paper."""
        x: dict[str, Tensor] | None = None
        for number, convs in enumerate(self.layers, 1):
            found: dict[str, Tensor] = {}
            for relation, conv in zip(self.relations, convs.children(), strict=True):
                layer = minibatch.layer(number, relation)
                out = conv(layer.rows(x), layer.edge_index)
                found[relation[2]] = found[relation[2]] + out if relation[2] in found else out
            x = found if number == len(self.layers) else {name: one.relu() for name, one in found.items()}
        assert x is not None
        return x["paper"]


def make_data() -> HeteroData:
    """Returns papers that cite each other, under two relations."""
    papers = load_dataset("generated:nodes=1500,seed=0").to_pyg()
    data = HeteroData()
    for name in ("x", "y", "train_mask", "test_mask"):
        data["paper"][name] = papers[name]
    data["paper", "cites", "paper"].edge_index = papers.edge_index
    data["paper", "cited_by", "paper"].edge_index = papers.edge_index.flip(0)
    return data


def run(model: Network, loader: MacrobatchNeighborLoader, optimiser: torch.optim.Optimizer | None) -> float:
    """Returns the accuracy of one epoch; trains if there is an optimiser."""
    right, seen = 0, 0
    for minibatch in loader:
        target = minibatch.attribute("y", minibatch.batch_size)
        logits = model(minibatch)
        if optimiser is not None:
            optimiser.zero_grad()
            F.cross_entropy(logits, target).backward()
            optimiser.step()
        right += int((logits.argmax(dim=1) == target).sum())
        seen += len(target)
    return right / seen


def main() -> None:
    """Trains and prints one line per epoch."""
    torch.manual_seed(0)
    data = make_data()
    loaders = [
        MacrobatchNeighborLoader(
            data, [10, 5], input_nodes=("paper", mask), batch_size=128, seed=0, export="native"
        )
        for mask in (data["paper"].train_mask, data["paper"].test_mask)
    ]
    model = Network(data, int(data["paper"].y.max()) + 1)
    with torch.no_grad():
        model(next(iter(loaders[0])))  # the widths come from the first call
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(1, EPOCHS + 1):
        trained = run(model.train(), loaders[0], optimiser)
        with torch.no_grad():
            tested = run(model.eval(), loaders[1], None)
        print(f"epoch {epoch}  training accuracy {trained:.4f}  test accuracy {tested:.4f}")


if __name__ == "__main__":
    main()
