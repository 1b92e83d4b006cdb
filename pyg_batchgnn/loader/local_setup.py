"""Composing a loader of a graph that one process holds whole."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader

from pyg_batchgnn.data import FEATURES
from pyg_batchgnn.fetch import Fetcher, FetchGroup
from pyg_batchgnn.loader.aggregate_tables import cached_tables
from pyg_batchgnn.loader.arguments import SamplingRequest, has_edge_attributes, seed_nodes
from pyg_batchgnn.loader.drawn_schedule import DrawnOrder, DrawnSchedule
from pyg_batchgnn.loader.export import Exporter, GatheringExporter, NativeExporter
from pyg_batchgnn.loader.numbering import as_they_are
from pyg_batchgnn.loader.options import Export, LoaderOptions
from pyg_batchgnn.loader.order import Order, order_of
from pyg_batchgnn.loader.pipeline import Pipeline
from pyg_batchgnn.loader.probe import AttributeCost, biggest_of
from pyg_batchgnn.loader.schedule import GlobalSchedule, SeedSchedule
from pyg_batchgnn.loader.setup import Composition, shape_of, step_shape
from pyg_batchgnn.loader.source import DataSource, Source, SourceFetcher, StoreSource
from pyg_batchgnn.loader.world import LocalWorld
from pyg_batchgnn.ops import count_unique_nodes
from pyg_batchgnn.sample import Layout, MacrobatchSampler, Placement, PygNeighborSampler, SampledMinibatch
from pyg_batchgnn.store import graph_from_pyg


class LocalSetup:
    """Composes the loader of one process; see `Setup`."""

    def __init__(self, data: Any, request: SamplingRequest, options: LoaderOptions) -> None:
        if request.schedule is not None:
            raise ValueError(
                f"schedule={request.schedule!r} is for graphs that are spread over ranks: give "
                f"(DistFeatureStore, DistGraphStore) as data"
            )
        if options.feature_cache is not None:
            raise ValueError(
                "feature_cache keeps rows of other hosts, but one process reads all rows itself: leave it "
                "out, or give (DistFeatureStore, DistGraphStore) as data"
            )
        self.world = LocalWorld()
        self.node_sampler = _sampler_for(data, request, options.threads, self.world)
        self._options = options
        self._graph = self.node_sampler.macrobatch.graph
        self.num_nodes = self._graph.num_nodes

    def dataloader_arguments(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Returns all arguments."""
        return kwargs

    def input_nodes(self, data: Any, input_nodes: Any) -> Any:
        """Returns the seed nodes, checked; see `Setup`."""
        return seed_nodes(data, input_nodes, self.num_nodes)

    def compose(self, loader: NodeLoader) -> Composition:
        """Makes the parts of a loader; see `Setup`."""
        order, count = order_of(loader), loader.input_data.node.numel()
        sampler = self._macrobatch_sampler(loader.data)
        fetcher, exporter = self._reading(sampler, loader)
        pipeline = Pipeline(loader.input_data, sampler, fetcher, exporter, self.num_nodes)
        native = self._options.export is Export.NATIVE
        schedule: SeedSchedule = (
            DrawnSchedule(DrawnOrder.of(loader), count)
            if order is Order.DRAWN
            else GlobalSchedule(len(loader.sampler), self.world.rank, self.world.size, step_shape(loader))
        )
        return Composition(
            schedule,
            as_they_are,
            pipeline,
            as_they_are,
            pipeline,
            functools.partial(_native_cost if native else _gathered_cost, pipeline),
            [self.node_sampler.macrobatch, sampler],
            functools.partial(shape_of, sampler.plan, self._graph),
        )

    def graph(self, data: Any) -> Any:
        """Returns the sampler's graph and the features; see `Setup`."""
        return self._graph, data.x if isinstance(data, Data) else data[0].get_tensor(None, FEATURES, None)

    def change_data(self, pipeline: Pipeline, loader: NodeLoader) -> None:
        """Lets the pipeline read attributes from ``loader.data``; see `Setup`."""
        if self._options.aggregation_cache is not None:
            raise AttributeError(
                "the aggregation cache is of the data that the loader was made with; make another loader"
            )
        pipeline.fetcher, pipeline.exporter = self._reading(pipeline.sampler, loader)

    def _macrobatch_sampler(self, data: Any) -> MacrobatchSampler:
        """Makes the sampler.

        For native batches it returns 32-bit CSC, with edge ids only if an edge attribute needs
        them.
        """
        made = self.node_sampler.macrobatch
        if self._options.export is Export.PYG:
            return made
        plan = dataclasses.replace(made.plan, edge_ids=has_edge_attributes(data))
        if self._options.aggregation_cache is not None:
            plan = plan.without_last_hop()
        return MacrobatchSampler(made.graph, plan, made.seed, made.threads, Layout.CSC)

    def _reading(self, sampler: Any, loader: NodeLoader) -> tuple[Fetcher | None, Exporter]:
        """Makes the parts that read attributes from ``loader.data``."""
        source = self._source(loader)
        if self._options.export is Export.PYG:
            return None, GatheringExporter(source, loader.transform_sampler_output, sampler.threads)
        source.tables(self.num_nodes)  # refuses what cannot be read before anything is sampled
        return SourceFetcher(source, self.num_nodes, sampler.threads), NativeExporter()

    def _source(self, loader: NodeLoader) -> Source:
        cache, reading = self._options.aggregation_cache, self._options.reading
        aggregates = {} if cache is None else cached_tables(cache, loader.data)
        if isinstance(loader.data, Data):
            return DataSource(loader.data, reading, aggregates)
        return StoreSource(loader.data[0], reading, aggregates, loader.custom_cls)


