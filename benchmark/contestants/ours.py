"""This package: its sampler, its loader, its native layers, and PyG's convolutions on prefixes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any, Literal

import torch
import torch_geometric
from torch_geometric.data import Data

import pyg_batchgnn
from benchmark.networks.recipe import DROPOUT, HEADS, StepTrainer, widths
from benchmark.support.graphs import GraphFolder, seed_lists
from benchmark.support.jobs import Job, Options, WorkDone, iterating
from pyg_batchgnn import ops
from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.sample import Layout, MacrobatchSampler, SamplingPlan
from pyg_batchgnn.store import CscGraph

DEFAULT_MACROBATCH = 8
PROBED_ROWS = 16384  # of the products by which the probe chooses


def versions() -> dict[str, str]:
    """Returns the versions of the packages that take part."""
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

        def round_(number: int) -> WorkDone:
            work = WorkDone()
            for some in _macrobatches(lists, size):
                for minibatch in sampler.sample(some, number):
                    work.add(minibatch.num_nodes, minibatch.num_edges)
            return work

        return round_

    return build


@cache
def _loader(options: Options, dtype: torch.dtype, export: Literal["pyg", "native"]) -> Any:
    graph = GraphFolder.open(options.graph)
    x = graph.x.to(dtype)
    if export == "native":  # read in place; the main job asks for the same
        ops.advise_huge_pages(x)
    return MacrobatchNeighborLoader(
        Data(x=x, edge_index=graph.edge_index, y=graph.y),
        num_neighbors=list(options.fanouts),
        input_nodes=graph.seeds(options.batches * options.batch_size, options.seed),
        batch_size=options.batch_size,
        is_sorted=True,
        seed=options.seed,
        threads=options.threads,
        macrobatch_size=options.macrobatch or "auto",
        export=export,
    )


def loader(
    options: Options, dtype: torch.dtype = torch.float32, export: Literal["pyg", "native"] = "pyg"
) -> Any:
    """Returns the drop-in loader over features of ``dtype``.

    The same object for every network that is trained in this process.
    """
    return _loader(options.without_model(), dtype, export)


def loading(options: Options) -> Job:
    """Iterates the loader, features and labels included."""
    return iterating(loader(options))


def _model(module: Any, options: Options) -> torch.nn.Module:
    """Returns the network of ``options`` from a module with SAGE, GCN, GIN and GAT."""
    graph = GraphFolder.open(options.graph)
    shape = (graph.num_features, options.hidden, len(options.fanouts), graph.num_classes)
    builders: dict[str, Callable[[], torch.nn.Module]] = {
        "sage": lambda: module.SAGE(*shape, dropout=DROPOUT),
        "gcn": lambda: module.GCN(*shape, dropout=DROPOUT),
        "gin": lambda: module.GIN(*shape, norm="batch_norm", inner_channels=options.hidden),
        "gat": lambda: module.GAT(*shape, dropout=DROPOUT, heads=HEADS, attention_dropout=0.0),
    }
    return builders[options.model]()


def training(options: Options) -> Job:
    """PyG's convolutions on prefixes: loader, forward, backward, Adam."""
    from pyg_batchgnn.train.model import pyg_layers

    models = SimpleNamespace(
        SAGE=pyg_layers.PygSAGE, GCN=pyg_layers.PygGCN, GIN=pyg_layers.PygGIN, GAT=pyg_layers.PygGAT
    )

    batches = loader(options)
    torch.manual_seed(options.seed)
    network = _model(models, options)
    trainer = StepTrainer(network)

    def round_(_: int) -> WorkDone:
        work = WorkDone()
        for batch in batches:
            logits = network(batch.x, batch.edge_index, batch.num_sampled_nodes, batch.num_sampled_edges)
            trainer.step(logits, batch.y[: batch.batch_size])
            work.add(batch.num_nodes, batch.num_edges, batch.x.nbytes)
        return work

    return round_


def choose_products(options: Options, dtype: torch.dtype, features: int, outputs: int) -> None:
    """Chooses the faster matrix product, this package's or torch's, as a training run does."""
    from pyg_batchgnn.nn import probe_products, use_products

    pairs = widths(features, options.hidden, outputs, len(options.fanouts))
    choice = probe_products([(PROBED_ROWS, *pair) for pair in pairs], dtype, options.threads)
    print(choice, file=sys.stderr)
    use_products(choice)


def _native(dtype: torch.dtype) -> Callable[[Options], Job]:
    """Returns a job of native layers; features, activations and products are in ``dtype``."""

    def build(options: Options) -> Job:
        from pyg_batchgnn.nn import models

        graph = GraphFolder.open(options.graph)
        choose_products(options, dtype, graph.num_features, graph.num_classes)
        batches = loader(options, dtype, "native")
        torch.manual_seed(options.seed)
        network = _model(models, options)
        trainer = StepTrainer(network)
        row_bytes = dtype.itemsize * graph.num_features

        def round_(_: int) -> WorkDone:
            work = WorkDone()
            for batch in batches:
                with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
                    logits = network(batch)
                trainer.step(logits, batch.attribute("y", batch.batch_size))
                work.add(batch.num_nodes, batch.num_edges, batch.num_nodes * row_bytes)
            return work

        return round_

    return build


JOBS: dict[str, Callable[[Options], Job]] = {
    "sampling": _sampling(Layout.COO),
    "sampling-csc": _sampling(Layout.CSC),
    "loading": loading,
    "training": training,
    "training-native": _native(torch.float32),
    "training-native-bfloat16": _native(torch.bfloat16),
}
