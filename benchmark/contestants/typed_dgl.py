"""DGL: steps of typed networks on blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import dgl
import torch
from dgl.dataloading import NeighborSampler

from benchmark.contestants.dgl import versions
from benchmark.networks.recipe import StepTrainer
from benchmark.networks.typed_dgl import TypedBlockNetwork
from benchmark.support.jobs import Job, Options, WorkDone
from benchmark.support.mag import CLASSES, FEATURES, SEEDS, TypedFolder

__all__ = ["JOBS", "versions"]


@cache
def _graph(folder: TypedFolder) -> dgl.DGLGraph:
    edges = {names: (one[0], one[1]) for names, one in folder.edges.items()}
    return dgl.heterograph(edges, num_nodes_dict=folder.num_nodes).formats("csc")


def _typed(options: Options) -> Job:
    """Returns a job that samples, fetches features and trains with Adam."""
    folder = TypedFolder.open(options.typed_graph)
    graph, sampler = _graph(folder), NeighborSampler(list(reversed(options.fanouts)))
    papers = folder.seeds(options.batches * options.batch_size, options.seed)
    x, y = folder.features, folder.y
    torch.manual_seed(options.seed)
    shape = (FEATURES, options.hidden, CLASSES, len(options.fanouts))
    network = TypedBlockNetwork(options.model, *shape, graph)
    trainer = StepTrainer(network)

    def round_(_: int) -> WorkDone:
        work = WorkDone()
        for seeds in papers.split(options.batch_size):
            nodes, _, blocks = sampler.sample_blocks(graph, {SEEDS: seeds})
            features = {name: x[name][ids] for name, ids in nodes.items()}
            trainer.step(network(blocks, features), y[seeds])
            work.add(sum(map(len, nodes.values())), sum(block.num_edges() for block in blocks))
        return work

    return round_


JOBS: dict[str, Callable[[Options], Job]] = {"typed": _typed}
