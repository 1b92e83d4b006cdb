"""PyTorch Geometric with pyg-lib or torch-sparse: its sampler, loader and convolutions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch_geometric
import torch_geometric.typing
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

from benchmark.networks.basic import Call, basic_model, seed_logits
from benchmark.networks.pyg import Sliced, Trimmed
from benchmark.networks.recipe import StepTrainer
from benchmark.support.graphs import GraphFolder, seed_lists
from benchmark.support.jobs import Job, Options, WorkDone, iterating


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


def sampling(options: Options) -> Job:
    """Returns a job of ``torch.ops.pyg.neighbor_sample`` on ids of a dtype."""
    return _sampling(options, torch.int64)


def sampling_32(options: Options) -> Job:
    """The same on int32 ids, which PyG's loader never uses."""
    return _sampling(options, torch.int32)


def _sampling(options: Options, dtype: torch.dtype) -> Job:
    if not torch_geometric.typing.WITH_PYG_LIB:
        raise ImportError("pyg-lib is not installed in this environment")
    graph = GraphFolder.open(options.graph)
    colptr, row = graph.colptr.to(dtype), graph.row.to(dtype)
    batches = [s.to(dtype) for s in seed_lists(graph, options.batches, options.batch_size, options.seed)]
    fanouts = list(options.fanouts)

    def round_(_: int) -> WorkDone:
        work = WorkDone()
        for seeds in batches:
            # arguments: three times, weights; csc, replace, directed, disjoint, strategy, return
            # edge ids
            out = torch.ops.pyg.neighbor_sample(
                *(
                    colptr,
                    row,
                    seeds,
                    fanouts,
                    None,
                    None,
                    None,
                    None,
                    True,
                    False,
                    True,
                    False,
                    "uniform",
                    True,
                )
            )
            work.add(nodes=out[2].numel(), edges=out[0].numel())
        return work

    return round_


@cache
def _loader(options: Options) -> Any:
    graph = GraphFolder.open(options.graph)
    return NeighborLoader(
        Data(x=graph.x, edge_index=graph.edge_index, y=graph.y),
        num_neighbors=list(options.fanouts),
        input_nodes=graph.seeds(options.batches * options.batch_size, options.seed),
        batch_size=options.batch_size,
        is_sorted=True,
    )


def loader(options: Options) -> Any:
    """PyG's NeighborLoader, in this process; the same for every network that is trained in it."""
    require_sampler()
    return _loader(options.without_model())


def loading(options: Options) -> Job:
    """Iterates the loader, features and labels included."""
    return iterating(loader(options))


def _training(model: Callable[..., torch.nn.Module]) -> Callable[[Options], Job]:
    def build(options: Options) -> Job:
        graph = GraphFolder.open(options.graph)
        batches = loader(options)
        torch.manual_seed(options.seed)
        network = model(
            options.model, graph.num_features, options.hidden, graph.num_classes, len(options.fanouts)
        )
        trainer = StepTrainer(network)

        def round_(_: int) -> WorkDone:
            work = WorkDone()
            for batch in batches:
                trainer.step(network(batch), batch.y[: batch.batch_size])
                work.add(batch.num_nodes, batch.num_edges, batch.x.nbytes)
            return work

        return round_

    return build


def _basic(call: Call) -> Callable[[Options], Job]:
    """Returns the job of an unchanged script with PyG's model and loader."""

    def build(options: Options) -> Job:
        graph = GraphFolder.open(options.graph)
        batches = loader(options)
        torch.manual_seed(options.seed)
        shape = (graph.num_features, options.hidden, graph.num_classes, len(options.fanouts))
        model = basic_model(options.model, *shape)
        trainer = StepTrainer(model)

        def round_(_: int) -> WorkDone:
            work = WorkDone()
            for batch in batches:
                trainer.step(seed_logits(model, batch, call), batch.y[: batch.batch_size])
                work.add(batch.num_nodes, batch.num_edges)
            return work

        return round_

    return build


JOBS: dict[str, Callable[[Options], Job]] = {
    "sampling": sampling,
    "sampling-32": sampling_32,
    "loading": loading,
    "training-trimmed": _training(Trimmed),
    "training-sliced": _training(Sliced),
    "basic": _basic(Call.WHOLE),
    "basic-trimmed": _basic(Call.TRIMMED),
}
