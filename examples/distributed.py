"""Trains a model of your own on a `Data` of your own, over several ranks.

    torchrun --standalone --nproc-per-node=2 examples/distributed.py --folder runs/distributed

The graph has several attributes of nodes, a weight of each edge and several labels per node. The
script partitions it, trains under DistributedDataParallel, evaluates, writes checkpoints, and
continues from the last one when it is started again. Started without torchrun it is one rank.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv

from pyg_batchgnn import Communicator, DistFeatureStore, DistGraphStore, MacrobatchNeighborLoader
from pyg_batchgnn.data import NODES, from_pyg, load_dataset
from pyg_batchgnn.partition import Part, is_partition, load_partition, partition, save_partition
from pyg_batchgnn.train import roc_auc

KINDS, LABELS = 4, 3


def make_data() -> Data:
    """Returns the graph. Put your own here."""
    data = load_dataset("generated:nodes=6000,seed=0").to_pyg()
    generator = torch.Generator().manual_seed(0)
    classes, data.y = data.y, torch.stack([data.y % 2 == 0, data.y > 7, data.y == 3], dim=1)
    data.kind = (classes + torch.randint(3, classes.shape, generator=generator)) % KINDS
    data.edge_weight = torch.rand(data.num_edges, generator=generator)
    return data


class Network(nn.Module):
    """A model of PyG's layers. It reads two attributes of nodes, and the weights of edges."""

    def __init__(self, features: int, hidden: int = 32) -> None:
        super().__init__()
        self.kind = nn.Embedding(KINDS, 8)
        self.first = GraphConv(features + 8, hidden, aggr="mean")
        self.second = GraphConv(hidden, LABELS, aggr="mean")

    def forward(self, batch: Data) -> Tensor:
        """Returns [S, LABELS], one row per seed node."""
        x = torch.cat([batch.x, self.kind(batch.kind)], dim=1)
        x = self.first(x, batch.edge_index, batch.edge_weight).relu()
        out: Tensor = self.second(x, batch.edge_index, batch.edge_weight)
        return out[: batch.batch_size]


def own_part(folder: Path, comm: Communicator) -> Part:
    """Returns this rank's part of the graph, which is partitioned at the first start."""
    if not comm.all_gather_json(is_partition(folder))[0]:  # the first rank decides for all
        dataset = from_pyg(make_data(), name="mine")
        save_partition(partition(dataset, "ldg", comm=comm, seed=0), folder, comm)
    return load_partition(folder, comm)


class Training:
    """The model, its optimizer and its loaders on one rank.

    Args:
        part: this rank's part of the graph.
        graph: the communicator of the stores and loaders.
        comm: the communicator of evaluation and checkpoints.
    """

    def __init__(self, part: Part, graph: Communicator, comm: Communicator) -> None:
        self.comm = comm
        self.data = DistFeatureStore(part, graph), DistGraphStore(part, graph)
        self.loader = self.make_loader("train", batch_size=128, shuffle=True)
        self.val_loader = self.make_loader("val", batch_size=512, schedule="global")
        torch.manual_seed(0)
        self.network = Network(features=part.attributes[NODES]["x"].shape[1])
        self.model = DistributedDataParallel(self.network) if comm.size > 1 else self.network
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def make_loader(self, split: str, **options: Any) -> MacrobatchNeighborLoader:
        """Makes a loader of the nodes of a split; collective."""
        return MacrobatchNeighborLoader(self.data, [10, 5], input_nodes=split, seed=0, **options)

    def step(self, batch: Data) -> float:
        """Trains on this rank's minibatch. Returns the sum of the losses of its seed nodes."""
        y = batch.y[: batch.batch_size].float()
        loss = F.binary_cross_entropy_with_logits(self.model(batch), y, reduction="sum") / LABELS
        self.optimizer.zero_grad()
        (loss * self.loader.loss_weight).backward()  # every seed node of the step weighs the same
        self.optimizer.step()
        return loss.item()

    def evaluate(self) -> float:
        """Returns the mean ROC-AUC of the validation nodes of all ranks, over the labels that have
        one."""
        scores, labels = [torch.empty(0, LABELS)], [torch.empty(0, LABELS, dtype=torch.bool)]
        self.network.eval()
        self.val_loader.set_epoch(0)  # the same samples in every evaluation
        with torch.no_grad():
            for batch in self.val_loader:
                scores.append(self.network(batch))
                labels.append(batch.y[: batch.batch_size])
        self.network.train()
        all_scores = self.comm.all_gather(torch.cat(scores)).rows
        all_labels = self.comm.all_gather(torch.cat(labels)).rows
        areas = [roc_auc(all_scores[:, label], all_labels[:, label]) for label in range(LABELS)]
        # Labels without positive or without negative nodes have none.
        defined = [area for area in areas if area is not None]
        return sum(defined) / len(defined) if defined else float("nan")

    def save(self, path: Path) -> None:
        """Writes a checkpoint. Each rank has a place of its own in the epoch."""
        places = self.comm.all_gather_json(self.loader.state_dict())
        if self.comm.rank == 0:
            state = {
                "model": self.network.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "places": json.dumps(places),
            }
            temporary = path.with_suffix(".tmp")
            torch.save(state, temporary)
            temporary.replace(path)  # a reader sees the old checkpoint or the new one

    def resume(self, path: Path) -> None:
        """Continues from a checkpoint, with the minibatches that were left."""
        state = torch.load(path, weights_only=True)
        self.network.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(json.loads(state["places"])[self.comm.rank])


def main() -> None:
    """Trains, and prints one line per epoch on the first rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the parts and the checkpoint")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--stop-after", type=int, help="stop after this many steps, to see it resume")
    options = parser.parse_args()
    with Communicator.create("graph") as graph, Communicator.create("training") as comm:
        training = Training(own_part(options.folder / "parts", graph), graph, comm)
        checkpoint = options.folder / "checkpoint.pt"
        if comm.all_gather_json(checkpoint.exists())[0]:
            training.resume(checkpoint)
        steps, loader = 0, training.loader
        while loader.upcoming_epoch < options.epochs:
            epoch, loss, seeds = loader.upcoming_epoch, 0.0, 0
            for batch in loader:
                loss += training.step(batch)
                seeds += batch.batch_size
                steps += 1
                if steps == options.stop_after:
                    training.save(checkpoint)
                    return
            area, total, trained = training.evaluate(), comm.sum(loss), comm.sum(seeds)
            training.save(checkpoint)
            if comm.rank == 0:
                print(f"epoch {epoch}: loss {total / trained:.4f}, validation ROC-AUC {area:.4f}")


if __name__ == "__main__":
    main()
