"""This package with types, times, weights and links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmark.contestants.loader_jobs import jobs, typed_data
from benchmark.contestants.ours import versions
from benchmark.support.jobs import Job, Options, WorkDone, by_work
from benchmark.support.mag import SEEDS, TypedFolder
from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.sample import Layout, MacrobatchSampler, SamplingPlan, Seeds
from pyg_batchgnn.store import typed_graph_from_pyg

__all__ = ["JOBS", "versions"]

DEFAULT_MACROBATCH = 8


def _typed_sampling(layout: Layout) -> Callable[[Options], Job]:
    def build(options: Options) -> Job:
        folder = TypedFolder.open(options.typed_graph)
        graph = typed_graph_from_pyg(typed_data(folder)).advise_huge_pages()
        plan = SamplingPlan(options.fanouts)
        sampler = MacrobatchSampler(graph, plan, options.seed, options.threads, layout)
        papers = folder.seeds(options.batches * options.batch_size, options.seed)
        seeds = [Seeds.of(graph.schema, {SEEDS: ids}) for ids in papers.split(options.batch_size)]
        size = options.macrobatch or DEFAULT_MACROBATCH

        def round_(number: int) -> WorkDone:
            work = WorkDone()
            for start in range(0, len(seeds), size):
                for minibatch in sampler.sample(seeds[start : start + size], number):
                    work.add(minibatch.num_nodes, minibatch.num_edges)
            return work

        return round_

    return build


def _arguments(options: Options) -> dict[str, Any]:
    """Returns the arguments that are ours alone."""
    return {
        "seed": options.seed,
        "threads": options.threads,
        "macrobatch_size": options.macrobatch or "auto",
    }


WORKS = {
    "typed sampling": _typed_sampling(Layout.COO),
    **jobs(MacrobatchNeighborLoader, MacrobatchLinkNeighborLoader, _arguments),
}
JOBS = {"work": by_work(WORKS), "csc": by_work({"typed sampling": _typed_sampling(Layout.CSC)})}
