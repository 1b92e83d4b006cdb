"""Composing a loader of a graph that one process holds whole."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NodeLoader

from pyg_batchgnn import machine
from pyg_batchgnn.disk import are_mapped
from pyg_batchgnn.fetch import Fetcher, FetchGroup
from pyg_batchgnn.loader.budget import FOR_THREADS, AttributeCost, biggest_of
from pyg_batchgnn.loader.export import Exporter, GatheringExporter, NativeExporter
from pyg_batchgnn.loader.link_negatives import InputRequest, Inputs, InputsT, LinkPlace
from pyg_batchgnn.loader.options import Export, Features, LoaderOptions, SamplingRequest, has_edge_attributes
from pyg_batchgnn.loader.pipeline import Composition, Pipeline, rules_of, shape_of, step_shape
from pyg_batchgnn.loader.position import Order, order_of
from pyg_batchgnn.loader.prefetch import World
from pyg_batchgnn.loader.schedule import DrawnOrder, DrawnSchedule, GlobalSchedule, SeedSchedule
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
    Direction,
    Layout,
    LinkRules,
    MacrobatchSampler,
    MinibatchPlan,
    Names,
    NeighborChoice,
    Placement,
    PygNeighborSampler,
    PygNodeSampler,
    PygParts,
    Replacement,
    SampledMinibatch,
)
from pyg_batchgnn.store import Sortedness, attribute_by_group
from pyg_batchgnn.types import FEATURES, Group

if TYPE_CHECKING:
    from pyg_batchgnn.loader.device_stage import DeviceStage
    from pyg_batchgnn.loader.on_disk import LookAhead

# Setup ############################################################################################

#: The layouts that attributes may have. Native layers read dense rows.
_LAYOUTS = {Export.PYG: (torch.strided, torch.sparse_coo), Export.NATIVE: (torch.strided,)}
#: The share of the memory beside the budget in which the page cache surely holds edges.
_CACHED = 0.8


class LocalSetup:
    """Composes the loader of one process."""

    def __init__(self, node_sampler: PygNodeSampler, options: LoaderOptions, world: World) -> None:
        self.world, self.node_sampler = world, node_sampler
        self._graph, self._options = node_sampler.graph, options
        self.stage: DeviceStage | None = None
        if options.device is not None:
            from pyg_batchgnn.loader.device_stage import DeviceStage

            self.stage = DeviceStage(options)
        # The user's sampler may have rules of its own.
        self.choice: NeighborChoice = node_sampler.choice
        self.plan: MinibatchPlan = node_sampler.macrobatch.plan
        self.direction: Direction = node_sampler.form.direction
        self.link_place = LinkPlace()

    @classmethod
    def of(cls, data: Any, request: SamplingRequest, options: LoaderOptions) -> LocalSetup:
        _refuse_options_of_ranks(request, options)
        world = World()
        return cls(local_sampler(data, request, options.threads, world), options, world)

    @property
    def link_rules(self) -> LinkRules:
        rules: LinkRules = self.node_sampler.links  # samplers of nodes alone have none
        return rules

    def dataloader_arguments(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return kwargs

    def take_inputs(self, request: InputRequest[InputsT]) -> InputsT:
        sampler = self.node_sampler
        inputs = request.inputs(self._graph, sampler.times, sampler.form.names)
        self._inputs: Inputs = inputs
        return inputs

    def compose(self, loader: NodeLoader) -> Composition:
        order, graph = order_of(loader), self._graph
        fetcher, exporter = self._reading(loader)
        sampler = self._reading_edges(self._macrobatch_sampler(loader.data), loader)
        pipeline = Pipeline(self._inputs, sampler, fetcher, exporter, graph.num_nodes)
        pipeline.look_ahead = self._look_ahead
        rules = rules_of(self.choice, self.direction)
        schedule: SeedSchedule = (
            DrawnSchedule(DrawnOrder.of(loader), len(self._inputs))
            if order is Order.DRAWN
            else GlobalSchedule(len(loader.sampler), 0, 1, step_shape(loader))
        )
        return Composition(
            schedule,
            pipeline,
            functools.partial(self._cost_on_disk or self._cost(), pipeline),
            [self.node_sampler.macrobatch, sampler],
            functools.partial(shape_of, sampler.plan, rules, graph.num_nodes, graph.num_edges, self._inputs),
        )

    def _cost(self) -> Callable[..., AttributeCost]:
        if self._on_device:
            return _cost_beside_device
        return _native_cost if self._options.export is Export.NATIVE else _gathered_cost

    def graph(self, data: Any) -> Any:
        found = attribute_by_group(data, FEATURES, self._graph)
        return self._graph, {str(group.name): x for group, x in found.items() if group.is_node}

    def change_data(self, pipeline: Pipeline, loader: NodeLoader) -> None:
        if self._options.aggregation_cache is not None:
            raise AttributeError(
                "the aggregation cache is of the data that the loader was made with; make another loader"
            )
        pipeline.fetcher, pipeline.exporter = self._reading(loader)
        pipeline.look_ahead = self._look_ahead

    def _macrobatch_sampler(self, data: Any) -> MacrobatchSampler:
        """Makes a sampler of 32-bit CSC, with edge ids only if an edge attribute needs them."""
        made: MacrobatchSampler = self.node_sampler.macrobatch
        if self._options.export is Export.PYG:
            return made.with_plan(made.plan, Layout.CSC) if self._on_device else made
        plan = dataclasses.replace(made.plan, edge_ids=has_edge_attributes(data, self._graph))
        if self._options.aggregation_cache is not None:
            plan = without_cached_hop(plan, self._graph.schema)
        return made.with_plan(plan, Layout.CSC)

    def _reading_edges(self, sampler: MacrobatchSampler, loader: NodeLoader) -> MacrobatchSampler:
        """Returns a sampler that reads edges from files if they are mapped, do not fit the budget,
        and the page cache cannot hold them beside it."""
        budget, edges = self._disk_budget(loader), self._graph.relations
        arrays = [one for each in edges for one in (each.indptr, each.indices, each.edge_ids)]
        known = [one for one in arrays if one is not None]
        size = sum(one.nbytes for one in known)
        if budget is None or size <= budget or not any(are_mapped(known)) or cache_holds(size, budget):
            return sampler
        from pyg_batchgnn.sample import DiskSampler

        return DiskSampler.wanted(sampler, budget)

    def _reading(self, loader: NodeLoader) -> tuple[Fetcher | None, Exporter]:
        """Makes the fetcher and the exporter that read attributes from ``loader.data``."""
        source, graph = self._source(loader), self._graph
        self._look_ahead: LookAhead | None = None
        self._on_device = False
        self._cost_on_disk: Callable[..., AttributeCost] | None = None
        from_disk = self._from_disk(source) if isinstance(source, DataSource) else None
        if self._options.export is Export.PYG:
            hook, info = loader.transform_sampler_output, self._inputs.info
            plain = GatheringExporter(source, self.node_sampler.form, info, hook)
            return self._on_the_way(loader, source, from_disk, plain)
        if from_disk is not None or self.stage is not None:
            return self._on_the_way(loader, source, from_disk, NativeExporter())
        num_nodes = dict(zip(graph.schema.node_groups, graph.num_nodes, strict=True))
        source.tables(num_nodes)  # refuses what cannot be read before anything is sampled
        return SourceFetcher(source, num_nodes), NativeExporter()

    def _on_the_way(
        self, loader: NodeLoader, source: Source, fetcher: Fetcher | None, exporter: Exporter
    ) -> tuple[Fetcher | None, Exporter]:
        """Returns what makes batches on the loader's device, if it has one."""
        if self.stage is None:
            return fetcher, exporter
        from pyg_batchgnn.loader.on_device import (
            BatchExporter,
            DeviceRows,
            MinibatchExporter,
            RowsExporter,
            why_not_on_device,
        )

        graph, form = self._graph, self.node_sampler.form
        plain = exporter if isinstance(exporter, GatheringExporter) else None
        why_not = why_not_on_device(source, fetcher, form, loader.transform_sampler_output, plain is None)
        if why_not is None:
            assert isinstance(source, DataSource)
            self._on_device = True
            rows = DeviceRows(
                self.stage, source, graph, plain is None, self.plan, self._inputs, loader.batch_size
            )
            return rows, RowsExporter(rows, source, form, self._inputs.info, plain)
        self.stage.refuse_choices(why_not)
        if plain is not None:
            return fetcher, BatchExporter(self.stage, plain)
        bounds = max(graph.num_nodes), max((one.num_edges for one in graph.relations), default=0)
        if fetcher is not None:
            return fetcher, MinibatchExporter(self.stage, exporter, bounds, gathers=True)
        num_nodes = dict(zip(graph.schema.node_groups, graph.num_nodes, strict=True))
        source.tables(num_nodes)  # refuses what cannot be read before anything is sampled
        return SourceFetcher(source, num_nodes), MinibatchExporter(self.stage, exporter, bounds)

    def _from_disk(self, source: DataSource) -> Fetcher | None:
        """Makes what reads tables that do not fit memory from their files; None if all fit."""
        rows = None if source.mapped is None else source.mapped.rows
        if source.mapped is None or rows is None:
            return None
        from pyg_batchgnn.loader.on_disk import DiskFetcher, LookAhead

        num_nodes = self._graph.num_nodes
        self._look_ahead = LookAhead(source.mapped, rows, num_nodes)
        self._cost_on_disk = functools.partial(_cost_on_disk, source, self._options.export)
        if self._options.export is Export.PYG:
            return DiskFetcher(source.mapped, rows, num_nodes, _nothing, _nothing)
        source.beside()  # refuses what cannot be read before anything is sampled
        return DiskFetcher(source.mapped, rows, num_nodes, source.beside, source.others)

    def _source(self, loader: NodeLoader) -> Source:
        cache, reading = self._options.aggregation_cache, self._options.reading
        if self.stage is not None:  # tables of the whole graph do not travel with a minibatch
            reading = dataclasses.replace(reading, features=Features.COPY)
        graph, schema = self._graph, self._graph.schema
        aggregates = {} if cache is None else cached_tables(cache, loader.data, graph)
        if isinstance(loader.data, (Data, HeteroData)):
            export = self._options.export
            lists = export is Export.PYG
            budget = self._disk_budget(loader)
            return DataSource(loader.data, schema, reading, aggregates, _LAYOUTS[export], lists, budget)
        return StoreSource(loader.data[0], graph, reading, aggregates, loader.custom_cls)

    def _disk_budget(self, loader: NodeLoader) -> int | None:
        """Returns the bytes that the loader may take if tables lie in mapped files. None leaves
        these to the system: the user wants them in place, or other processes read them."""
        if self._options.reading.features is Features.IN_PLACE or loader.num_workers:
            return None
        return self._options.memory_budget or FOR_THREADS * free_bytes()


