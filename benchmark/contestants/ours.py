"""This package: its sampler, its loaders, its native layers, and PyG's models made faster by it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import torch
import torch_geometric

import pyg_batchgnn
from benchmark.contestants.loaders import (
    IN_BATCH,
    LINKS,
    link_loader,
    link_steps,
    loading_jobs,
    loads,
    node_loader,
    pyg_labels,
    script_steps,
    typed_data,
    typed_loader,
)
from benchmark.networks.own import TYPED, Call
from benchmark.networks.recipe import DROPOUT, HEADS, LinkTrainer, StepTrainer, widths
from benchmark.support.graphs import GraphFolder, seed_lists
from benchmark.support.jobs import Counts, Job, MakeJob, Options, by_work, each
from benchmark.support.mag import CLASSES, FEATURES, SEEDS, TypedFolder
from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader, nn, ops
from pyg_batchgnn.sample import LABOR, Layout, MacrobatchSampler, SamplingPlan, Seeds
from pyg_batchgnn.store import CscGraph, typed_graph_from_pyg

DEFAULT_MACROBATCH = 8
PROBED_ROWS = 16384  # of the products by which the probe chooses
Export = Literal["pyg", "native"]


def versions() -> dict[str, str]:
    return {"pyg_batchgnn": pyg_batchgnn.__version__, "torch_geometric": torch_geometric.__version__}


def _samples(graph: Any, layout: Layout, options: Options, seeds: list[Any]) -> Job:
    plan = SamplingPlan(options.fanouts, labor=options.labor or None)
    sampler = MacrobatchSampler(graph, plan, options.seed, options.threads, layout)
    size = options.macrobatch or DEFAULT_MACROBATCH

    class Minibatches:
        """The minibatches of all seeds, sampled anew in each round."""

        rounds = 0

        def __iter__(self) -> Iterator[Any]:
            self.rounds += 1
            for start in range(0, len(seeds), size):
                yield from sampler.sample(seeds[start : start + size], self.rounds)

    return each(Minibatches(), lambda minibatch: (minibatch.num_nodes, minibatch.num_edges))


def _sampling(layout: Layout) -> MakeJob:
    def build(options: Options) -> Job:
        folder = GraphFolder.open(options.graph)
        # 4-byte ids where the graph has fewer than 2**31 nodes, as the loader stores them
        graph = CscGraph.from_csc(folder.colptr, folder.row.to(torch.int32)).advise_huge_pages()
        return _samples(graph, layout, options, seed_lists(folder, options))

    return build


def _typed_sampling(layout: Layout) -> MakeJob:
    def build(options: Options) -> Job:
        folder = TypedFolder.open(options.typed_graph)
        graph = typed_graph_from_pyg(typed_data(folder)).advise_huge_pages()
        seeds = [Seeds.of(graph.schema, {SEEDS: ids}) for ids in seed_lists(folder, options)]
        return _samples(graph, layout, options, seeds)

    return build


def _arguments(options: Options) -> dict[str, Any]:
    own = {"macrobatch_size": options.macrobatch or "auto", "labor": options.labor or None}
    return {"seed": options.seed, "threads": options.threads, **own}


@cache
def _loader(options: Options, dtype: torch.dtype, export: Export) -> Any:
    x = GraphFolder.open(options.graph).x.to(dtype)
    if export == "native":  # read in place; the main job asks for the same
        ops.advise_huge_pages(x)
    return node_loader(MacrobatchNeighborLoader, options, {"x": x}, export=export, **_arguments(options))


def loader(options: Options, dtype: torch.dtype = torch.float32, export: Export = "pyg") -> Any:
    return _loader(options.without_model(), dtype, export)


def choose_products(options: Options, dtype: torch.dtype, features: int, outputs: int) -> None:
    """Chooses the faster matrix product, this package's or torch's, as a training run does."""
    pairs = widths(features, options.hidden, outputs, len(options.fanouts))
    choice = nn.probe_products([(PROBED_ROWS, *pair) for pair in pairs], dtype, options.threads)
    print(choice, file=sys.stderr)
    nn.use_products(choice)


def network(options: Options, features: int, outputs: int, **attention: Any) -> nn.NativeModel:
    """Returns the native network of the options; ``attention``: further arguments of GAT."""
    torch.manual_seed(options.seed)
    shape = (features, options.hidden, len(options.fanouts), outputs)
    builders: dict[str, Callable[[], nn.NativeModel]] = {
        "sage": lambda: nn.SAGE(*shape, dropout=DROPOUT),
        "gcn": lambda: nn.GCN(*shape, dropout=DROPOUT),
        "gin": lambda: nn.GIN(*shape, norm="batch_norm", inner_channels=options.hidden),
        "gat": lambda: nn.GAT(*shape, dropout=DROPOUT, heads=HEADS, attention_dropout=0.0, **attention),
    }
    return builders[options.model]()


def _training(dtype: torch.dtype) -> MakeJob:
    """Returns a job of native layers; features, activations and products are in ``dtype``."""

    def build(options: Options) -> Job:
        graph = GraphFolder.open(options.graph)
        choose_products(options, dtype, graph.num_features, graph.num_classes)
        batches = loader(options, dtype, "native")
        model = network(options, graph.num_features, graph.num_classes)
        trainer = StepTrainer(model)
        row_bytes = dtype.itemsize * graph.num_features

        def step(batch: Any) -> Counts:
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
                logits = model(batch)
            trainer.step(logits, batch.attribute("y", batch.batch_size))
            return batch.num_nodes, batch.num_edges, batch.num_nodes * row_bytes

        return each(batches, step)

    return build


@cache
def _typed_loader(options: Options, export: Export = "native") -> Any:
    for x in TypedFolder.open(options.typed_graph).features.values():
        ops.advise_huge_pages(x)  # read in place; the main job asks for the same
    return typed_loader(
        MacrobatchNeighborLoader, options, featured=True, export=export, **_arguments(options)
    )


def _typed_training(options: Options) -> Job:
    choose_products(options, torch.float32, FEATURES, CLASSES)
    batches = _typed_loader(options.without_model())
    metadata = typed_data(TypedFolder.open(options.typed_graph), featured=True).metadata()
    # No self loops between two types.
    model = nn.to_hetero(network(options, FEATURES, CLASSES, add_self_loops=False), metadata)
    trainer = StepTrainer(model)

    def step(batch: Any) -> Counts:
        logits = model(batch)[SEEDS]
        trainer.step(logits, batch.attributes_of(SEEDS).gather("y", logits.size(0)))
        return batch.num_nodes, batch.num_edges

    return each(batches, step)


def _link_training(options: Options) -> Job:
    graph = GraphFolder.open(options.graph)
    ops.advise_huge_pages(graph.x)
    choose_products(options, torch.float32, graph.num_features, options.hidden)
    batches = link_loader(MacrobatchLinkNeighborLoader, options, export="native", **_arguments(options))
    model = network(options, graph.num_features, options.hidden)
    trainer = LinkTrainer(model)

    def step(batch: Any) -> Counts:
        (links,) = batch.links
        rows = model(batch)
        trainer.step(rows[links.index[0]], rows[links.index[1]], links.label)
        return batch.num_nodes, batch.num_edges

    return each(batches, step)


def _script(call: Call, accelerated: bool = True, export: Export = "pyg") -> MakeJob:
    """Returns the job of a user's script with a model of PyG's or of the user's own."""

    def build(options: Options) -> Job:
        prepare = pyg_batchgnn.accelerate if accelerated else None
        if options.work in LINKS:
            batches = link_loader(MacrobatchLinkNeighborLoader, options, **_arguments(options))
            loss = nn.in_batch_loss if options.work == IN_BATCH else None
            return link_steps(options, batches, call, prepare, loss)
        if options.model == TYPED:
            batches = _typed_loader(options.without_model(), export)
        else:
            batches = loader(options, export=export)
        return script_steps(options, batches, call, prepare, _labels if export == "native" else pyg_labels)

    return build


