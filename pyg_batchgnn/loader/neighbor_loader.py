"""The drop-in for PyG's `NeighborLoader`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore
from torch_geometric.loader import NeighborLoader
from torch_geometric.loader.utils import get_input_nodes
from torch_geometric.sampler import SamplerOutput

from pyg_batchgnn.loader.arguments import (
    ahead_of,
    batches_of,
    has_edge_attributes,
    order_of,
    probe_batches,
    with_keyed_shuffle,
    worker_arguments,
)
from pyg_batchgnn.loader.budget import Sizes, choose_sizes
from pyg_batchgnn.loader.iterate import iterate
from pyg_batchgnn.loader.options import (
    Export,
    LoaderOptions,
    Size,
    parse_export,
    refuse_what_is_to_come,
)
from pyg_batchgnn.loader.order import WorkItem, as_list, work_items
from pyg_batchgnn.loader.pipeline import Pipeline
from pyg_batchgnn.loader.position import Position, Run
from pyg_batchgnn.loader.stats import LoaderStats
from pyg_batchgnn.loader.workers import MakeBatches, Stage, WorkerPool
from pyg_batchgnn.ops import check_range
from pyg_batchgnn.sample import Layout, MacrobatchSampler, PygNeighborSampler
from pyg_batchgnn.store import graph_from_pyg


class MacrobatchNeighborLoader(NeighborLoader):
    """Neighbour sampling for minibatch training: PyG's `NeighborLoader`, made in macrobatches (BatchGNN,
    section 3).

    Takes what `NeighborLoader` takes and yields what it yields. A minibatch is a pure function of (graph,
    fanouts, seed, epoch, its seed nodes): the number of threads, workers and the sizes below change speed
    and memory, never a bit.

    Args:
        data: a homogeneous ``Data``, or a ``(FeatureStore, GraphStore)`` pair.
        num_neighbors: fanouts by hop, nearest the seeds first; -1 takes all neighbours.
        input_nodes: seed nodes as an index tensor, a boolean mask, or None for all nodes.
        replace: sample with replacement.
        neighbor_sampler: a `PygNeighborSampler`, whose graph, plan and seed are then used.
        macrobatch_size: B, minibatches sampled together; "auto" fits the memory budget.
        fetch_size: F, native minibatches whose attributes are fetched together, at most B; "auto" likewise.
            PyG batches are gathered one by one, straight from ``data``, when they are asked for.
        memory_budget: bytes that the loader may hold at its peak, graph and features not counted; None: an
            eighth of what is free at construction. Decides what "auto" means, and nothing else.
        prefetch: macrobatches to prepare beside training, on one thread (0: none). Attributes are then read
            when the macrobatch is prepared.
        seed: key of shuffling and sampling; None draws one from torch's default generator.
        threads: at most so many threads; torch's own number where None. Worker processes use one each.
        export: "pyg" for ``Data`` batches, "native" for `Minibatch`.
        **kwargs: those of ``torch.utils.data.DataLoader``. Where ``generator``, ``sampler`` or
            ``batch_sampler`` is given, it decides the order; else ``shuffle`` is a keyed permutation by
            (seed, epoch).

    Raises:
        NotImplementedError: an option that is still to come: heterogeneous graphs, temporal, weighted,
            disjoint, bidirectional and induced sampling.
        TypeError, ValueError, IndexError: arguments that do not fit; the message gives value and remedy.

    Every ``iter(loader)`` starts the next epoch, the first is epoch 0; `set_epoch` overrides it;
    ``loader(index)`` uses the current one.
    """

    def __init__(
        self,
        data: Data | tuple[FeatureStore, GraphStore],
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: Tensor | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",  # noqa: ARG002  (only of meaning with time_attr)
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[SamplerOutput], SamplerOutput] | None = None,
        is_sorted: bool = False,  # noqa: ARG002  (found out by looking)
        filter_per_worker: bool | None = None,
        neighbor_sampler: PygNeighborSampler | None = None,
        directed: bool = True,
        *,
        macrobatch_size: Size = "auto",
        fetch_size: Size = "auto",
        memory_budget: int | None = None,
        prefetch: int = 0,
        seed: int | None = None,
        threads: int | None = None,
        export: Literal["pyg", "native"] = "pyg",
        **kwargs: Any,
    ) -> None:
        refuse_what_is_to_come(subgraph_type, disjoint, input_time, time_attr, weight_attr, directed)
        self._options = LoaderOptions(
            macrobatch_size, fetch_size, memory_budget, prefetch, threads, parse_export(export)
        )
        if prefetch and kwargs.get("num_workers", 0) > 0:
            raise ValueError(
                "prefetch works in this process; with num_workers > 0 use prefetch_factor instead"
            )
        sampler = _sampler_for(data, num_neighbors, replace, seed, threads, neighbor_sampler)
        _, nodes, _ = get_input_nodes(data, input_nodes, kwargs.get("input_id"))
        check_range("input_nodes", nodes.long().contiguous(), sampler.macrobatch.graph.num_nodes)
        self._position = Position()
        self._sizes: Sizes | None = None
        self._pool: WorkerPool | None = None
        super().__init__(
            data,
            num_neighbors,
            input_nodes,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            neighbor_sampler=sampler,
            **with_keyed_shuffle(kwargs, nodes.numel(), sampler.macrobatch.seed),
        )
        if self.batch_sampler is None:
            raise ValueError(
                "batch_size=None is not possible: a minibatch is a list of seeds; use batch_size=1"
            )
        self._pipeline = Pipeline(
            data, self.input_data, self._macrobatch_sampler(), transform_sampler_output, self.custom_cls
        )

    # Epochs and resuming

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next ``iter(loader)`` and of ``loader(index)``."""
        self._position.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The epoch of the latest iterator, of `set_epoch` or of a loaded state, whichever came last."""
        return self._position.run.epoch

    @property
    def seed(self) -> int:
        """The key of shuffling and sampling."""
        return self._pipeline.sampler.seed

    def state_dict(self) -> dict[str, Any]:
        """Where the latest iterator stands: a plain dictionary that JSON can hold."""
        return self._position.state_dict(self.seed, self._settings())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Lets the next ``iter(loader)`` hand out exactly the minibatches that were left.

        Raises:
            ValueError: a state of another loader; the message names the setting that differs.
        """
        self._position.load_state_dict(state, self._settings(), len(self))
        self._pipeline.sampler.seed = self.node_sampler.macrobatch.seed = state["seed"]

    def _settings(self) -> dict[str, Any]:
        plan = self._pipeline.sampler.plan
        return {
            "num_seeds": len(self.dataset),
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "fanouts": list(plan.fanouts),
            "replacement": plan.replacement.value,
            "order": order_of(self).value,
        }

    # Iterating

    def __iter__(self) -> Iterator[Any]:
        run = self._position.begin()
        items = work_items(batches_of(self, run), run.epoch, self.sizes.macrobatch, run.skip)
        return self._hand_out(run, items)

    def _hand_out(self, run: Run, items: Iterator[WorkItem]) -> Iterator[Any]:
        made = (
            self._from_workers(items) if self.num_workers > 0 else map(self._finish, self._from_here(items))
        )
        for batch in made:
            run.handed_out += 1
            yield batch.pin_memory() if self.pin_memory and torch.cuda.is_available() else batch

    def _from_here(self, items: Iterator[WorkItem]) -> Iterator[Any]:
        options = self._options
        return iterate(self._pipeline, items, options.export, self.sizes.fetch, options.prefetch)

    def _from_workers(self, items: Iterator[WorkItem]) -> Iterator[Any]:
        export = self._options.export
        stage = Stage.FINISH if self.filter_per_worker or export is Export.NATIVE else Stage.SAMPLE
        if self._pool is None or not self.persistent_workers:
            make = MakeBatches(self._pipeline, export, self.sizes.fetch, self.transform, stage)
            self._pool = WorkerPool(make, self.seed, **worker_arguments(self))
        made = self._pool.iterate(items)
        return made if stage is Stage.FINISH else map(self.filter_fn, made)

    def _finish(self, batch: Any) -> Any:
        return batch if self.transform is None else self.transform(batch)

    def __call__(self, index: Tensor | list[int]) -> Any:
        """The minibatch of the seeds at these positions of the input, in the current epoch."""
        item = WorkItem(self.epoch, 0, [as_list(index)])
        (batch,) = iterate(self._pipeline, iter([item]), self._options.export, 1, prefetch=0)
        return self._finish(batch)

    def filter_fn(self, out: SamplerOutput) -> Any:
        """A sample with its attributes, transformed: what the main process does where workers only sample."""
        return self._finish(self._pipeline.to_pyg(out))

    # What it decided and did

    @property
    def sizes(self) -> Sizes:
        """B and F, "auto" resolved at first use by sampling up to two minibatches."""
        if self._sizes is None:
            self._sizes = choose_sizes(
                self._options, self._pipeline, probe_batches(self), len(self), ahead_of(self)
            )
        return self._sizes

    def stats(self) -> LoaderStats:
        """Nodes, edges, distinct nodes, bytes gathered and seconds by phase, of the last macrobatch and in
        total."""
        return self._pipeline.book.snapshot()

    @property
    def data(self) -> Any:
        """What attributes are read from, when a batch is made. The graph is that of the construction."""
        return self._data

    @data.setter
    def data(self, data: Any) -> None:
        self._data = data
        if hasattr(self, "_pipeline"):
            self._pipeline.source = self._pipeline.source_of(data)

    def _macrobatch_sampler(self) -> MacrobatchSampler:
        """For native batches 32-bit CSC, with edge ids only where there is an edge attribute to use them
        on."""
        made = self.node_sampler.macrobatch
        if self._options.export is Export.PYG:
            return made
        plan = dataclasses.replace(made.plan, edge_ids=has_edge_attributes(self.data))
        return MacrobatchSampler(made.graph, plan, made.seed, made.threads, Layout.CSC)


def _sampler_for(
    data: Any, num_neighbors: Any, replace: bool, seed: int | None, threads: int | None, given: Any
) -> PygNeighborSampler:
    if isinstance(given, PygNeighborSampler):
        return given
    if given is not None:
        raise TypeError(
            f"neighbor_sampler must be a pyg_batchgnn.PygNeighborSampler, got {type(given).__name__}; "
            f"use torch_geometric.loader.NodeLoader with samplers of another kind"
        )
    if seed is None:
        seed = int(torch.empty((), dtype=torch.int64).random_())
    return PygNeighborSampler(graph_from_pyg(data).advise_huge_pages(), num_neighbors, replace, seed, threads)
