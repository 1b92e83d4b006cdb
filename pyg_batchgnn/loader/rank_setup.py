"""Composing a loader of a graph that is partitioned over ranks."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeGuard

import torch
from torch_geometric.loader import NodeLoader

from pyg_batchgnn.fetch import CacheRequest, RemoteFetcher, SeedShare
from pyg_batchgnn.history import HaloSampler, OwnRowFetcher
from pyg_batchgnn.loader.budget import AttributeCost
from pyg_batchgnn.loader.export import BlockExporter, Exporter, NativeExporter
from pyg_batchgnn.loader.link_negatives import InputRequest, Inputs, InputsT
from pyg_batchgnn.loader.node_inputs import NodeInputs, NodeRequest
from pyg_batchgnn.loader.options import Export, LoaderOptions, SamplingRequest
from pyg_batchgnn.loader.pipeline import (
    Composition,
    NumberSeeds,
    Pipeline,
    as_they_are,
    rules_of,
    shape_of,
    step_shape,
)
from pyg_batchgnn.loader.rank_inputs import (
    LinksOverRanks,
    OwnSeeds,
    RankWorld,
    TrainedSeeds,
    cached_store,
    from_table,
    looked_up,
    partitioned_stores,
    refuse_over_ranks,
    with_splits,
    without_workers,
)
from pyg_batchgnn.loader.schedule import GlobalSchedule, LocalSchedule, ScheduleName, SeedSchedule
from pyg_batchgnn.loader.source import bytes_more, without_cached_hop
from pyg_batchgnn.ops import digest_text, minibatch_key
from pyg_batchgnn.sample import (
    Direction,
    Layout,
    LinkRules,
    MacrobatchSampler,
    Names,
    NeighborChoice,
    PartitionedSampler,
    PygForm,
    SampledMinibatch,
    SamplingPlan,
)
from pyg_batchgnn.store import (
    DistFeatureStore,
    DistGraphStore,
    PartTimes,
    Sortedness,
    TimeOrder,
    Times,
    WeightSums,
    own_sums,
    replicate_attribute,
    sum_weights,
)
from pyg_batchgnn.types import NODES, Group

if TYPE_CHECKING:
    from pyg_batchgnn.loader.device_stage import DeviceStage


class RankSetup:
    """Composes the loader of one rank. All methods are collective."""

    node_sampler = None
    link_rules = LinkRules()
    direction = Direction.FORWARD

    def __init__(self, data: Any, request: SamplingRequest, options: LoaderOptions) -> None:
        self._features, self._graph = partitioned_stores(data)
        self.world, self.choice = RankWorld(self._graph.comm), request.choice
        self._schedule_name = request.schedule or ScheduleName.LOCAL
        # After what another loader prepares. Times and weights take exchanges of their own.
        given = {"is_sorted": self.choice.sortedness is Sortedness.PROMISED, **self._rules()}
        self.world.agree(lambda: {"schedule": self._schedule_name.value, **given})
        self._request, self._options = request, options
        self.stage: DeviceStage | None = None
        if options.device is not None:
            from pyg_batchgnn.loader.device_stage import DeviceStage

            self.stage = DeviceStage(options)
            self.stage.refuse_choices("the graph lies over ranks")
        self._sampling = RankSampling.of(self._features, self._graph, request)
        self.plan = self._sampling.plan
        cache, schema = options.aggregation_cache, self._graph.part.schema
        self._plan = self.plan if cache is None else without_cached_hop(self.plan, schema)
        self.link_place = LinksOverRanks(self._graph, self._schedule_name)

    def dataloader_arguments(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        refuse_over_ranks(self._request, self._options.reading.features, kwargs)
        return without_workers(kwargs)

    def take_inputs(self, request: InputRequest[InputsT]) -> InputsT:
        """Checks what minibatches begin with. A split may stand for its nodes."""
        if isinstance(request, NodeRequest):
            request = dataclasses.replace(request, nodes=with_splits(self._graph, request.nodes))
        topology = self._graph.topology
        graph = self._graph.shape if topology is None else topology.graph
        inputs = request.inputs(graph, self._sampling.times, self._names)
        self._inputs: Inputs = inputs
        return inputs

    def compose(self, loader: NodeLoader) -> Composition:
        if loader.transform_sampler_output is not None:
            raise ValueError("transform_sampler_output is not possible over ranks; use transform")
        options, graph, inputs = self._options, self._graph, self._inputs
        counts = graph.shape.num_nodes, graph.num_edges
        shape = functools.partial(shape_of, self._plan, self._rules(), *counts, inputs)
        self.world.agree(lambda: {**shape(loader), **self._arguments()})
        seed = self.world.seed(self._request.seed)
        trained = self._trained_seeds(OwnSeeds.of(graph.part, inputs.owned_by))
        schedule = self._schedule(loader, trained.seeds)
        fetcher = self._fetcher()
        samplers = self._samplers(seed)
        exporter = self._exporter(loader.custom_cls)
        pipeline = Pipeline(inputs, samplers.scheduled, fetcher, exporter, self._id_bounds)
        if options.feature_cache is not None and isinstance(fetcher, RemoteFetcher):
            request = CacheRequest(options.feature_cache, self._plan, self._share(loader, trained))
            self.world.now(lambda: fetcher.make_cache(request))
        return Composition(
            schedule,
            pipeline,
            functools.partial(_cost, fetcher.row_bytes, self._bytes_more(), options.export),
            [samplers.scheduled, samplers.any],
            shape,
            any_pipeline=pipeline.with_sampler(samplers.any),
            number=self._number(trained.seeds),
            number_any=looked_up(inputs, graph) if self._looks_up(inputs) else as_they_are,
        )

    def graph(self, data: Any) -> Any:  # noqa: ARG002
        return self._features, self._graph

    def change_data(self, pipeline: Pipeline, loader: NodeLoader) -> NoReturn:  # noqa: ARG002
        raise AttributeError("a loader over ranks reads the stores that it was made with; make another one")

    # What ranks must agree on ####################################################################

    def _rules(self) -> dict[str, Any]:
        return rules_of(self.choice, self.direction)

    def _arguments(self) -> dict[str, Any]:
        """Returns what must be the same on every rank, beside the shape of an epoch."""
        return {
            **self._options.agreed(),
            "seed": self._request.seed,
            "hybrid": self._graph.topology is not None,
            "attributes of the stores": [
                [str(group), *sorted(named)] for group, named in self._features.fields.items()
            ],
        }

    # Parts #######################################################################################

    @property
    def _names(self) -> Names:
        return Names.TYPES if self._graph.part.schema.has_names else Names.NONE

    @property
    def _id_bounds(self) -> Sequence[int]:
        """Numbers above all ids of each type; the internal ids of all types are one sequence."""
        graph = self._graph
        return (
            graph.shape.num_nodes if graph.topology is not None else [graph.num_nodes] * graph.book.num_types
        )

    def _trained_seeds(self, own: OwnSeeds) -> TrainedSeeds:
        if self._schedule_name is ScheduleName.BALANCED:
            return TrainedSeeds.balanced(own, self._graph.comm)
        return TrainedSeeds.by_owners(own, self._graph.comm.rank)

    def _schedule(self, loader: NodeLoader, seeds: OwnSeeds) -> SeedSchedule:
        shape, comm = step_shape(loader), self._graph.comm
        if self._schedule_name is ScheduleName.GLOBAL:
            return GlobalSchedule(len(self._inputs), comm.rank, comm.size, shape)
        counts = comm.all_gather_json(seeds.positions.numel())
        partition = comm.all_gather_json(digest_text(minibatch_key(self._graph.part.node)))
        lists: dict[str, Any] = {"schedule": self._schedule_name.value, "partition": partition}
        if self._schedule_name is ScheduleName.BALANCED:
            lists["hosts"] = list(comm.hosts)
        return LocalSchedule(seeds.positions, counts, comm.rank, shape, lists)

    def _number(self, seeds: OwnSeeds) -> NumberSeeds:
        inputs = self._inputs
        if not self._looks_up(inputs):
            return as_they_are
        if self._schedule_name is ScheduleName.GLOBAL:
            return looked_up(inputs, self._graph)
        internal = torch.full((len(inputs),), -1)
        internal[seeds.positions] = seeds.internal
        return from_table(inputs, internal)

    def _looks_up(self, inputs: Inputs) -> TypeGuard[NodeInputs]:
        """Returns whether seeds need internal ids that they do not come with, as links do."""
        return self._graph.topology is None and isinstance(inputs, NodeInputs)

    def _fetcher(self) -> RemoteFetcher | OwnRowFetcher:
        cache, features, names = self._options.aggregation_cache, self._features, self._attributes()
        if cache is not None:
            features = cached_store(cache, features)
            nodes = features.part.schema.node_groups[0]
            names[nodes] = [*names[nodes], cache.attribute]
        topology = self._graph.topology
        internal = None if topology is None else topology.internal
        return RemoteFetcher(features, names, internal)

    def _attributes(self) -> dict[Group, list[str]]:
        """Returns the names of the attributes that batches carry, by group. Every group of nodes is
        there, and the groups of edges that have such attributes."""
        known = self._features.fields
        every = dict.fromkeys(name for fields in known.values() for name in fields)
        chosen = self._options.reading.chosen(every)
        names = {group: [name for name in chosen if name in fields] for group, fields in known.items()}
        return {group: own for group, own in names.items() if own or group.is_node}

    def _bytes_more(self) -> list[int]:
        """Returns by node type how much larger a node's attributes are in a PyG batch, where codes
        are decoded, than on the wire."""
        tables, names = self._features.own.attributes, self._attributes()
        return [
            sum(bytes_more(tables[group][name]) for name in names[group])
            for group in self._graph.part.schema.node_groups
        ]

    def _samplers(self, seed: int) -> RankSamplers:
        plan, options = self._plan, self._options
        layout = Layout.COO
        if self.stage is not None:
            layout = Layout.CSC
        if options.export is Export.NATIVE:
            has_edges = any(group.is_edge for group in self._attributes())
            plan, layout = dataclasses.replace(plan, edge_ids=has_edges), Layout.CSC
        return self._sampling.samplers(
            plan,
            seed,
            options.threads,
            layout,
            own=self._schedule_name is ScheduleName.LOCAL and self._looks_up(self._inputs),
            excluding=self._inputs.excluding,
        )

    def _exporter(self, custom_cls: Any) -> Exporter:
        made: Exporter = NativeExporter()
        if self._options.export is Export.PYG:
            form = PygForm(self._names, self.choice.subgraph)
            made = BlockExporter(form, self._inputs.info, custom_cls)
        if self.stage is None:
            return made
        from pyg_batchgnn.loader.on_device import MinibatchExporter

        bounds = max(self._id_bounds), self._graph.num_edges
        return MinibatchExporter(self.stage, made, bounds)

    def _share(self, loader: NodeLoader, trained: TrainedSeeds) -> SeedShare:
        """Returns the share of this rank's nodes that are seeds."""
        is_global = self._schedule_name is ScheduleName.GLOBAL
        every = len(self._inputs) if is_global else trained.seeds.positions.numel()
        assert loader.batch_size is not None
        probability = min(1.0, loader.batch_size / max(every, 1))
        rows = trained.own.internal - self._graph.part.first
        return SeedShare(rows, probability, None if is_global else trained.trainer)


