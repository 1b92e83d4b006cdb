"""Trains a native model on native minibatches, and evaluates it on the whole graph.

    python examples/native_layers.py

It takes about ten seconds on one core and downloads nothing.
"""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F

from pyg_batchgnn import MacrobatchNeighborLoader, nn
from pyg_batchgnn.data import load_dataset

EPOCHS = 5


def train_epoch(
    model: nn.NativeModel, loader: MacrobatchNeighborLoader, optimiser: torch.optim.Optimizer
) -> float:
    """Trains for one epoch and returns the mean loss of the minibatches."""
    model.train()
    losses = []
    for minibatch in loader:
        optimiser.zero_grad()
        # The first layer reads the features in place; nothing is gathered.
        logits = model(minibatch)
        loss = F.cross_entropy(logits, minibatch.attribute("y", minibatch.batch_size))
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return sum(losses) / len(losses)


def main() -> None:
    """Trains GraphSAGE and prints one line per epoch."""
    torch.manual_seed(0)
    dataset = load_dataset("generated:nodes=20000,seed=1")
    data = dataset.to_pyg()
    loader = MacrobatchNeighborLoader(
        data, [15, 10], input_nodes=data.train_mask, batch_size=512, shuffle=True, seed=1, export="native"
    )
    model = nn.SAGE(dataset.num_features, 64, 2, dataset.num_classes, dropout=0.5)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.003)
    for epoch in range(1, EPOCHS + 1):
        begin = time.perf_counter()
        loss = train_epoch(model, loader, optimiser)
        seconds = time.perf_counter() - begin
        model.eval()
        with torch.no_grad():
            classes = model(data.x, data.edge_index).argmax(dim=1)  # all nodes at once
        tested = float((classes == data.y)[data.test_mask].float().mean())
        print(f"epoch {epoch}  loss {loss:.4f}  test accuracy {tested:.4f}  {seconds:.2f} s")


if __name__ == "__main__":
    main()
