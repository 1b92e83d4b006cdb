"""Composing a loader of a graph that is partitioned over ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch_geometric.loader import NodeLoader

from pyg_batchgnn.fetch import CacheRequest, RemoteFetcher, SeedShare
from pyg_batchgnn.history import HaloSampler, OwnRowFetcher
from pyg_batchgnn.loader.budget import AttributeCost
from pyg_batchgnn.loader.export import BlockExporter, Exporter, NativeExporter
from pyg_batchgnn.loader.link_inputs import InputRequest, InputsT
from pyg_batchgnn.loader.node_inputs import NodeInputs, NodeRequest
from pyg_batchgnn.loader.options import Export, LoaderOptions
from pyg_batchgnn.loader.pipeline import Pipeline
from pyg_batchgnn.loader.rank_inputs import (
    LinksOverRanks,
    OwnSeeds,
    RankWorld,
    TrainedSeeds,
    cached_store,
    dataloader_arguments,
    looked_up,
    partitioned_stores,
    with_splits,
)
from pyg_batchgnn.loader.schedule import (
    GlobalSchedule,
    LocalSchedule,
    ScheduleName,
    SeedSchedule,
    SeedStep,
    StepShape,
)
from pyg_batchgnn.loader.setup import Setup
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
    Sampler,
    SamplingPlan,
)
from pyg_batchgnn.store import (
    PartTimes,
    TimeOrder,
    Times,
    WeightSums,
    own_sums,
    replicate_attribute,
    sum_weights,
)
from pyg_batchgnn.types import NODES, Group


class RankSetup(Setup):
    """Composes the loader of one rank. All methods are collective."""

    node_sampler = None
    link_rules = LinkRules()
    sampled_plan: SamplingPlan
    direction = Direction.FORWARD

    def __init__(self, data: Any, choice: NeighborChoice, options: LoaderOptions) -> None:
        self._features, self._graph = partitioned_stores(data)
        self.world, self.choice = RankWorld(self._graph.comm), choice
        self._schedule_name = options.schedule or ScheduleName.LOCAL
        # After what another loader prepares. Times and weights take exchanges of their own.
        given = {"schedule": self._schedule_name.value, "is_sorted": choice.is_sorted, **self.rules()}
        self.world.agree(lambda: given)
        super().__init__(options)
        if self.stage is not None:
            self.stage.refuse_choices("the graph lies over ranks")
        topology, schema = self._graph.topology, self._graph.part.schema
        self._whole = None if topology is None else topology.graph
        self.graph = self._graph.shape if self._whole is None else self._whole
        self.num_edges = self._graph.num_edges
        self.names = Names.TYPES if schema.has_names else Names.NONE
        self.plan = self.sampled_plan = choice.plan(schema)
        self._read_rules()
        if options.aggregation_cache is not None:
            self.sampled_plan = without_cached_hop(self.plan, schema)
        self.link_place = LinksOverRanks(self._graph, self._schedule_name)

    def _read_rules(self) -> None:
        """Reads the times and weights by which neighbours are sampled. Raises TypeError or
        ValueError if they do not fit the graph."""
        choice, schema, features, whole = self.choice, self._graph.part.schema, self._features, self._whole
        self.times: PartTimes | Times | None = None
        #: By relation, of the edges that the rank samples: its own in-edges, or all edges.
        self._orders: Sequence[TimeOrder | None] = (None,) * schema.num_relations
        self._weights: Sequence[WeightSums | None] = ()
        if (name := choice.time_attr) is not None:
            if whole is None:
                self.times = own = PartTimes(features, name)
                self._orders = own.orders(choice.sortedness)
            else:
                self.times = every = Times.of(name, replicate_attribute(features, name), whole.rows_by_group)
                self._orders = every.orders(whole, choice.sortedness)
        if (name := choice.weight_attr) is not None:
            if whole is None:
                self._weights = own_sums(features, name, self._orders)
            else:
                self._weights = sum_weights(name, replicate_attribute(features, name), whole, self._orders)

    def dataloader_arguments(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return dataloader_arguments(self.options.features, kwargs)

    def take_inputs(self, request: InputRequest[InputsT]) -> InputsT:
        if isinstance(request, NodeRequest):
            request = dataclasses.replace(request, nodes=with_splits(self._graph, request.nodes))
        return super().take_inputs(request)

    def compose(self, loader: NodeLoader) -> None:
        if loader.transform_sampler_output is not None:
            raise ValueError("transform_sampler_output is not possible over ranks; use transform")
        options, graph, inputs = self.options, self._graph, self.inputs
        stored = [[str(group), *sorted(named)] for group, named in self._features.fields.items()]
        agreed = {"hybrid": self._whole is not None, "attributes of the stores": stored}
        self.world.agree(lambda: {**self.shape(loader), **options.agreed(), **agreed})
        seed = self.world.seed(options.seed)
        own = OwnSeeds.of(graph.part, inputs.parts)
        trained = TrainedSeeds.by_owner(own, graph.comm.rank)
        if self._schedule_name is ScheduleName.BALANCED:
            trained = TrainedSeeds.balanced(own, graph.comm)
        self.schedule = self._made_schedule(loader, trained.seeds)
        self._internal: Tensor | None = None
        if self._looks_up and self._schedule_name is not ScheduleName.GLOBAL:
            self._internal = torch.full((len(inputs),), -1)
            self._internal[trained.seeds.positions] = trained.seeds.internal
        self._fetcher = fetcher = self._made_fetcher()
        self.samplers = self._made_samplers(seed)
        exporter = self._exporter(loader.custom_cls)
        self.pipeline, self.calls = (
            Pipeline(inputs, one, fetcher, exporter, self._id_bounds) for one in self.samplers
        )
        if options.feature_cache is not None and isinstance(fetcher, RemoteFetcher):
            request = CacheRequest(options.feature_cache, self.sampled_plan, self._share(loader, trained))
            self.world.now(lambda: fetcher.make_cache(request))

    def cost(self, sampled: Sequence[SampledMinibatch]) -> AttributeCost:
        """Predicts the memory of attributes from other ranks. Such a row lies in the message that
        brought it and in the block."""
        tables, names = self._features.own.attributes, self._carried()
        row_bytes = self._fetcher.row_bytes

        def attributes(one: SampledMinibatch) -> int:
            return sum(row_bytes[number] * nodes.node.numel() for number, nodes in one.reached_nodes.items())

        biggest = max(sampled, key=attributes)
        row = -(-attributes(biggest) // max(1, biggest.num_nodes))
        if self.options.export is not Export.PYG:
            return AttributeCost(row=2 * row + 8)
        more = [
            sum(bytes_more(tables[group][name]) for name in names[group])
            for group in self.graph.schema.node_groups
        ]
        wider = sum(more[number] * nodes.node.numel() for number, nodes in biggest.reached_nodes.items())
        return AttributeCost(row=2 * row + 8, batch=attributes(biggest) + wider)

    def inference_graph(self, data: Any) -> Any:  # noqa: ARG002
        return self._features, self._graph

    def change_data(self, loader: NodeLoader) -> NoReturn:  # noqa: ARG002
        raise AttributeError("a loader over ranks reads the stores that it was made with; make another one")

    def number(self, steps: Iterable[SeedStep]) -> Iterable[SeedStep]:
        inputs, table = self.inputs, self._internal
        if table is None:
            return self.number_any(steps)
        assert isinstance(inputs, NodeInputs)
        return (dataclasses.replace(step, internal=table[inputs.by_type(step.positions)]) for step in steps)

    def number_any(self, steps: Iterable[SeedStep]) -> Iterable[SeedStep]:
        inputs = self.inputs
        if not self._looks_up or not isinstance(inputs, NodeInputs):
            return steps
        return looked_up(inputs, self._graph, steps)

    # Parts #######################################################################################

    @property
    def _id_bounds(self) -> Sequence[int]:
        """Returns an upper bound of all ids by type: internal ids of all types are one sequence."""
        graph = self._graph
        if self._whole is None:
            return [graph.num_nodes] * graph.book.num_types
        return graph.shape.num_nodes

    @property
    def _looks_up(self) -> bool:
        return self._whole is None and isinstance(self.inputs, NodeInputs)

    def _made_schedule(self, loader: NodeLoader, seeds: OwnSeeds) -> SeedSchedule:
        shape, comm = StepShape.of(loader), self._graph.comm
        if self._schedule_name is ScheduleName.GLOBAL:
            return GlobalSchedule(len(self.inputs), comm.rank, comm.size, shape)
        counts = comm.all_gather_json(seeds.positions.numel())
        partition = comm.all_gather_json(digest_text(minibatch_key(self._graph.part.node)))
        lists: dict[str, Any] = {"schedule": self._schedule_name.value, "partition": partition}
        if self._schedule_name is ScheduleName.BALANCED:
            lists["hosts"] = list(comm.hosts)
        return LocalSchedule(seeds.positions, counts, comm.rank, shape, lists)

    def _made_fetcher(self) -> RemoteFetcher | OwnRowFetcher:
        cache, features, names = self.options.aggregation_cache, self._features, self._carried()
        if cache is not None:
            features = cached_store(cache, features)
            nodes = features.part.schema.node_groups[0]
            names[nodes] = [*names[nodes], cache.attribute]
        topology = self._graph.topology
        return RemoteFetcher(features, names, None if topology is None else topology.internal)

    def _carried(self) -> dict[Group, list[str]]:
        """Returns the attribute names that batches carry, by group: every group of nodes, and
        groups of edges with such attributes."""
        known = self._features.fields
        every = dict.fromkeys(name for fields in known.values() for name in fields)
        chosen = self.options.chosen(every)
        names = {group: [name for name in chosen if name in fields] for group, fields in known.items()}
        return {group: own for group, own in names.items() if own or group.is_node}

    def _made_samplers(self, seed: int) -> tuple[Sampler, Sampler]:
        """Returns the sampler of the schedule's seeds, and the sampler of any rank's seeds."""
        plan, graph, is_native = self.sampled_plan, self._graph, self.options.export is Export.NATIVE
        if is_native:
            plan = dataclasses.replace(plan, edge_ids=any(group.is_edge for group in self._carried()))
        layout = Layout.CSC if is_native or self.stage is not None else Layout.COO
        given = plan, seed, self.options.threads, layout
        arrays: dict[str, Any] = {"times": self._orders, "weights": self._weights}
        if self._whole is not None:
            whole = MacrobatchSampler(self._whole, *given, **arrays)
            return whole, whole
        sampler = PartitionedSampler(
            graph.part,
            graph.comm,
            *given,
            **arrays,
            seeds_are_own=self._schedule_name is ScheduleName.LOCAL and self._looks_up,
            excluding=self.inputs.excluding,
        )
        return sampler, sampler.of_any_seeds()

    def _exporter(self, custom_cls: Any) -> Exporter:
        made: Exporter = NativeExporter(self.token_times)
        if self.options.export is Export.PYG:
            form = PygForm(self.names, self.choice.subgraph_type, times=self.token_times)
            made = BlockExporter(form, self.inputs.info, custom_cls)
        if self.stage is None:
            return made
        from pyg_batchgnn.loader.on_device import MinibatchExporter

        return MinibatchExporter(self.stage, made, (max(self._id_bounds), self.num_edges))

    def _share(self, loader: NodeLoader, trained: TrainedSeeds) -> SeedShare:
        is_global = self._schedule_name is ScheduleName.GLOBAL
        every = len(self.inputs) if is_global else trained.seeds.positions.numel()
        assert loader.batch_size is not None
        probability = min(1.0, loader.batch_size / max(every, 1))
        rows = trained.own.internal - self._graph.part.first
        return SeedShare(rows, probability, None if is_global else trained.trainer)


class HistoricalSetup(RankSetup):
    """Composes a loader that samples within a rank's part and its halo."""

    def __init__(self, data: Any, choice: NeighborChoice, options: LoaderOptions) -> None:
        super().__init__(data, choice, options)
        assert options.history is not None
        self.follower = self._history = options.history
        because = self._refusal()
        if because is not None:
            raise ValueError(f"history is not possible: {because}")

    def _made_fetcher(self) -> OwnRowFetcher:
        names = self._carried()[NODES]
        return self.world.now(lambda: OwnRowFetcher(self._features, names, self._history))

    def _made_samplers(self, seed: int) -> tuple[Sampler, Sampler]:
        plan = dataclasses.replace(self.sampled_plan, edge_ids=False)
        sampler = HaloSampler(self._graph.part, self._history.halo, plan, seed, self.options.threads)
        return sampler, sampler

    def _refusal(self) -> str | None:
        """Returns why historical embeddings and another argument exclude each other, or None."""
        options, default = self.options, NeighborChoice(replace=self.choice.replace).rules()
        if self._history.part is not self._graph.part:
            return "the caches are of another graph; make them with this DistGraphStore"
        if options.export is not Export.NATIVE:
            return "PyG batches have no caches for halo nodes; use export='native'"
        if self._schedule_name is not ScheduleName.LOCAL:
            return "a rank samples from the nodes that it owns; use schedule='local'"
        if given := {name: value for name, value in self.choice.rules().items() if value != default[name]}:
            return f"neighbours are drawn uniformly within a part, without {given}"
        if options.aggregation_cache is not None:
            return "aggregates have no rows of halo nodes; leave aggregation_cache out"
        if options.embedding is not None:
            return "learned rows of halo nodes are not pushed; leave embedding out"
        if options.feature_cache is not None:
            return "features of halo nodes come from caches; leave feature_cache out"
        if any(group.is_edge for group in self._carried()):
            return "edge attributes are not carried; give the names of node attributes as attributes"
        return None