def _cost(
    row_bytes: Sequence[int], more: Sequence[int], export: Export, sampled: Sequence[SampledMinibatch]
) -> AttributeCost:
    """Predicts what attributes take that come from other ranks. A remote row lies in the message
    that brought it and in the block. ``row_bytes``: by node type, of a row on the wire. ``more``:
    by node type, the bytes by which a row is larger in a PyG batch."""

    def attributes(one: SampledMinibatch) -> int:
        return sum(row_bytes[number] * nodes.node.numel() for number, nodes in one.reached_nodes.items())

    biggest = max(sampled, key=attributes)
    row = -(-attributes(biggest) // max(1, biggest.num_nodes))
    if export is not Export.PYG:
        return AttributeCost(row=2 * row + 8)
    wider = sum(more[number] * nodes.node.numel() for number, nodes in biggest.reached_nodes.items())
    return AttributeCost(row=2 * row + 8, batch=attributes(biggest) + wider)


class HistoricalSetup(RankSetup):
    """Composes a loader that samples within a rank's part and its halo."""

    def __init__(self, data: Any, request: SamplingRequest, options: LoaderOptions) -> None:
        super().__init__(data, request, options)
        assert options.history is not None
        self._history = options.history
        because = self._refusal(request, options)
        if because is not None:
            raise ValueError(f"history is not possible: {because}")

    def compose(self, loader: NodeLoader) -> Composition:
        return dataclasses.replace(super().compose(loader), follower=self._history)

    def _fetcher(self) -> OwnRowFetcher:
        names = self._attributes()[NODES]
        return self.world.now(lambda: OwnRowFetcher(self._features, names, self._history))

    def _samplers(self, seed: int) -> RankSamplers:
        plan = dataclasses.replace(self._plan, edge_ids=False)
        sampler = HaloSampler(self._graph.part, self._history.halo, plan, seed, self._options.threads)
        return RankSamplers(sampler, sampler)

    def _refusal(self, request: SamplingRequest, options: LoaderOptions) -> str | None:
        """Returns why historical embeddings do not go with the other arguments, None if they do."""
        if self._history.part is not self._graph.part:
            return "the caches are of another graph; make them with this DistGraphStore"
        if options.export is not Export.NATIVE:
            return "PyG batches have no caches for halo nodes; use export='native'"
        if request.schedule not in (None, ScheduleName.LOCAL):
            return "a rank samples from the nodes that it owns; use schedule='local'"
        if request.choice != NeighborChoice():
            return f"neighbours are drawn uniformly within a part, without {request.choice}"
        if options.aggregation_cache is not None:
            return "aggregates have no rows of halo nodes; leave aggregation_cache out"
        if options.embedding is not None:
            return "learned rows of halo nodes are not pushed; leave embedding out"
        if options.feature_cache is not None:
            return "features of halo nodes come from caches; leave feature_cache out"
        if any(group.is_edge for group in self._attributes()):
            return "edge attributes are not carried; give the names of node attributes as attributes"
        return None


RankSampler: TypeAlias = MacrobatchSampler | PartitionedSampler | HaloSampler
#: The times of a rank's part, or of the whole graph if the rank has the whole topology.
RankTimes: TypeAlias = PartTimes | Times


@dataclass(frozen=True, eq=False)
class RankSamplers:
    """The samplers of one loader on one rank."""

    scheduled: RankSampler  # samples the seeds of the schedule
    any: RankSampler  # samples seeds of any rank


@dataclass(frozen=True, eq=False)
class RankSampling:
    """The rules by which ranks sample a graph together, and the arrays that the rules need."""

    graph: DistGraphStore  # the partitioned graph
    choice: NeighborChoice  # the rules by which neighbours are chosen
    plan: SamplingPlan  # the plan that the user asked for
    times: RankTimes | None = None  # the times of the graph if sampling is temporal
    #: by relation, the time order of the edges that the rank samples, or None: of its own in-edges,
    #: or of all edges if it has the whole topology
    orders: Sequence[TimeOrder | None] = ()
    weights: Sequence[WeightSums | None] = ()  # by relation, the sums of the weights of these edges, or None

    @classmethod
    def of(cls, features: DistFeatureStore, graph: DistGraphStore, request: SamplingRequest) -> RankSampling:
        """Reads what the rules need from the stores. Collective. Raises TypeError or ValueError if
        the rules do not fit the graph."""
        choice, schema = request.choice, graph.part.schema
        plan = choice.plan(request.num_neighbors, request.replace, schema)
        whole = None if graph.topology is None else graph.topology.graph
        times: RankTimes | None = None
        orders: Sequence[TimeOrder | None] = (None,) * schema.num_relations
        weights: Sequence[WeightSums | None] = ()
        if (name := choice.time_attr) is not None:
            if whole is None:
                times = own = PartTimes(features, name)
                orders = own.orders(choice.sortedness)
            else:
                times = every = Times.of(name, replicate_attribute(features, name), whole.rows_by_group)
                orders = every.orders(whole, choice.sortedness)
        if (name := choice.weight_attr) is not None:
            if whole is None:
                weights = own_sums(features, name, orders)
            else:
                weights = sum_weights(name, replicate_attribute(features, name), whole, orders)
        return cls(graph, choice, plan, times, orders, weights)

    def samplers(
        self,
        plan: SamplingPlan,
        seed: int,
        threads: int | None,
        layout: Layout,
        *,
        own: bool,
        excluding: bool,
    ) -> RankSamplers:
        """Makes the samplers. ``own``: True if every seed of the schedule is a node of its rank's
        own part. ``excluding``: True if seeds may have excluded pairs."""
        if self.graph.topology is not None:
            whole = MacrobatchSampler(
                self.graph.topology.graph,
                plan,
                seed,
                threads,
                layout,
                times=self.orders,
                weights=self.weights,
            )
            return RankSamplers(whole, whole)
        sampler = PartitionedSampler(
            self.graph.part,
            self.graph.comm,
            plan,
            seed,
            threads,
            layout,
            times=self.orders,
            weights=self.weights,
            seeds_are_own=own,
            excluding=excluding,
        )
        return RankSamplers(sampler, sampler.of_any_seeds())
