"""Trains a typed model on papers and their authors, who have no features but learned ones.

    python examples/typed_graph.py

Only the import of the loader differs from a script for PyG. It takes a few seconds on one core and
downloads nothing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv
from torch_geometric.transforms import ToUndirected

# Before: from torch_geometric.loader import NeighborLoader
from pyg_batchgnn import MacrobatchNeighborLoader as NeighborLoader
from pyg_batchgnn.data import load_dataset

AUTHORS, HIDDEN, EPOCHS = 400, 32, 4


def make_data() -> HeteroData:
    """Returns papers that cite each other, and authors who mostly write about one subject."""
    papers = load_dataset("generated:nodes=1500,seed=0").to_pyg()
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    for name in ("x", "y", "train_mask", "val_mask", "test_mask"):
        data["paper"][name] = papers[name]
    data["author"].num_nodes = AUTHORS
    data["paper", "cites", "paper"].edge_index = papers.edge_index
    written = torch.arange(papers.num_nodes).repeat(2)
    groups = AUTHORS // (int(papers.y.max()) + 1)
    writer = papers.y[written] * groups + torch.randint(groups, written.shape, generator=generator)
    anybody = torch.randint(AUTHORS, written.shape, generator=generator)
    writer = torch.where(torch.rand(written.shape, generator=generator) < 0.2, anybody, writer)
    data["author", "writes", "paper"].edge_index = torch.stack([writer, written])
    typed: HeteroData = ToUndirected(merge=False)(data)  # adds the reverse of each relation
    return typed


class Network(nn.Module):
    """Two layers of GraphSAGE per relation."""

    def __init__(self, data: HeteroData) -> None:
        super().__init__()
        self.authors = nn.Embedding(AUTHORS, HIDDEN)
        self.layers = nn.ModuleList(
            HeteroConv({relation: SAGEConv((-1, -1), HIDDEN) for relation in data.edge_types})
            for _ in range(2)
        )
        self.out = nn.Linear(HIDDEN, int(data["paper"].y.max()) + 1)

    def forward(self, batch: HeteroData) -> Tensor:
        """Returns [S, C], one row per seed paper."""
        x = {"paper": batch["paper"].x, "author": self.authors(batch["author"].n_id)}
        for layer in self.layers:
            x = {name: rows.relu() for name, rows in layer(x, batch.edge_index_dict).items()}
        out: Tensor = self.out(x["paper"][: batch["paper"].batch_size])
        return out


def train_epoch(model: Network, loader: NeighborLoader, optimiser: torch.optim.Optimizer) -> float:
    """Trains for one epoch and returns the mean loss of the minibatches."""
    model.train()
    losses = []
    for batch in loader:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(batch), batch["paper"].y[: batch["paper"].batch_size])
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(model: Network, loader: NeighborLoader) -> float:
    """Returns the share of the loader's papers that the model classifies correctly."""
    model.eval()
    correct = total = 0
    for batch in loader:
        y = batch["paper"].y[: batch["paper"].batch_size]
        correct += int((model(batch).argmax(dim=1) == y).sum())
        total += len(y)
    return correct / total


def main() -> None:
    """Trains, and prints one line per epoch."""
    torch.manual_seed(0)
    data = make_data()
    fanouts = {relation: [8, 4] if "cites" in relation[1] else [5, 3] for relation in data.edge_types}
    loader = NeighborLoader(
        data, fanouts, ("paper", data["paper"].train_mask), batch_size=128, shuffle=True, seed=0
    )
    test_loader = NeighborLoader(data, fanouts, ("paper", data["paper"].test_mask), batch_size=512, seed=0)
    model = Network(data)
    with torch.no_grad():
        model(next(iter(test_loader)))  # PyG's layers learn their input widths from a batch
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(1, EPOCHS + 1):
        loss = train_epoch(model, loader, optimiser)
        print(f"epoch {epoch}  loss {loss:.4f}  test accuracy {accuracy(model, test_loader):.4f}")


if __name__ == "__main__":
    main()
