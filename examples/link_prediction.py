"""Predicts links of a graph: which pairs of nodes have an edge.

    python examples/link_prediction.py

Edges between the ends of a minibatch's links are left out of its sample, so that the model cannot
see what it is to predict. Negatives are pairs that have no edge. It takes a few seconds on one core
and downloads nothing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

from pyg_batchgnn import MacrobatchLinkNeighborLoader
from pyg_batchgnn.data import load_dataset
from pyg_batchgnn.train import roc_auc

EPOCHS, HELD_OUT = 4, 0.1


def split(data: Data) -> tuple[Data, Tensor, Tensor]:
    """Returns a graph of the training edges, those edges one way, and the edges held out."""
    one_way = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    order = torch.randperm(one_way.size(1), generator=torch.Generator().manual_seed(0))
    held = one_way[:, order[: int(HELD_OUT * order.numel())]]
    kept = one_way[:, order[held.size(1) :]]
    return Data(x=data.x, edge_index=torch.cat([kept, kept.flip(0)], dim=1)), kept, held


def make_loader(data: Data, links: Tensor, shuffle: bool) -> MacrobatchLinkNeighborLoader:
    """Returns a loader of links with as many negatives."""
    return MacrobatchLinkNeighborLoader(
        data,
        [10, 5],
        edge_label_index=links,
        neg_sampling="binary",
        exclude_existing=True,
        exclude_seed_edges="reverse",  # an edge and its reverse say the same
        batch_size=512,
        shuffle=shuffle,
        seed=0,
    )


def scores(model: nn.Module, batch: Data) -> Tensor:
    """Returns the score of each pair of a batch."""
    h = model(batch.x, batch.edge_index)
    source, target = batch.edge_label_index
    out: Tensor = (h[source] * h[target]).sum(dim=1)
    return out


def train_epoch(
    model: nn.Module, loader: MacrobatchLinkNeighborLoader, optimiser: torch.optim.Optimizer
) -> float:
    """Trains for one epoch and returns the mean loss of the minibatches."""
    model.train()
    losses = []
    for batch in loader:
        optimiser.zero_grad()
        loss = F.binary_cross_entropy_with_logits(scores(model, batch), batch.edge_label)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return sum(losses) / len(losses)


@torch.no_grad()
def area(model: nn.Module, loader: MacrobatchLinkNeighborLoader) -> float:
    """Returns the ROC-AUC of the loader's links and negatives."""
    model.eval()
    loader.set_epoch(0)  # the same samples in every evaluation
    found = [(scores(model, batch), batch.edge_label > 0) for batch in loader]
    score, label = (torch.cat(parts) for parts in zip(*found, strict=True))
    return roc_auc(score, label) or 0.0


def main() -> None:
    """Trains GraphSAGE and prints one line per epoch."""
    torch.manual_seed(0)
    data, kept, held = split(load_dataset("generated:nodes=1500,seed=1").to_pyg())
    loader, test_loader = make_loader(data, kept, shuffle=True), make_loader(data, held, shuffle=False)
    model = GraphSAGE(data.num_features, 64, num_layers=2)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(1, EPOCHS + 1):
        loss = train_epoch(model, loader, optimiser)
        print(f"epoch {epoch}  loss {loss:.4f}  test ROC-AUC {area(model, test_loader):.4f}")


if __name__ == "__main__":
    main()
