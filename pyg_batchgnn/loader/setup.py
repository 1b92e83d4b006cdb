"""What a loader is composed of, in one process or over ranks, and which arguments go together."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn import machine
from pyg_batchgnn.disk import are_mapped
from pyg_batchgnn.fetch import Fetcher, FetchGroup
from pyg_batchgnn.loader.budget import FOR_THREADS, AttributeCost, biggest_of
from pyg_batchgnn.loader.link_inputs import InputRequest, Inputs, InputsT, LinkPlace
from pyg_batchgnn.loader.options import Export, Features, LoaderOptions, has_edge_attributes, raise_first
from pyg_batchgnn.loader.pipeline import Exporter, GatheringExporter, NativeExporter, Pipeline
from pyg_batchgnn.loader.prefetch import Executor, T, ThreadExecutor
from pyg_batchgnn.loader.schedule import (
    DrawnOrder,
    DrawnSchedule,
    GlobalSchedule,
    Order,
    SeedSchedule,
    SeedStep,
    StepShape,
    order_of,
)
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
    SampledMinibatch,
    Sampler,
)
from pyg_batchgnn.store import TypedGraph, attribute_by_group
from pyg_batchgnn.types import FEATURES

if TYPE_CHECKING:
    from pyg_batchgnn.history import HistoricalCaches
    from pyg_batchgnn.loader.device_stage import DeviceStage
    from pyg_batchgnn.loader.node_inputs import GraphShape, GraphTimes
    from pyg_batchgnn.loader.on_disk import LookAhead
    from pyg_batchgnn.sample import TokenTimes


#: The largest macrobatch that "auto" stands for in one process: its threads have enough to share.
MAX_AUTO = 32


class World:
    """The processes that make a loader's macrobatches together: this one, or ranks
    (`RankWorld`)."""

    size: int = 1  # the number of processes
    #: True if making a macrobatch takes all processes, which then do everything in the same order
    collective: bool = False

    def agree(self, arguments: Callable[[], Mapping[str, Any]]) -> None:
        """Raises AgreementError unless the arguments are equal on all ranks."""

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all processes, by rank."""
        return [value]

    def seed(self, given: int | None) -> int:
        """Returns the given seed; for None one that is drawn, the same on all ranks."""
        return drawn_seed() if given is None else given

    def max_macrobatch(self, steps: int | None) -> int:  # noqa: ARG002
        """Returns the largest B for "auto" in an epoch of ``steps`` steps."""
        return MAX_AUTO

    def now(self, work: Callable[[], T]) -> T:
        return work()

    def executor(self) -> Executor:
        """Returns a new executor that prepares macrobatches for one iterator."""
        return ThreadExecutor()


def drawn_seed() -> int:
    """Draws a seed from torch's default generator."""
    return int(torch.empty((), dtype=torch.int64).random_())


