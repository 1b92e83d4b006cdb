"""PyTorch Geometric with pyg-lib or torch-sparse: its samplers, loaders and convolutions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch_geometric
import torch_geometric.typing
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
from torch_geometric.sampler import NeighborSampler

from benchmark.contestants.loaders import (
    link_loader,
    link_steps,
    loading_jobs,
    loads,
    node_loader,
    script_steps,
    typed_data,
    typed_loader,
)
from benchmark.networks.own import TYPED, Call
from benchmark.networks.pyg import Sliced, Trimmed, TypedPrefixes, TypedTrimmed
from benchmark.networks.recipe import StepTrainer
from benchmark.support.graphs import GraphFolder, seed_lists
from benchmark.support.jobs import Counts, Job, MakeJob, Options, by_work, each
from benchmark.support.mag import CLASSES, FEATURES, SEEDS, TypedFolder


def versions() -> dict[str, str]:
    """Returns the versions of the packages that take part."""
    found = {"torch_geometric": torch_geometric.__version__}
    if torch_geometric.typing.WITH_PYG_LIB:
        import pyg_lib

        found["pyg_lib"] = pyg_lib.__version__
    return found


def require_sampler() -> None:
    """Raises ImportError where PyG's loaders cannot sample."""
    if not (torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE):
        raise ImportError(
            "PyG's NeighborLoader samples only with pyg-lib or torch-sparse; neither is installed here"
        )


def _with_pyg_lib(work: MakeJob) -> MakeJob:
    def build(options: Options) -> Job:
        if not torch_geometric.typing.WITH_PYG_LIB:
            raise ImportError("pyg-lib is not installed here, which PyG samples with")
        return work(options)

    return build


def _sampling(dtype: torch.dtype) -> MakeJob:

    def build(options: Options) -> Job:
        graph = GraphFolder.open(options.graph)
        colptr, row = graph.colptr.to(dtype), graph.row.to(dtype)
        fanouts = list(options.fanouts)

        def step(seeds: torch.Tensor) -> Counts:
            # arguments: three times, weights; csc, replace, directed, disjoint, strategy, return
            # edge ids
            out = torch.ops.pyg.neighbor_sample(
                *(colptr, row, seeds, fanouts, None, None, None, None),
                *(True, False, True, False, "uniform", True),
            )
            return out[2].numel(), out[0].numel()

        return each([seeds.to(dtype) for seeds in seed_lists(graph, options)], step)

    return build


def _typed_sampling(options: Options) -> Job:
    folder = TypedFolder.open(options.typed_graph)
    sampler = NeighborSampler(typed_data(folder), list(options.fanouts))
    fanouts = {"__".join(names): list(options.fanouts) for names in sampler.edge_types}

    def step(seeds: torch.Tensor) -> Counts:
        # arguments as of `neighbor_sample`
        row, _, node, *_ = torch.ops.pyg.hetero_neighbor_sample(
            *(sampler.node_types, sampler.edge_types, sampler.colptr_dict, sampler.row_dict),
            *({SEEDS: seeds}, fanouts, None, None, None, None),
            *(True, False, True, False, "uniform", True),
        )
        return sum(map(len, node.values())), sum(map(len, row.values()))

    return each(seed_lists(folder, options), step)


@cache
def _loader(options: Options) -> Any:
    require_sampler()
    return node_loader(NeighborLoader, options)


@cache
def _typed_loader(options: Options) -> Any:
    require_sampler()
    return typed_loader(NeighborLoader, options, featured=True)


def _training(network: Callable[..., torch.nn.Module]) -> MakeJob:
    def build(options: Options) -> Job:
        graph, batches = GraphFolder.open(options.graph), _loader(options.without_model())
        torch.manual_seed(options.seed)
        shape = (graph.num_features, options.hidden, graph.num_classes, len(options.fanouts))
        model = network(options.model, *shape)
        trainer = StepTrainer(model)

        def step(batch: Any) -> Counts:
            trainer.step(model(batch), batch.y[: batch.batch_size])
            return batch.num_nodes, batch.num_edges, batch.x.nbytes

        return each(batches, step)

    return build


def _basic(call: Call) -> MakeJob:
    """Returns the job of an unchanged script with PyG's loader, and PyG's model or one's own."""

    def build(options: Options) -> Job:
        load = _typed_loader if options.model == TYPED else _loader
        return script_steps(options, load(options.without_model()), call)

    return build


def _typed_training(network: Callable[..., torch.nn.Module]) -> MakeJob:
    def build(options: Options) -> Job:
        batches = _typed_loader(options.without_model())
        metadata = typed_data(TypedFolder.open(options.typed_graph), featured=True).metadata()
        torch.manual_seed(options.seed)
        shape = (FEATURES, options.hidden, CLASSES, len(options.fanouts))
        model = network(options.model, *shape, metadata)
        trainer = StepTrainer(model)

        def step(batch: Any) -> Counts:
            seeds = batch[SEEDS]
            trainer.step(model(batch), seeds.y[: seeds.batch_size])
            return batch.num_nodes, batch.num_edges

        return each(batches, step)

    return build


def _link_training(options: Options) -> Job:
    """Returns a job of PyG's GraphSAGE on whole minibatches of links."""
    require_sampler()
    return link_steps(options, link_loader(LinkNeighborLoader, options))


WORKS = {"typed sampling": _typed_sampling, **loading_jobs(NeighborLoader, LinkNeighborLoader)}
JOBS: dict[str, MakeJob] = {
    "sampling": _with_pyg_lib(_sampling(torch.int64)),
    "sampling-32": _with_pyg_lib(_sampling(torch.int32)),
    "loading": lambda options: loads(_loader(options)),
    "training-trimmed": _training(Trimmed),
    "training-sliced": _training(Sliced),
    "basic": _basic(Call.WHOLE),
    "basic-trimmed": _basic(Call.TRIMMED),
    "typed-trimmed": _typed_training(TypedTrimmed),
    "typed-prefixes": _typed_training(TypedPrefixes),
    "links": _link_training,
    "work": by_work({name: _with_pyg_lib(work) for name, work in WORKS.items()}),
}
