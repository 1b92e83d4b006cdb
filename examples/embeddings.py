"""Learns a row for every node of a graph without features, over several ranks.

    torchrun --standalone --nproc-per-node=2 examples/embeddings.py

Each rank holds the rows of the nodes that it owns. The model is trained under
DistributedDataParallel. Started without torchrun it is one rank. It takes a few seconds.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pyg_batchgnn import (
    Communicator,
    DistFeatureStore,
    DistGraphStore,
    MacrobatchNeighborLoader,
    Minibatch,
)
from pyg_batchgnn.data import load_dataset
from pyg_batchgnn.embed import Embedding, EmbeddingOptimizer, SparseAdam
from pyg_batchgnn.nn import SAGE
from pyg_batchgnn.partition import partition

COLUMNS, HIDDEN, EPOCHS = 32, 32, 4


class Network(nn.Module):
    """A model that reads learned rows alone."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layers = SAGE(COLUMNS, HIDDEN, 2, classes)

    def forward(self, batch: Minibatch, rows: Tensor) -> Tensor:
        """Returns [S, C], one row per seed node."""
        out: Tensor = self.layers(batch, x=rows)
        return out


def main() -> None:
    """Trains, and prints one line per epoch on the first rank."""
    dataset = load_dataset("generated:nodes=2000,seed=0")
    with Communicator.create("graph") as graph, Communicator.create("training") as comm:
        part = partition(dataset, "ldg", comm=graph, seed=0)
        data = DistFeatureStore(part, graph), DistGraphStore(part, graph)
        embedding = Embedding(data, COLUMNS, seed=0)

        def make_loader(split: str) -> MacrobatchNeighborLoader:
            return MacrobatchNeighborLoader(
                data,
                [10, 5],
                input_nodes=split,
                batch_size=64,
                shuffle=split == "train",
                seed=0,
                export="native",
                attributes=["y"],
                embedding=embedding,
            )

        loader, test_loader = make_loader("train"), make_loader("test")
        torch.manual_seed(0)
        network = Network(dataset.num_classes)
        model = DistributedDataParallel(network) if comm.size > 1 else network
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
        rows_optimizer = EmbeddingOptimizer(embedding, SparseAdam(lr=0.02))
        for epoch in range(1, EPOCHS + 1):
            loss, seeds = 0.0, 0
            for batch in loader:
                y = batch.y[: batch.batch_size]
                own = F.cross_entropy(model(batch, embedding(batch)["node"]), y, reduction="sum")
                optimizer.zero_grad()
                (own * loader.loss_weight).backward()  # every seed node of the step weighs the same
                rows_optimizer.step()  # runs beside the line below
                optimizer.step()
                loss, seeds = loss + own.item(), seeds + batch.batch_size
            correct = total = 0
            test_loader.set_epoch(0)
            with torch.no_grad():
                for batch in test_loader:
                    y = batch.y[: batch.batch_size]
                    correct += int((network(batch, embedding(batch)["node"]).argmax(dim=1) == y).sum())
                    total += len(y)
            mean = comm.sum(loss) / comm.sum(seeds)
            accuracy = comm.sum(correct) / comm.sum(total)
            if comm.rank == 0:
                print(f"epoch {epoch}  loss {mean:.4f}  test accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