def _labels(batch: Any, count: int, typed: bool) -> torch.Tensor:
    return batch.attributes_of(SEEDS).gather("y", count) if typed else batch.attribute("y", count)


def _stock(options: Options) -> Job:
    """Returns the job of the native model that has the shape of a user's own module."""
    graph, batches = GraphFolder.open(options.graph), loader(options, export="native")
    torch.manual_seed(options.seed)
    shape = (graph.num_features, options.hidden, len(options.fanouts), graph.num_classes)
    kind = {"own-sage": nn.SAGE, "own-gat": nn.GAT}[options.model]
    model = kind(*shape, dropout=DROPOUT, norm="layer_norm", norm_kwargs={"mode": "node"})
    trainer = StepTrainer(model)

    def step(batch: Any) -> Counts:
        trainer.step(model(batch), batch.attribute("y", batch.batch_size))
        return batch.num_nodes, batch.num_edges

    return each(batches, step)


LOADING = loading_jobs(MacrobatchNeighborLoader, MacrobatchLinkNeighborLoader, _arguments)
JOBS: dict[str, MakeJob] = {
    "sampling": _sampling(Layout.COO),
    "sampling-csc": _sampling(Layout.CSC),
    "loading": lambda options: loads(loader(options)),
    "training-native": _training(torch.float32),
    "training-native-bfloat16": _training(torch.bfloat16),
    "work": by_work({"typed sampling": _typed_sampling(Layout.COO), **LOADING}),
    "csc": by_work({"typed sampling": _typed_sampling(Layout.CSC)}),
    "typed": _typed_training,
    "links": _link_training,
    "import": _script(Call.WHOLE, accelerated=False),
    "import-trimmed": _script(Call.TRIMMED, accelerated=False),
    "accelerate": _script(Call.WHOLE),
    "accelerate-trimmed": _script(Call.TRIMMED),
    "batch": _script(Call.BATCH),
    "native": _script(Call.BATCH, export="native"),
    "stock": _stock,
}


def _with_labor(job: str, strength: str) -> MakeJob:
    return lambda options: JOBS[job](replace(options, labor=strength))


for _job in ("sampling-csc", "training-native", "batch"):
    JOBS |= {f"{_job}-{strength}": _with_labor(_job, strength) for strength in LABOR}