class Setup(ABC):
    """Puts a loader together from its parts. `take_inputs` and `compose` are called once, in this
    order. Over ranks all methods are collective."""

    world: World
    choice: NeighborChoice  # the rules of the user's sampler, if there is one
    direction: Direction
    link_rules: LinkRules  # those of the user's sampler
    link_place: LinkPlace
    node_sampler: Any  # the sampler that PyG's loader is given
    graph: GraphShape
    num_edges: int  # of the whole graph
    names: Names
    times: GraphTimes | None  # None if sampling is not temporal
    plan: MinibatchPlan  # what the user asked for
    sampled_plan: MinibatchPlan  # what is sampled: without the hop that aggregates stand for

    inputs: Inputs
    schedule: SeedSchedule  # which seeds the steps of an epoch have
    pipeline: Pipeline  # makes the batches of an epoch
    calls: Pipeline  # makes the batches of ``loader(index)``, whose seeds may be any
    samplers: Sequence[Sampler]  # all samplers; they have one seed
    follower: HistoricalCaches | None = None  # hears of every step, on the user's thread

    def __init__(self, options: LoaderOptions) -> None:
        self.options = options
        self.stage: DeviceStage | None = None
        if options.device is not None:
            from pyg_batchgnn.loader.device_stage import DeviceStage

            self.stage = DeviceStage(options)

    def dataloader_arguments(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return kwargs

    def take_inputs(self, request: InputRequest[InputsT]) -> InputsT:
        inputs = request.inputs(self)
        self.inputs: Inputs = inputs
        return inputs

    @abstractmethod
    def compose(self, loader: NodeLoader) -> None:
        """Makes sampler, schedule and pipeline, after PyG's constructor has run."""

    @abstractmethod
    def cost(self, sampled: Sequence[SampledMinibatch]) -> AttributeCost:
        """Returns the memory of the attributes of sampled minibatches, at least one."""

    @abstractmethod
    def change_data(self, loader: NodeLoader) -> None:
        """Reads attributes from ``loader.data`` from now on, which was replaced."""

    @abstractmethod
    def inference_graph(self, data: Any) -> Any:
        """Returns the graph as `AllNodes` takes it."""

    def number(self, steps: Iterable[SeedStep]) -> Iterable[SeedStep]:
        """Adds the seeds' internal ids to the schedule's steps if the sampler needs them."""
        return steps

    def number_any(self, steps: Iterable[SeedStep]) -> Iterable[SeedStep]:
        """As `number`, for any seeds, also of other ranks."""
        return steps

    @property
    def token_times(self) -> TokenTimes | None:
        """The times that tokens carry; None without times."""
        if self.options.tokens is None or self.times is None:
            return None
        from pyg_batchgnn.sample import TokenTimes

        schema = self.graph.schema
        held: Any = getattr(self.times, "own", self.times)
        groups = schema.node_groups, schema.edge_groups
        timed = (tuple(at for at, one in enumerate(kind) if one in held.by_group) for kind in groups)
        return TokenTimes(held.name, *timed)

    def rules(self) -> dict[str, Any]:
        """Returns the rules of sampling that are not default and not in the plan, for JSON."""
        names = "time_attr", "weight_attr", "subgraph_type", "freeze"
        own = {name: self.choice.rules()[name] for name in names}
        own["sample_direction"] = self.direction.value
        default = {"subgraph_type": "directional", "sample_direction": "forward"}
        return {name: value for name, value in own.items() if value != default.get(name)}

    def shape(self, loader: NodeLoader) -> dict[str, Any]:
        """Returns the settings, beside seed, epoch and schedule, that decide the minibatches."""
        return {
            "num_nodes": list(self.graph.num_nodes),
            "num_edges": self.num_edges,
            **self.inputs.settings(),
            "batch_size": loader.batch_size,
            "drop_last": loader.drop_last,
            **self.sampled_plan.settings(),
            **self.rules(),
            "order": order_of(loader).value,
        }


def check_together(
    setup: Setup, kwargs: dict[str, Any], transform_sampler_output: Any, exclude_seed_edges: Any = False
) -> None:
    """Raises ValueError for arguments that contradict each other. ``kwargs``: of DataLoader."""
    options, choice = setup.options, setup.choice
    if workers := kwargs.get("num_workers", 0):
        in_workers = {
            f"prefetch={options.prefetch} is for threads; use prefetch_factor": options.prefetch,
            f"device='{options.device}' needs no worker processes; leave out": options.device is not None,
            "features='in_place' works in this process; leave out": options.features is Features.IN_PLACE,
        }
        raise_first(in_workers, f" num_workers={workers}")
    if kwargs.get("batch_size", 1) is None and kwargs.get("batch_sampler") is None:
        raise ValueError("batch_size=None is not possible: a minibatch is a list of seeds; use batch_size=1")
    if options.export is Export.NATIVE:
        only_pyg = {
            "transform_sampler_output": transform_sampler_output is not None,
            "subgraph_type='bidirectional'": choice.subgraph_type is SubgraphType.bidirectional,
            "sample_direction='backward'": setup.direction is Direction.BACKWARD,
        }
        text = "is for export='pyg', not 'native', whose edges are as they were sampled; leave it out"
        raise_first({f"{name} {text}": one for name, one in only_pyg.items()})
    elif options.features is not Features.AUTO or options.attributes is not None:
        raise ValueError("features and attributes are for export='native'; PyG batches carry every attribute")
    if options.tokens is not None:
        text, named, carried = f"tokens={options.tokens}", choice.time_attr, options.attributes
        is_left_out = named is not None and carried is not None and named not in carried
        conflicts = {
            "are of seeds with a subgraph each; give time_attr or disjoint=True": (
                named is None and not choice.disjoint
            ),
            "follow the edges that were sampled; leave subgraph_type out": (
                choice.subgraph_type is not SubgraphType.directional
            ),
            "are of the sample, which transform_sampler_output may change; use transform": (
                transform_sampler_output is not None
            ),
            f"have times, which attributes={carried} leaves out; add {named!r}": is_left_out,
        }
        raise_first({f"{text} {why}": one for why, one in conflicts.items()})
    if options.aggregation_cache is not None:
        subgraph = choice.subgraph_type
        given = {
            f"time_attr={choice.time_attr!r}": choice.time_attr is not None,
            f"weight_attr={choice.weight_attr!r}": choice.weight_attr is not None,
            "disjoint=True": choice.disjoint,
            f"subgraph_type={subgraph.value!r}": subgraph is not SubgraphType.directional,
            f"exclude_seed_edges={exclude_seed_edges!r}": exclude_seed_edges,
        }
        text = "an aggregation cache holds aggregates over all neighbours of a node; it does not go with "
        raise_first({f"{text}{name}: leave one of them out": one for name, one in given.items()})


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
    name, stores = options.schedule, "give (DistFeatureStore, DistGraphStore) as data"
    raise_first(
        {
            f"schedule={name and name.value!r} is for graphs that are spread over ranks: {stores}": name,
            "history has rows of nodes that other ranks own, but one process owns all of them: leave it out, "
            f"or {stores}": options.history is not None,
            "feature_cache keeps rows of other hosts, but one process reads all rows itself: leave it out, "
            f"or {stores}": options.feature_cache is not None,
        }
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
