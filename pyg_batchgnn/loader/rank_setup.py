"""Composing a loader of a graph that is partitioned over ranks."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NoReturn, TypeGuard

import torch
from torch_geometric.loader import NodeLoader

from pyg_batchgnn.data import Group
from pyg_batchgnn.fetch import CacheRequest, RemoteFetcher, SeedShare
from pyg_batchgnn.history import OwnRowFetcher
from pyg_batchgnn.loader.aggregate_tables import cached_store, without_cached_hop
from pyg_batchgnn.loader.arguments import (
    partitioned_stores,
    refuse_over_ranks,
    with_splits,
    without_workers,
)
from pyg_batchgnn.loader.block_export import BlockExporter
from pyg_batchgnn.loader.export import Exporter, NativeExporter
from pyg_batchgnn.loader.input_nodes import InputRequest
from pyg_batchgnn.loader.inputs import Inputs, InputsRequest, InputsT
from pyg_batchgnn.loader.link_places import LinksOverRanks
from pyg_batchgnn.loader.local_schedule import LocalSchedule
from pyg_batchgnn.loader.node_inputs import NodeInputs
from pyg_batchgnn.loader.numbering import NumberSeeds, OwnSeeds, as_they_are, from_table, looked_up
from pyg_batchgnn.loader.options import Export, LoaderOptions
from pyg_batchgnn.loader.pipeline import Pipeline
from pyg_batchgnn.loader.probe import AttributeCost
from pyg_batchgnn.loader.rank_sampling import RankSamplers, RankSampling
from pyg_batchgnn.loader.sampling import SamplingRequest
from pyg_batchgnn.loader.schedule import GlobalSchedule, ScheduleName, SeedSchedule
from pyg_batchgnn.loader.setup import Composition, rules_of, shape_of, step_shape
from pyg_batchgnn.loader.trained_seeds import TrainedSeeds
from pyg_batchgnn.loader.world import RankWorld
from pyg_batchgnn.ops import digest_text, minibatch_key
from pyg_batchgnn.sample import Direction, Layout, LinkRules, Names, PygForm, SampledMinibatch
from pyg_batchgnn.store import Sortedness


class RankSetup:
    """Composes the loader of a rank; see `Setup`. All of it is collective."""

    node_sampler = None
    link_rules = LinkRules()
    direction = Direction.FORWARD

    def __init__(self, data: Any, request: SamplingRequest, options: LoaderOptions) -> None:
        self._features, self._graph = partitioned_stores(data)
        self.world, self.choice = RankWorld(self._graph.comm), request.choice
        self._schedule_name = request.schedule or ScheduleName.LOCAL
        # After what another loader prepares. Times and weights take exchanges of their own.
        self.world.agree(lambda: {"schedule": self._schedule_name.value, **self._given_rules()})
        self._request, self._options = request, options
        self._sampling = RankSampling.of(self._features, self._graph, request)
        self.plan = self._sampling.plan
        cache, schema = options.aggregation_cache, self._graph.part.schema
        self._plan = self.plan if cache is None else without_cached_hop(cache, self.plan, schema)
        self.link_place = LinksOverRanks(self._graph, self._schedule_name)

    def dataloader_arguments(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Returns all arguments but those of worker processes."""
        refuse_over_ranks(self._request, self._options.reading.features, kwargs)
        return without_workers(kwargs)

    def take_inputs(self, request: InputsRequest[InputsT]) -> InputsT:
        """Returns what minibatches begin with, checked; see `Setup`. Splits may name seed nodes."""
        if isinstance(request, InputRequest):
            request = dataclasses.replace(request, nodes=with_splits(self._graph, request.nodes))
        topology = self._graph.topology
        graph = self._graph.shape if topology is None else topology.graph
        inputs = request.inputs(graph, self._sampling.times, self._names)
        self._inputs: Inputs = inputs
        return inputs

    def compose(self, loader: NodeLoader) -> Composition:
        """Makes the parts of a loader; see `Setup`."""
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
            self._number(trained.seeds),
            pipeline,
            looked_up(inputs, graph) if self._looks_up(inputs) else as_they_are,
            pipeline.with_sampler(samplers.any),
            functools.partial(_cost, fetcher.row_bytes, options.export),
            [samplers.scheduled, samplers.any],
            shape,
        )

    def graph(self, data: Any) -> Any:  # noqa: ARG002
        """Returns the stores; see `Setup`."""
        return self._features, self._graph

    def change_data(self, pipeline: Pipeline, loader: NodeLoader) -> NoReturn:  # noqa: ARG002
        """Raises AttributeError."""
        raise AttributeError("a loader over ranks reads the stores that it was made with; make another one")

    # What ranks must agree on ####################################################################

    def _rules(self) -> dict[str, Any]:
        return rules_of(self.choice, self.direction)

    def _given_rules(self) -> dict[str, Any]:
        """Returns what decides which times and weights ranks exchange."""
        return {**self._rules(), "is_sorted": self.choice.sortedness is Sortedness.PROMISED}

    def _arguments(self) -> dict[str, Any]:
        """Returns what must be the same on every rank, beside the shape of an epoch."""
        options, fields = self._options, self._features.fields
        cache = options.aggregation_cache
        return {
            "seed": self._request.seed,
            "macrobatch_size": options.macrobatch_size,
            "fetch_size": options.fetch_size,
            "prefetch": options.prefetch,
            "export": options.export.value,
            "attributes": options.reading.attributes,
            "attributes of the stores": [[str(group), *sorted(named)] for group, named in fields.items()],
            "feature_cache": options.feature_cache,
            "hybrid": self._graph.topology is not None,
            "aggregation cache": None if cache is None else cache.kinds,
        }

    # Parts #######################################################################################

    @property
    def _names(self) -> Names:
        return Names.TYPES if self._graph.part.schema.has_names else Names.NONE

    @property
    def _id_bounds(self) -> Sequence[int]:
        """A number above all ids of each type. The internal ids of all types are one sequence."""
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
        """Returns what finds the internal ids of the schedule's seeds."""
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
        """Makes the fetcher of the attributes that batches carry."""
        cache, features, names = self._options.aggregation_cache, self._features, self._attributes()
        if cache is not None:
            features = cached_store(cache, features)
            for group, more in cache.names.items():
                names[group] = [*names[group], *more]
        topology = self._graph.topology
        internal = None if topology is None else topology.internal
        return RemoteFetcher(features, names, internal, self._options.threads)

    def _attributes(self) -> dict[Group, list[str]]:
        """Returns the names of the attributes that batches carry, by group.

        Every group of nodes is there, and the groups of edges that have such attributes.
        """
        known = self._features.fields
        every = dict.fromkeys(name for fields in known.values() for name in fields)
        chosen = self._options.reading.chosen(every)
        names = {group: [name for name in chosen if name in fields] for group, fields in known.items()}
        return {group: own for group, own in names.items() if own or group.is_node}

    def _samplers(self, seed: int) -> RankSamplers:
        plan, options = self._plan, self._options
        layout = Layout.COO
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
        if self._options.export is Export.NATIVE:
            return NativeExporter()
        form = PygForm(self._names, self.choice.subgraph)
        return BlockExporter(form, self._inputs.info, custom_cls, self._options.threads)

    def _share(self, loader: NodeLoader, trained: TrainedSeeds) -> SeedShare:
        """Returns which of this rank's nodes minibatches are made of."""
        is_global = self._schedule_name is ScheduleName.GLOBAL
        every = len(self._inputs) if is_global else trained.seeds.positions.numel()
        assert loader.batch_size is not None
        probability = min(1.0, loader.batch_size / max(every, 1))
        rows = trained.own.internal - self._graph.part.first
        return SeedShare(rows, probability, None if is_global else trained.trainer)


def _cost(row_bytes: Sequence[int], export: Export, sampled: Sequence[SampledMinibatch]) -> AttributeCost:
    """Returns what attributes take that are fetched from other ranks.

    A remote row lies in the message that brought it and in the block.

    Args:
        row_bytes: the bytes of a node of each type.
        export: the form of the batches.
        sampled: some minibatches.
    """

    def attributes(one: SampledMinibatch) -> int:
        return sum(row_bytes[number] * nodes.node.numel() for number, nodes in one.reached_nodes.items())

    biggest = max(sampled, key=attributes)
    row = -(-attributes(biggest) // max(1, biggest.num_nodes))
    return AttributeCost(row=2 * row + 8, batch=attributes(biggest) if export is Export.PYG else 0)
