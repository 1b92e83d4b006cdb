"""DGL: sampling by types and by weights. It has no loader by times, and links are left to PyG."""

from __future__ import annotations

from collections.abc import Iterable

import dgl
import torch
from dgl.dataloading import NeighborSampler

from benchmark.contestants.dgl import versions
from benchmark.support.edge_values import edge_weights
from benchmark.support.graphs import GraphFolder, seed_lists
from benchmark.support.jobs import Job, Options, WorkDone, by_work
from benchmark.support.mag import SEEDS, TypedFolder

__all__ = ["JOBS", "versions"]


def _sampling(graph: dgl.DGLGraph, sampler: NeighborSampler, seeds: Iterable[object]) -> Job:
    """Returns a job of ``sample_neighbors`` and ``to_block``, hop by hop."""

    def round_(_: int) -> WorkDone:
        work = WorkDone()
        for batch in seeds:
            nodes, _, blocks = sampler.sample_blocks(graph, batch)
            found = nodes.values() if isinstance(nodes, dict) else [nodes]
            work.add(sum(map(len, found)), sum(block.num_edges() for block in blocks))
        return work

    return round_


def _typed_sampling(options: Options) -> Job:
    folder = TypedFolder.open(options.typed_graph)
    edges = {names: (one[0], one[1]) for names, one in folder.edges.items()}
    graph = dgl.heterograph(edges, num_nodes_dict=folder.num_nodes).formats("csc")
    papers = folder.seeds(options.batches * options.batch_size, options.seed)
    seeds = [{SEEDS: ids} for ids in papers.split(options.batch_size)]
    return _sampling(graph, NeighborSampler(list(reversed(options.fanouts))), seeds)


def _weighted(options: Options) -> Job:
    folder = GraphFolder.open(options.graph)
    no_ids = torch.empty(0, dtype=torch.int64)  # an edge's id is its position
    graph = dgl.graph(("csc", (folder.colptr, folder.row, no_ids)))
    graph.edata["weight"] = edge_weights(folder, options.seed)
    sampler = NeighborSampler(list(reversed(options.fanouts)), prob="weight")
    lists = seed_lists(folder, options.batches, options.batch_size, options.seed)
    return _sampling(graph, sampler, lists)


JOBS = {"work": by_work({"typed sampling": _typed_sampling, "weighted": _weighted})}
