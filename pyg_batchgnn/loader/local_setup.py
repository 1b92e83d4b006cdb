"""Composing a loader of a graph that one process holds whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NodeLoader

from pyg_batchgnn import machine
from pyg_batchgnn.disk import are_mapped
from pyg_batchgnn.fetch import Fetcher, FetchGroup
from pyg_batchgnn.loader.budget import FOR_THREADS, AttributeCost, biggest_of
from pyg_batchgnn.loader.export import Exporter, GatheringExporter, NativeExporter
from pyg_batchgnn.loader.link_inputs import LinkPlace
from pyg_batchgnn.loader.options import Export, Features, LoaderOptions, has_edge_attributes
from pyg_batchgnn.loader.pipeline import Pipeline
from pyg_batchgnn.loader.position import Order, order_of
from pyg_batchgnn.loader.schedule import DrawnOrder, DrawnSchedule, GlobalSchedule, StepShape
from pyg_batchgnn.loader.setup import Setup, World
from pyg_batchgnn.loader.source import (
    DataSource,
    Source,
    SourceFetcher,
    StoreSource,
    cached_tables,
    without_cached_hop,
)
from pyg_batchgnn.loader.stats import count_distinct
from pyg_batchgnn.ops import free_bytes
from pyg_batchgnn.sample import (
    Layout,
    LinkRules,
    MacrobatchSampler,
    Names,
    NeighborChoice,
    Placement,
    PygNeighborSampler,
    PygNodeSampler,
    SampledMinibatch,
)
from pyg_batchgnn.store import TypedGraph, attribute_by_group
from pyg_batchgnn.types import FEATURES

if TYPE_CHECKING:
    from pyg_batchgnn.loader.on_disk import LookAhead


#: The share of the memory beside the budget in which the page cache surely holds edges.
_CACHED = 0.8


class LocalSetup(Setup):
    """Composes the loader of one process."""

    graph: TypedGraph

    def __init__(self, node_sampler: PygNodeSampler, options: LoaderOptions, world: World) -> None:
        super().__init__(options)
        self.world, self.node_sampler, self.link_place = world, node_sampler, LinkPlace()
        self.graph, self.num_edges = node_sampler.graph, node_sampler.graph.num_edges
        self.choice, self.times = node_sampler.choice, node_sampler.times
        self.names, self.direction = node_sampler.form.names, node_sampler.form.direction
        self.plan = node_sampler.macrobatch.plan
        self.link_rules = getattr(node_sampler, "links", LinkRules())

    @classmethod
    def of(cls, data: Any, choice: NeighborChoice, sampler: Any, options: LoaderOptions) -> LocalSetup:
        _refuse_options_of_ranks(options)
        world = World()
        return cls(local_sampler(data, choice, sampler, options, world), options, world)

    def compose(self, loader: NodeLoader) -> None:
        fetcher, exporter = self._reading(loader)
        sampler = self._reading_edges(self._macrobatch_sampler(loader.data), loader)
        self.sampled_plan, self.samplers = sampler.plan, [self.node_sampler.macrobatch, sampler]
        self.pipeline = self.calls = Pipeline(self.inputs, sampler, fetcher, exporter, self.graph.num_nodes)
        self.pipeline.look_ahead = self._look_ahead
        if order_of(loader) is Order.DRAWN:
            self.schedule = DrawnSchedule(DrawnOrder.of(loader), len(self.inputs))
        else:
            self.schedule = GlobalSchedule(len(loader.sampler), 0, 1, StepShape.of(loader))

    def cost(self, sampled: Sequence[SampledMinibatch]) -> AttributeCost:
        biggest, exporter = biggest_of(sampled), self.pipeline.exporter
        if self._on_disk is not None:
            return _cost_on_disk(self._on_disk, self.options.export, biggest)
        if self._on_device:  # the distinct nodes of a fetch group, and the place of each node among them
            return AttributeCost(row=8, minibatch=8 * biggest.num_nodes)
        if self.options.export is Export.NATIVE:
            return _native_cost(self.pipeline, biggest)
        return AttributeCost(batch=exporter.batch_bytes(biggest))  # type: ignore[attr-defined]

    def inference_graph(self, data: Any) -> Any:
        found = attribute_by_group(data, FEATURES, self.graph)
        x = {str(group.name): one for group, one in found.items() if group.is_node}
        return self.graph, x, lambda name: attribute_by_group(data, name, self.graph)

    def change_data(self, loader: NodeLoader) -> None:
        if self.options.aggregation_cache is not None:
            raise AttributeError(
                "the aggregation cache is of the data that the loader was made with; make another loader"
            )
        self.pipeline.fetcher, self.pipeline.exporter = self._reading(loader)
        self.pipeline.look_ahead = self._look_ahead

    def _macrobatch_sampler(self, data: Any) -> MacrobatchSampler:
        """Makes a sampler with 32-bit node ids, and edge ids only if an edge attribute needs
        them."""
        made: MacrobatchSampler = self.node_sampler.macrobatch
        if self.options.export is Export.PYG:
            return made.with_plan(made.plan, Layout.CSC) if self._on_device else made
        plan = dataclasses.replace(made.plan, edge_ids=has_edge_attributes(data, self.graph))
        if self.options.aggregation_cache is not None:
            plan = without_cached_hop(plan, self.graph.schema)
        return made.with_plan(plan, Layout.CSC)

    def _reading_edges(self, sampler: MacrobatchSampler, loader: NodeLoader) -> MacrobatchSampler:
        """Returns a sampler that reads edges from their files if they are mapped and fit neither
        the memory budget nor, beside it, the page cache. Else returns the sampler as it is."""
        edges = self.graph.relations
        arrays = [one for each in edges for one in (each.indptr, each.indices, each.edge_ids)]
        known = [one for one in arrays if one is not None]
        if not self._reads_files(loader) or not any(are_mapped(known)):
            return sampler
        size, budget = sum(one.nbytes for one in known), self._budget()
        if size <= budget or cache_holds(size, budget):
            return sampler
        from pyg_batchgnn.sample import DiskSampler

        return DiskSampler.wanted(sampler, budget)

    def _reading(self, loader: NodeLoader) -> tuple[Fetcher | None, Exporter]:
        """Makes the fetcher and the exporter that read attributes from ``loader.data``."""
        source, graph, times = self._source(loader), self.graph, self.token_times
        form = dataclasses.replace(self.node_sampler.form, times=times)
        self._look_ahead: LookAhead | None = None
        self._on_disk: DataSource | None = None
        self._on_device = False
        fetcher = self._from_disk(source) if isinstance(source, DataSource) else None
        plain: GatheringExporter | None = None
        if self.options.export is Export.PYG:
            plain = GatheringExporter(source, form, self.inputs.info, loader.transform_sampler_output)
        if self.stage is None:
            if fetcher is None and plain is None:
                fetcher = SourceFetcher(source, graph)
            return fetcher, plain or NativeExporter(times)
        from pyg_batchgnn.loader.on_device import (
            BatchExporter,
            DeviceRows,
            MinibatchExporter,
            RowsExporter,
            why_not_on_device,
        )

        why_not = why_not_on_device(source, fetcher, form, loader.transform_sampler_output, plain is None)
        if why_not is None:
            assert isinstance(source, DataSource)
            self._on_device = True
            rows = DeviceRows(
                self.stage, source, graph, plain is None, self.plan, self.inputs, loader.batch_size
            )
            return rows, RowsExporter(rows, source, form, self.inputs.info, plain)
        self.stage.refuse_choices(why_not)
        if plain is not None:
            return fetcher, BatchExporter(self.stage, plain)
        bounds = max(graph.num_nodes), max((one.num_edges for one in graph.relations), default=0)
        exporter = MinibatchExporter(self.stage, NativeExporter(times), bounds, gathers=fetcher is not None)
        return fetcher or SourceFetcher(source, graph), exporter

    def _from_disk(self, source: DataSource) -> Fetcher | None:
        """Returns the fetcher of tables in mapped files that do not fit memory; None if all fit."""
        rows = None if source.mapped is None else source.mapped.rows
        if source.mapped is None or rows is None:
            return None
        from pyg_batchgnn.loader.on_disk import DiskFetcher, LookAhead

        num_nodes = self.graph.num_nodes
        self._look_ahead, self._on_disk = LookAhead(source.mapped, rows, num_nodes), source
        if self.options.export is Export.PYG:
            return DiskFetcher(source.mapped, rows, num_nodes)
        source.beside()  # refuses what cannot be read before anything is sampled
        return DiskFetcher(source.mapped, rows, num_nodes, source)

    def _source(self, loader: NodeLoader) -> Source:
        cache, own, data, graph = self.options.aggregation_cache, self.options, loader.data, self.graph
        # Tables of the whole graph do not travel to a device with a minibatch.
        features = own.features if self.stage is None else Features.COPY
        # Worker processes are sent a source, and no caches with it.
        options = LoaderOptions(export=own.export, features=features, attributes=own.attributes)
        aggregates = {} if cache is None else cached_tables(cache, data, graph)
        if isinstance(data, (Data, HeteroData)):
            budget = self._budget if self._reads_files(loader) else None
            return DataSource(data, graph.schema, options, aggregates, budget)
        return StoreSource(data[0], graph, options, aggregates, loader.custom_cls)

    def _reads_files(self, loader: NodeLoader) -> bool:
        """Returns whether the loader reads mapped files itself. Otherwise the system does: the user
        wants tables in place, or other processes read them."""
        return self.options.features is not Features.IN_PLACE and not loader.num_workers

    def _budget(self) -> int:
        """Returns the bytes that the loader may take if tables lie in mapped files."""
        return self.options.memory_budget or FOR_THREADS * free_bytes()


def cache_holds(size: int, budget: int) -> bool:
    """Returns whether the page cache holds ``size`` bytes of edges beside ``budget`` bytes. If so,
    mapped edges are read once a page. Direct reads take a block for almost every pick, in each hop
    of each macrobatch, but no memory beyond the budget."""
    return size <= _CACHED * (machine.memory().available - budget)


def _refuse_options_of_ranks(options: LoaderOptions) -> None:
    if options.schedule is not None:
        raise ValueError(
            f"schedule={options.schedule.value!r} is for graphs that are spread over ranks: give "
            f"(DistFeatureStore, DistGraphStore) as data"
        )
    if options.history is not None:
        raise ValueError(
            "history has rows of nodes that other ranks own, but one process owns all of them: leave it out, "
            "or give (DistFeatureStore, DistGraphStore) as data"
        )
    if options.feature_cache is not None:
        raise ValueError(
            "feature_cache keeps rows of other hosts, but one process reads all rows itself: leave it "
            "out, or give (DistFeatureStore, DistGraphStore) as data"
        )


def _native_cost(pipeline: Pipeline, biggest: SampledMinibatch) -> AttributeCost:
    """Measures a native minibatch's attributes, by fetching them."""
    assert pipeline.fetcher is not None
    fetched = pipeline.fetcher.fetch(FetchGroup([biggest]))
    (ready,) = fetched.minibatches
    if all(rows.placement is Placement.IN_PLACE for rows in ready.attributes.values()):
        return AttributeCost()
    unique = count_distinct([biggest], pipeline.num_nodes)
    row = -(-fetched.bytes // max(1, unique)) + 8  # and the node's id
    return AttributeCost(row=row, minibatch=ready.nbytes - biggest.nbytes)


def _cost_on_disk(source: DataSource, export: Export, biggest: SampledMinibatch) -> AttributeCost:
    """Returns the memory of attributes without the blocks of rows from files. Nothing is read."""
    schema, counts = biggest.schema, [one.node.numel() for one in biggest.nodes]
    if export is Export.NATIVE:
        rows = (source.row_bytes(group) for group in schema.node_groups)
        return AttributeCost(row=max(rows, default=0), minibatch=8 * sum(counts))
    edges = [0 if one.edge is None else one.edge.numel() for one in biggest.edges]
    pairs = (*zip(counts, schema.node_groups, strict=True), *zip(edges, schema.edge_groups, strict=True))
    return AttributeCost(batch=sum(count * source.batch_bytes(group) for count, group in pairs))


def local_sampler(
    data: Any, choice: NeighborChoice, given: Any, options: LoaderOptions, world: World
) -> PygNeighborSampler:
    if isinstance(given, PygNeighborSampler):
        if options.seed is not None or options.threads is not None:
            raise ValueError(
                f"neighbor_sampler has a seed and threads of its own, so seed={options.seed} and "
                f"threads={options.threads} would have no effect; give them to PygNeighborSampler"
            )
        own, default = given.choice.rules(), NeighborChoice().rules()
        for name, value in choice.rules().items():
            if value not in (default[name], own[name]):
                raise ValueError(
                    f"{name}={value!r} would have no effect, as neighbor_sampler has {own[name]!r}; give it "
                    f"to PygNeighborSampler"
                )
        _check_graph(given, data)
        return given
    if given is not None:
        raise TypeError(
            f"neighbor_sampler must be a pyg_batchgnn.PygNeighborSampler, got {type(given).__name__}; "
            f"use torch_geometric.loader.NodeLoader with samplers of another kind"
        )
    return PygNeighborSampler.of(data, choice, world.seed(options.seed), options.threads)


def _check_graph(given: PygNeighborSampler, data: Any) -> None:
    schema, counts = given.graph.schema, given.graph.num_nodes
    is_typed = given.form.names is Names.TYPES
    if isinstance(data, (Data, HeteroData)) and isinstance(data, HeteroData) != is_typed:
        kind, other = ("typed", "homogeneous") if is_typed else ("homogeneous", "typed")
        raise ValueError(f"neighbor_sampler is for a {kind} graph, but data is {other}; make it for data")
    if isinstance(data, HeteroData):
        expected = dict(zip(schema.node_types, counts, strict=True))
        found = {name: data[name].num_nodes for name in data.node_types}
        if found != expected:
            raise ValueError(f"neighbor_sampler is for a graph of {expected} nodes, but data has {found}")
    elif isinstance(data, Data) and data.num_nodes != counts[0]:
        raise ValueError(
            f"neighbor_sampler is for a graph of {counts[0]} nodes, but data has {data.num_nodes}"
        )