def cache_holds(size: int, budget: int) -> bool:
    """Returns whether the page cache holds files of edges beside the budget. Then their mapping
    costs each page once. Reading costs a block for nearly every pick, in each hop of each
    macrobatch, and takes no memory but the budget."""
    return size <= _CACHED * (machine.memory().available - budget)


def _nothing(*_: SampledMinibatch) -> dict[Group, Any]:
    return {}


def _refuse_options_of_ranks(request: SamplingRequest, options: LoaderOptions) -> None:
    if request.schedule is not None:
        raise ValueError(
            f"schedule={request.schedule.value!r} is for graphs that are spread over ranks: give "
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


def _native_cost(pipeline: Pipeline, sampled: Sequence[SampledMinibatch]) -> AttributeCost:
    """Measures native minibatches' attributes, by fetching those of the biggest one."""
    assert pipeline.fetcher is not None
    biggest = biggest_of(sampled)
    fetched = pipeline.fetcher.fetch(FetchGroup([biggest]))
    (ready,) = fetched.minibatches
    if all(rows.placement is Placement.IN_PLACE for rows in ready.attributes.values()):
        return AttributeCost()
    unique = count_distinct([biggest], pipeline.num_nodes)
    row = -(-fetched.bytes // max(1, unique)) + 8  # and the node's id
    return AttributeCost(row=row, minibatch=ready.nbytes - biggest.nbytes)


def _cost_on_disk(
    source: DataSource, export: Export, pipeline: Pipeline, sampled: Sequence[SampledMinibatch]
) -> AttributeCost:
    """Returns what minibatches' attributes take beside blocks of rows in files. Nothing is read."""
    del pipeline
    biggest, schema = biggest_of(sampled), sampled[0].schema
    counts = [one.node.numel() for one in biggest.nodes]
    of_nodes = [source.row_bytes(group) for group in schema.node_groups]
    if export is Export.PYG:
        of_nodes = [source.batch_bytes(group) for group in schema.node_groups]
        of_edges = [source.batch_bytes(group) for group in schema.edge_groups]
        edges = [0 if one.edge is None else one.edge.numel() for one in biggest.edges]
        pairs = (*zip(counts, of_nodes, strict=True), *zip(edges, of_edges, strict=True))
        return AttributeCost(batch=sum(count * size for count, size in pairs))
    return AttributeCost(row=max(of_nodes, default=0), minibatch=8 * sum(counts))


def _gathered_cost(pipeline: Pipeline, sampled: Sequence[SampledMinibatch]) -> AttributeCost:
    """Measures what PyG batches' attributes take, by gathering those of the biggest minibatch."""
    exporter: Any = pipeline.exporter  # one that makes PyG batches
    return AttributeCost(batch=exporter.batch_bytes(biggest_of(sampled)))


def _cost_beside_device(_: Pipeline, sampled: Sequence[SampledMinibatch]) -> AttributeCost:
    """Returns what minibatches take here whose attributes lie on a device. These are the distinct
    nodes of a fetch group, and the place of each node among them."""
    return AttributeCost(row=8, minibatch=8 * biggest_of(sampled).num_nodes)


# Sampler ##########################################################################################


def local_sampler(
    data: Any, request: SamplingRequest, threads: int | None, world: World
) -> PygNeighborSampler:
    given = request.sampler
    if isinstance(given, PygNeighborSampler):
        _check(given, request, threads)
        _check_graph(given, data)
        return given
    if given is not None:
        raise TypeError(
            f"neighbor_sampler must be a pyg_batchgnn.PygNeighborSampler, got {type(given).__name__}; "
            f"use torch_geometric.loader.NodeLoader with samplers of another kind"
        )
    parts = PygParts.of(
        data, request.num_neighbors, request.replace, request.choice, world.seed(request.seed), threads
    )
    return PygNeighborSampler.of(parts, request.num_neighbors)


def _check(given: PygNeighborSampler, request: SamplingRequest, threads: int | None) -> None:
    if request.seed is not None or threads is not None:
        raise ValueError(
            f"neighbor_sampler has a seed and threads of its own, so seed={request.seed} and "
            f"threads={threads} would have no effect; give them to PygNeighborSampler"
        )
    wanted = {"replace": request.replace, **_fields(request.choice)}
    own = {"replace": given.macrobatch.plan.replacement is Replacement.WITH, **_fields(given.choice)}
    default = {"replace": False, **_fields(NeighborChoice())}
    for name, value in wanted.items():
        if value not in (default[name], own[name]):
            raise ValueError(
                f"{name}={value!r} would have no effect, as neighbor_sampler has {own[name]!r}; give it to "
                f"PygNeighborSampler"
            )


def _fields(choice: NeighborChoice) -> dict[str, Any]:
    """Returns the rules, named as the loader's arguments are."""
    return {
        "subgraph_type": choice.subgraph.value,
        "disjoint": choice.disjoint,
        "temporal_strategy": choice.temporal_strategy,
        "time_attr": choice.time_attr,
        "time_window": choice.time_window,
        "weight_attr": choice.weight_attr,
        "is_sorted": choice.sortedness is Sortedness.PROMISED,
    }


def _check_graph(given: PygNeighborSampler, data: Any) -> None:
    """Raises ValueError unless ``data`` has the nodes of the sampler's graph."""
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
