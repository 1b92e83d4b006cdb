"""PyTorch Geometric with pyg-lib: types, times, weights and links."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch_geometric.typing
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
from torch_geometric.sampler import NeighborSampler

from benchmark.contestants.loader_jobs import jobs, typed_data
from benchmark.contestants.pyg import versions
from benchmark.support.jobs import Job, Options, WorkDone, by_work
from benchmark.support.mag import SEEDS, TypedFolder

__all__ = ["JOBS", "versions"]


def _typed_sampling(options: Options) -> Job:
    """Returns a job of ``torch.ops.pyg.hetero_neighbor_sample``."""
    folder = TypedFolder.open(options.typed_graph)
    sampler = NeighborSampler(typed_data(folder), list(options.fanouts))
    papers = folder.seeds(options.batches * options.batch_size, options.seed)
    fanouts = {"__".join(names): list(options.fanouts) for names in sampler.edge_types}

    def round_(_: int) -> WorkDone:
        work = WorkDone()
        for seeds in papers.split(options.batch_size):
            # arguments: three times, weights; csc, replace, directed, disjoint, strategy, return
            # edge ids
            row, _, node, *_ = torch.ops.pyg.hetero_neighbor_sample(
                *(sampler.node_types, sampler.edge_types, sampler.colptr_dict, sampler.row_dict),
                *({SEEDS: seeds}, fanouts, None, None, None, None),
                *(True, False, True, False, "uniform", True),
            )
            work.add(sum(map(len, node.values())), sum(map(len, row.values())))
        return work

    return round_


def _with_pyg_lib(work: Callable[[Options], Job]) -> Callable[[Options], Job]:
    def build(options: Options) -> Job:
        if not torch_geometric.typing.WITH_PYG_LIB:
            raise ImportError("pyg-lib is not installed here, which PyG samples with")
        return work(options)

    return build


WORKS = {"typed sampling": _typed_sampling, **jobs(NeighborLoader, LinkNeighborLoader)}
JOBS = {"work": by_work({name: _with_pyg_lib(work) for name, work in WORKS.items()})}
