"""Training scripts over a typed graph with times, of which a rank may be killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.comm import CommError, Communicator
from tests.support.hetero_cases import CITES, COUNTS, REV_WRITES, WRITES
from tests.support.rank_graphs import GRAPHS, arguments_of, stores_of

WIDTH, CLASSES, EPOCHS = 8, 4, 2


class Network(nn.Module):
    """Two layers of PyG's GraphSAGE by relation; authors have learned rows."""

    def __init__(self) -> None:
        super().__init__()
        self.authors, self.papers = nn.Embedding(COUNTS["author"], WIDTH), nn.Linear(3, WIDTH)
        self.layers = nn.ModuleList(
            HeteroConv({name: SAGEConv((WIDTH, WIDTH), WIDTH) for name in (CITES, WRITES, REV_WRITES)})
            for _ in range(2)
        )
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, batch: HeteroData) -> dict[str, Tensor]:
        x = {"paper": self.papers(batch["paper"].x / 100), "author": self.authors(batch["author"].n_id)}
        for layer in self.layers:
            x = {name: rows.relu() for name, rows in layer(x, batch.edge_index_dict).items()}
        return x


@dataclass
class Task:
    """The loader of a script, and the sum of the losses of a minibatch."""

    loader: Any
    loss: Callable[[Network, HeteroData], Tensor]


def nodes(comm: Communicator) -> Task:
    """Returns the task of classifying papers."""

    def loss(network: Network, batch: HeteroData) -> Tensor:
        count = batch["paper"].batch_size
        scores = network.out(network(batch)["paper"][:count])
        return F.cross_entropy(scores, batch["paper"].y[:count] % CLASSES, reduction="sum")

    both = stores_of(comm, GRAPHS["typed"], "random")
    arguments = arguments_of("typed", "last", "one")
    return Task(MacrobatchNeighborLoader(both, **arguments, macrobatch_size=2, prefetch=1), loss)


def links(comm: Communicator) -> Task:
    """Returns the task of telling who writes a paper from who does not, then."""

    def loss(network: Network, batch: HeteroData) -> Tensor:
        x, (author, paper) = network(batch), batch[WRITES].edge_label_index
        scores = (x["author"][author] * x["paper"][paper]).sum(1)
        losses = F.binary_cross_entropy_with_logits(scores, batch[WRITES].edge_label, reduction="none")
        return losses.sum()

    index = GRAPHS["typed"][WRITES].edge_index[:, ::3]
    loader = MacrobatchLinkNeighborLoader(
        stores_of(comm, GRAPHS["typed"], "random"),
        [3, 2],
        (WRITES, index),
        neg_sampling="binary",
        exclude_existing=True,
        exclude_seed_edges={WRITES: REV_WRITES},
        time_attr="time",
        edge_label_time=torch.arange(index.size(1)) % 7 + 3,
        batch_size=5,
        shuffle=True,
        seed=2,
        macrobatch_size=2,
        prefetch=1,
    )
    return Task(loader, loss)


TASKS = {"nodes": nodes, "links": links}


def train(folder: str, task: str, kill_at: int | None = None) -> str:
    """Trains and writes a checkpoint after every second step; goes on from one that is there.

    Args:
        folder: of the checkpoint, and of the weights at the end.
        task: the name of the task.
        kill_at: the step after which the second rank dies.

    Returns:
        The error of a rank that lost its peer, or nothing.
    """
    try:
        with Communicator.create("graph", timeout=8) as graph, Communicator.create("train") as comm:
            _train(Path(folder), TASKS[task](graph), comm, kill_at)
    except CommError as error:
        return str(error)
    return ""


def _train(folder: Path, task: Task, comm: Communicator, kill_at: int | None) -> None:
    loader = task.loader
    torch.manual_seed(0)
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    checkpoint, step = folder / "checkpoint.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(json.loads(state["places"])[comm.rank])
    while loader.upcoming_epoch < EPOCHS:
        for batch in loader:
            optimizer.zero_grad()
            (task.loss(network, batch) * loader.loss_weight).backward()
            _average(network, comm)
            optimizer.step()
            step += 1
            if step % 2 == 0:
                places = comm.all_gather_json(loader.state_dict())
                state = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}
                if comm.rank == 0:
                    torch.save({**state, "places": json.dumps(places)}, checkpoint)
            if step == kill_at and comm.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    if comm.rank == 0:
        torch.save(network.state_dict(), folder / "weights.pt")


def _average(network: nn.Module, comm: Communicator) -> None:
    """Averages gradients over ranks; a type that no minibatch reaches has none."""
    parameters = list(network.parameters())
    own = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
    summed = comm.all_reduce(torch.cat([one.flatten() for one in own])) / comm.size
    for one, grad in zip(parameters, summed.split([one.numel() for one in parameters]), strict=True):
        one.grad = grad.view_as(one).clone()
