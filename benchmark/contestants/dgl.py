"""DGL: its neighbour sampler, plain and fused, and a training step on blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import dgl
import torch
from dgl.dataloading import NeighborSampler

from benchmark.networks.dgl import BlockNetwork
from benchmark.networks.recipe import StepTrainer
from benchmark.support.graphs import GraphFolder, seed_lists
from benchmark.support.jobs import Job, Options, WorkDone


def versions() -> dict[str, str]:
    """Returns the versions of the packages that take part."""
    return {"dgl": dgl.__version__}


@cache
def _graph(folder: GraphFolder, dtype: torch.dtype) -> dgl.DGLGraph:
    edges = torch.empty(0, dtype=dtype)  # empty: an edge's id is its position
    return dgl.graph(("csc", (folder.colptr.to(dtype), folder.row.to(dtype), edges)), idtype=dtype)


def _sampler(options: Options, fused: bool) -> NeighborSampler:
    return NeighborSampler(list(reversed(options.fanouts)), fused=fused)  # DGL counts fanouts from the input


def _sampling(fused: bool, dtype: torch.dtype) -> Callable[[Options], Job]:
    def build(options: Options) -> Job:
        folder = GraphFolder.open(options.graph)
        graph, sampler = _graph(folder, dtype), _sampler(options, fused)
        seeds = [s.to(dtype) for s in seed_lists(folder, options.batches, options.batch_size, options.seed)]

        def round_(_: int) -> WorkDone:
            work = WorkDone()
            for batch in seeds:
                nodes, _, blocks = sampler.sample_blocks(graph, batch)
                work.add(nodes.numel(), sum(block.edata[dgl.EID].numel() for block in blocks))
            return work

        return round_

    return build


def training(options: Options) -> Job:
    """Returns a job that samples (fused), fetches features and trains with Adam."""
    folder = GraphFolder.open(options.graph)
    graph, sampler = _graph(folder, torch.int64), _sampler(options, fused=True)
    seeds = seed_lists(folder, options.batches, options.batch_size, options.seed)
    x, y = folder.x, folder.y
    torch.manual_seed(options.seed)
    network = BlockNetwork(options.model, x.size(1), options.hidden, folder.num_classes, len(options.fanouts))
    trainer = StepTrainer(network)

    def round_(_: int) -> WorkDone:
        work = WorkDone()
        for batch in seeds:
            nodes, _, blocks = sampler.sample_blocks(graph, batch)
            features = x[nodes]
            trainer.step(network(blocks, features), y[batch])
            work.add(nodes.numel(), sum(block.num_edges() for block in blocks), features.nbytes)
        return work

    return round_


JOBS: dict[str, Callable[[Options], Job]] = {
    "sampling": _sampling(fused=False, dtype=torch.int64),
    "sampling-fused": _sampling(fused=True, dtype=torch.int64),
    "sampling-32": _sampling(fused=False, dtype=torch.int32),
    "training": training,
}