def _sampler_for(
    data: Any, request: SamplingRequest, threads: int | None, world: LocalWorld
) -> PygNeighborSampler:
    """Returns the user's sampler, or makes one for the graph in ``data``."""
    given = request.sampler
    if isinstance(given, PygNeighborSampler):
        return _checked(given, data, request.seed, threads)
    if given is not None:
        raise TypeError(
            f"neighbor_sampler must be a pyg_batchgnn.PygNeighborSampler, got {type(given).__name__}; "
            f"use torch_geometric.loader.NodeLoader with samplers of another kind"
        )
    graph = graph_from_pyg(data).advise_huge_pages()
    seed = world.seed(request.seed)
    return PygNeighborSampler(graph, request.num_neighbors, request.replace, seed, threads)


def _checked(
    given: PygNeighborSampler, data: Any, seed: int | None, threads: int | None
) -> PygNeighborSampler:
    if seed is not None or threads is not None:
        raise ValueError(
            f"neighbor_sampler has a seed and threads of its own, so seed={seed} and threads={threads} "
            f"would have no effect; give them to PygNeighborSampler"
        )
    nodes = given.macrobatch.graph.num_nodes
    if isinstance(data, Data) and data.num_nodes != nodes:
        raise ValueError(f"neighbor_sampler is for a graph of {nodes} nodes, but data has {data.num_nodes}")
    return given


def _native_cost(pipeline: Pipeline, sampled: Sequence[SampledMinibatch]) -> AttributeCost:
    """Measures native minibatches' attributes, by fetching those of the biggest one."""
    assert pipeline.fetcher is not None
    biggest = biggest_of(sampled)
    fetched = pipeline.fetcher.fetch(FetchGroup([biggest]))
    (ready,) = fetched.minibatches
    if ready.placement is Placement.IN_PLACE:
        return AttributeCost()
    unique = count_unique_nodes([biggest.node], pipeline.num_nodes)
    row = -(-fetched.bytes // max(1, unique)) + 8  # and the node's id
    return AttributeCost(row=row, minibatch=ready.nbytes - biggest.nbytes)


def _gathered_cost(pipeline: Pipeline, sampled: Sequence[SampledMinibatch]) -> AttributeCost:
    """Measures what PyG batches' attributes take, by gathering those of the biggest minibatch."""
    assert isinstance(pipeline.exporter, GatheringExporter)
    return AttributeCost(batch=pipeline.exporter.batch_bytes(biggest_of(sampled)))
