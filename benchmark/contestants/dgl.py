"""DGL: its neighbour samplers, and training steps on blocks.

It has no loader by times, and links are left to PyG.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import dgl
import torch
from dgl.dataloading import LaborSampler, NeighborSampler

from benchmark.networks.dgl import BlockNetwork, TypedBlockNetwork
from benchmark.networks.recipe import StepTrainer
from benchmark.support.graphs import GraphFolder, edge_weights, seed_lists
from benchmark.support.jobs import Counts, Job, MakeJob, Options, by_work, each
from benchmark.support.mag import CLASSES, FEATURES, SEEDS, TypedFolder


def versions() -> dict[str, str]:
    return {"dgl": dgl.__version__}


@cache
def _graph(folder: GraphFolder) -> dgl.DGLGraph:
    edges = torch.empty(0, dtype=torch.int64)  # empty: an edge's id is its position
    return dgl.graph(("csc", (folder.colptr.long(), folder.row.long(), edges)))


@cache
def _typed_graph(folder: TypedFolder) -> dgl.DGLGraph:
    edges = {names: (one[0], one[1]) for names, one in folder.edges.items()}
    return dgl.heterograph(edges, num_nodes_dict=folder.num_nodes).formats("csc")


def _sampler(options: Options, **how: Any) -> NeighborSampler:
    return NeighborSampler(list(reversed(options.fanouts)), **how)  # DGL counts fanouts from the input


def _samples(graph: dgl.DGLGraph, sampler: NeighborSampler, seeds: Iterable[Any]) -> Job:

    def step(batch: Any) -> Counts:
        nodes, _, blocks = sampler.sample_blocks(graph, batch)
        found = nodes.values() if isinstance(nodes, dict) else [nodes]
        return sum(map(len, found)), sum(block.num_edges() for block in blocks)

    return each(seeds, step)


def _sampling(kind: Any, **how: Any) -> MakeJob:
    def build(options: Options) -> Job:
        folder = GraphFolder.open(options.graph)
        sampler = kind(list(reversed(options.fanouts)), **how)
        return _samples(_graph(folder), sampler, seed_lists(folder, options))

    return build


def _typed_sampling(options: Options) -> Job:
    folder = TypedFolder.open(options.typed_graph)
    seeds = [{SEEDS: ids} for ids in seed_lists(folder, options)]
    return _samples(_typed_graph(folder), _sampler(options), seeds)


def _weighted(options: Options) -> Job:
    folder = GraphFolder.open(options.graph)
    graph = _graph(folder).clone()
    graph.edata["weight"] = edge_weights(folder, options.seed)
    return _samples(graph, _sampler(options, prob="weight"), seed_lists(folder, options))


def _training(options: Options) -> Job:
    """Returns a job that samples (fused), fetches features and trains with Adam."""
    folder = GraphFolder.open(options.graph)
    graph, sampler, x, y = _graph(folder), _sampler(options, fused=True), folder.x, folder.y
    torch.manual_seed(options.seed)
    network = BlockNetwork(options.model, x.size(1), options.hidden, folder.num_classes, len(options.fanouts))
    trainer = StepTrainer(network)

    def step(batch: torch.Tensor) -> Counts:
        nodes, _, blocks = sampler.sample_blocks(graph, batch)
        features = x[nodes]
        trainer.step(network(blocks, features), y[batch])
        return nodes.numel(), sum(block.num_edges() for block in blocks), features.nbytes

    return each(seed_lists(folder, options), step)


def _typed_training(options: Options) -> Job:
    folder = TypedFolder.open(options.typed_graph)
    graph, sampler, x, y = _typed_graph(folder), _sampler(options), folder.features, folder.y
    torch.manual_seed(options.seed)
    shape = (FEATURES, options.hidden, CLASSES, len(options.fanouts))
    network = TypedBlockNetwork(options.model, *shape, graph)
    trainer = StepTrainer(network)

    def step(seeds: torch.Tensor) -> Counts:
        nodes, _, blocks = sampler.sample_blocks(graph, {SEEDS: seeds})
        features = {name: x[name][ids] for name, ids in nodes.items()}
        trainer.step(network(blocks, features), y[seeds])
        return sum(map(len, nodes.values())), sum(block.num_edges() for block in blocks)

    return each(seed_lists(folder, options), step)


JOBS: dict[str, MakeJob] = {
    "sampling": _sampling(NeighborSampler, fused=False),
    "sampling-fused": _sampling(NeighborSampler, fused=True),
    "sampling-labor": _sampling(LaborSampler),
    "training": _training,
    "typed": _typed_training,
    "work": by_work({"typed sampling": _typed_sampling, "weighted": _weighted}),
}
