"""This project: the macrobatch sampler, the loader, and PyG's convolutions applied to prefixes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch_geometric
from torch_geometric.data import Data

import pyg_batchgnn
from graphs import GraphFolder, seed_lists
from jobs import Job, Options, Work
from models import Trainer
from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.sample import Layout, MacrobatchSampler, SamplingPlan
from pyg_batchgnn.store import CscGraph
from pyg_batchgnn.train.models import SAGE

DEFAULT_MACROBATCH = 8


def versions() -> dict[str, str]:
    """What takes part."""
    return {"pyg_batchgnn": pyg_batchgnn.__version__, "torch_geometric": torch_geometric.__version__}


def _macrobatches(lists: list[torch.Tensor], size: int) -> Iterator[list[torch.Tensor]]:
    for start in range(0, len(lists), size):
        yield lists[start : start + size]


def _sampling(layout: Layout) -> Callable[[Options], Job]:
    def build(options: Options) -> Job:
        folder = GraphFolder.open(options.graph)
        # 4-byte ids where the graph has fewer than 2**31 nodes, as the loader stores them
        graph = CscGraph.from_csc(folder.colptr, folder.row.to(torch.int32)).advise_huge_pages()
        plan = SamplingPlan(options.fanouts)
        sampler = MacrobatchSampler(graph, plan, options.seed, options.threads, layout)
        lists = seed_lists(folder, options.batches, options.batch_size, options.seed)
        size = options.macrobatch or DEFAULT_MACROBATCH

        def round_(number: int) -> Work:
            work = Work()
            for some in _macrobatches(lists, size):
                for minibatch in sampler.sample(some, number):
                    work.add(minibatch.num_nodes, minibatch.num_edges)
            return work

        return round_

    return build


def loader(options: Options, graph: GraphFolder) -> Any:
    """The drop-in loader with its own choice of macrobatch size, unless the options name one."""
    return MacrobatchNeighborLoader(
        Data(x=graph.x, edge_index=graph.edge_index, y=graph.y),
        num_neighbors=list(options.fanouts),
        input_nodes=graph.seeds(options.batches * options.batch_size, options.seed),
        batch_size=options.batch_size,
        is_sorted=True,
        seed=options.seed,
        threads=options.threads,
        macrobatch_size=options.macrobatch or "auto",
    )


def loading(options: Options) -> Job:
    """Iterate the loader, features and labels included, and let each minibatch go."""
    batches = loader(options, GraphFolder.open(options.graph))

    def round_(_: int) -> Work:
        work = Work()
        for batch in batches:
            work.add(batch.num_nodes, batch.num_edges, batch.x.nbytes)
        return work

    return round_


def training(options: Options) -> Job:
    """The same step as the peers': loader, prefixes, forward, backward, Adam."""
    graph = GraphFolder.open(options.graph)
    batches = loader(options, graph)
    torch.manual_seed(options.seed)
    network = SAGE(graph.x.size(1), options.hidden, graph.num_classes, len(options.fanouts))
    trainer = Trainer(network)

    def round_(_: int) -> Work:
        work = Work()
        for batch in batches:
            logits = network(batch.x, batch.edge_index, batch.num_sampled_nodes, batch.num_sampled_edges)
            trainer.step(logits, batch.y[: batch.batch_size])
            work.add(batch.num_nodes, batch.num_edges, batch.x.nbytes)
        return work

    return round_


JOBS: dict[str, Callable[[Options], Job]] = {
    "sampling": _sampling(Layout.COO),
    "sampling-csc": _sampling(Layout.CSC),
    "loading": loading,
    "training": training,
}
