"""A training script as PyG's users write it. Only the import of the loader differs.

    python examples/pyg_dropin.py

It takes a few seconds on one core, on a real graph where one is found, else a generated one.
"""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GraphSAGE

# Before: from torch_geometric.loader import NeighborLoader
from pyg_batchgnn import MacrobatchNeighborLoader as NeighborLoader
from pyg_batchgnn.data import default_dataset

EPOCHS = 5


def train_epoch(model: nn.Module, loader: NeighborLoader, optimiser: torch.optim.Optimizer) -> float:
    """Trains for one epoch and returns the mean loss of the minibatches."""
    model.train()
    losses = []
    for batch in loader:
        optimiser.zero_grad()
        out = model(
            batch.x,
            batch.edge_index,
            num_sampled_nodes_per_hop=batch.num_sampled_nodes,
            num_sampled_edges_per_hop=batch.num_sampled_edges,
        )[: batch.batch_size]
        loss = F.cross_entropy(out, batch.y[: batch.batch_size])
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(model: nn.Module, loader: NeighborLoader) -> float:
    """Returns the share of the loader's nodes that the model classifies correctly."""
    model.eval()
    correct = total = 0
    for batch in loader:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        correct += int((out.argmax(dim=1) == batch.y[: batch.batch_size]).sum())
        total += int(batch.batch_size)
    return correct / total


def main() -> None:
    """Trains GraphSAGE and prints one line per epoch."""
    torch.manual_seed(0)
    dataset = default_dataset()
    print(dataset.name, "-", dataset.source)
    data = dataset.to_pyg()
    loader = NeighborLoader(data, [15, 10], input_nodes=data.train_mask, batch_size=512, shuffle=True)
    test_loader = NeighborLoader(data, [20, 20], input_nodes=data.test_mask, batch_size=1024)
    model = GraphSAGE(dataset.num_features, 64, num_layers=2, out_channels=dataset.num_classes, dropout=0.5)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.003)
    for epoch in range(1, EPOCHS + 1):
        begin = time.perf_counter()
        loss = train_epoch(model, loader, optimiser)
        seconds = time.perf_counter() - begin
        tested = accuracy(model, test_loader)
        print(f"epoch {epoch}  loss {loss:.4f}  test accuracy {tested:.4f}  {seconds:.2f} s")


if __name__ == "__main__":
    main()
