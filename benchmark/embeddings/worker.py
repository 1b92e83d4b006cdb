"""One rank, started by `World`: times the embedding part of training steps, side by side.

All sides work on the same nodes: the minibatches of a loader over ranks, sampled in advance.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from benchmark.ranks.worker import answer_with
from pyg_batchgnn import MacrobatchNeighborLoader, ops
from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.data import load_dataset
from pyg_batchgnn.embed import Embedding, EmbeddingOptimizer, SparseAdam
from pyg_batchgnn.partition import partition
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore

#: Makes one step of a side, given its number.
MakeStep = Callable[[int], None]
HEADER = Header(MessageKind.CONTROL)


class Ours:
    """Tables that are spread over ranks."""

    def __init__(self, data: Any, columns: int, steps: int, loading: dict[str, Any]) -> None:
        self.embedding = Embedding(data, columns)
        self.loader = MacrobatchNeighborLoader(data, embedding=self.embedding, **loading)
        self.optimizer = EmbeddingOptimizer(self.embedding, SparseAdam(lr=0.01))
        self.batches = [batch for _, batch in zip(range(steps), self.loader, strict=False)]

    def step(self, number: int, gradient: Tensor) -> None:
        """Reads rows, takes their gradient and starts the update."""
        rows = self.embedding(self.batches[number])["node"]
        rows.backward(gradient)
        self.optimizer.step()
        if number + 1 == len(self.batches):
            self.embedding.synchronize()

    def limit(self, comm: Communicator) -> Callable[[int], None]:
        """Returns what a step needs at least: both exchanges, one gathering, one random update."""
        table = self.embedding.table_of()
        plans = [self.embedding._steps[batch].plan.tables[0] for batch in self.batches]
        largest = max(max(len(plan.served), sum(plan.asked), len(plan.source)) for plan in plans)
        buffer = torch.rand(largest, table.columns)

        def step(number: int) -> None:
            plan = plans[number]
            ops.gather_rows(table.weight, plan.source.clamp(min=0))
            comm.exchange(buffer[: len(plan.served)], plan.served_counts, HEADER, ops.empty)
            comm.exchange(buffer[: sum(plan.asked)], plan.asked, HEADER, ops.empty)
            row = plan.changes.row
            near = ops.RowGradients(buffer[: len(row)], [buffer[:0]], [0], [1.0], 0)
            each = torch.arange(len(row) + 1)
            rule = SparseAdam(lr=0.0).at(1)
            ops.update_rows(table.rows, ops.RowChanges(row, each, each[:-1]), near, rule)

        return step


class Torchs:
    """torch's module, of which every rank holds all rows, under DistributedDataParallel."""

    def __init__(self, nodes: int, columns: int, sparse: bool) -> None:
        module = nn.Embedding(nodes, columns, sparse=sparse)
        self.model = DistributedDataParallel(module, gradient_as_bucket_view=True)
        parameters = module.parameters()
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.SparseAdam(parameters, lr=0.01) if sparse else torch.optim.Adam(parameters, lr=0.01)
        )

    def step(self, node: Tensor, gradient: Tensor) -> None:
        """Looks rows up, sums their gradients over ranks and updates all replicas."""
        self.optimizer.zero_grad()
        self.model(node).backward(gradient)
        self.optimizer.step()


def steps(comm: Communicator, options: dict[str, Any]) -> dict[str, Any]:
    """Measures this package's side and one of torch's, ``options["side"]``, in turns.

    The nodes of each minibatch are written to the file ``options["nodes"]``, where another
    package's side finds them.
    """
    torch.set_num_threads(options["threads"])
    with Communicator.create("graph") as graph:
        dataset = load_dataset(options["dataset"]).without_attributes()
        part = partition(dataset, options["policy"], comm=graph, seed=0)
        data = DistFeatureStore(part, graph), DistGraphStore(part, graph)
        loading = {
            "num_neighbors": options["fanouts"],
            "input_nodes": "train",
            "batch_size": options["batch_size"],
            "shuffle": True,
            "seed": 0,
            "export": "native",
            "attributes": [],
            "macrobatch_size": options["steps"],
        }
        ours = Ours(data, options["columns"], options["steps"], loading)
        nodes = [batch.node for batch in ours.batches]
        np.savez(options["nodes"].format(rank=comm.rank), *(node.numpy() for node in nodes))
        gradient = torch.rand(max(map(len, nodes)), options["columns"])
        gradients = [gradient[: len(node)] for node in nodes]
        sides: dict[str, MakeStep] = {
            "ours": lambda number: ours.step(number, gradients[number]),
            "limit": ours.limit(comm),
        }
        if name := options["side"]:
            sides[name] = torchs_step(
                dataset.num_nodes, options["columns"], name == "sparse", nodes, gradients
            )
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(1 + options["rounds"]):
            for name, step in sides.items():
                taken = timed(step, comm, len(nodes))
                if turn:  # the first is not measured
                    seconds[name].append(taken)
        plans = [ours.embedding._steps[batch].plan.tables[0] for batch in ours.batches]
        counts = {
            "nodes": statistics.mean(len(node) for node in nodes),
            "remote": statistics.mean(sum(plan.asked) for plan in plans),
            "changed": statistics.mean(len(plan.changes.row) for plan in plans),
        }
        return {
            "seconds": seconds,
            "counts": counts,
            "steps": len(nodes),
            "num_nodes": dataset.num_nodes,
        }


def torchs_step(
    num_nodes: int, columns: int, sparse: bool, nodes: list[Tensor], gradients: list[Tensor]
) -> MakeStep:
    """Returns the step of one of torch's sides."""
    side = Torchs(num_nodes, columns, sparse)
    return lambda number: side.step(nodes[number], gradients[number])


def timed(step: MakeStep, comm: Communicator, steps: int) -> float:
    """Returns the seconds per step of the slowest rank."""
    comm.barrier()
    begun = time.perf_counter()
    for number in range(steps):
        step(number)
    slowest: float = comm.max(time.perf_counter() - begun)
    return slowest / steps


if __name__ == "__main__":
    answer_with({"steps": steps}, *sys.argv[1:])
