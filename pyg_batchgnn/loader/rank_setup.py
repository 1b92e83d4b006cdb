"""Composing a loader of a graph that is partitioned over ranks."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch_geometric.loader import NodeLoader

from pyg_batchgnn.data import EDGES, HOMOGENEOUS, NODES, Group
from pyg_batchgnn.fetch import CacheRequest, RemoteFetcher, SeedShare
from pyg_batchgnn.loader.aggregate_tables import cached_store
from pyg_batchgnn.loader.arguments import (
    partitioned_stores,
    refuse_over_ranks,
    split_nodes,
    without_workers,
)
from pyg_batchgnn.loader.export import BlockExporter, Exporter, NativeExporter
from pyg_batchgnn.loader.input_nodes import InputRequest, untyped_inputs
from pyg_batchgnn.loader.inputs import NodeInputs
from pyg_batchgnn.loader.local_schedule import LocalSchedule
from pyg_batchgnn.loader.numbering import NumberSeeds, OwnSeeds, as_they_are, from_table, looked_up
from pyg_batchgnn.loader.options import Export, LoaderOptions
from pyg_batchgnn.loader.pipeline import Pipeline
from pyg_batchgnn.loader.probe import AttributeCost
from pyg_batchgnn.loader.sampling import SamplingRequest
from pyg_batchgnn.loader.schedule import GlobalSchedule, SeedSchedule
from pyg_batchgnn.loader.setup import Composition, shape_of, step_shape
from pyg_batchgnn.loader.world import RankWorld
from pyg_batchgnn.ops import digest_text, minibatch_key
from pyg_batchgnn.sample import (
    Direction,
    Layout,
    MacrobatchSampler,
    NeighborChoice,
    PartitionedSampler,
    SampledMinibatch,
    SamplingPlan,
)


class RankSetup:
    """Composes the loader of a rank; see `Setup`. All of it is collective."""

    node_sampler = None
    direction = Direction.FORWARD

    def __init__(self, data: Any, request: SamplingRequest, options: LoaderOptions) -> None:
        self._features, self._graph = partitioned_stores(data)
        self.world = RankWorld(self._graph.comm)
        self.world.now(lambda: None)  # after what another loader prepares
        if request.choice != NeighborChoice():
            raise NotImplementedError(
                f"over ranks neighbours are sampled uniformly from homogeneous graphs; {request.choice} is "
                f"not supported yet: leave these options out, or sample in one process"
            )
        schema = self._graph.part.schema
        if schema != HOMOGENEOUS:
            raise NotImplementedError(
                f"loaders over ranks take homogeneous graphs so far, but this one has the node types "
                f"{list(schema.node_types)}: sample its parts with PartitionedSampler, or load the graph in "
                f"one process"
            )
        self._request, self._options, self.choice = request, options, request.choice
        self.plan = SamplingPlan.from_pyg(request.num_neighbors, request.replace)
        cached = options.aggregation_cache is not None
        self._plan = self.plan.without_last_hop() if cached else self.plan
        self._has_own_seeds = request.schedule != "global"

    def dataloader_arguments(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Returns all arguments but those of worker processes."""
        refuse_over_ranks(self._request, self._options.reading.features, kwargs)
        return without_workers(kwargs)

    def take_inputs(self, request: InputRequest) -> NodeInputs:
        """Returns the seed nodes, checked; see `Setup`. A string names a split."""
        if isinstance(request.nodes, str):
            request = dataclasses.replace(request, nodes=split_nodes(self._graph, request.nodes))
        self._inputs = untyped_inputs(request, HOMOGENEOUS, self._graph.num_nodes)
        return self._inputs

    def compose(self, loader: NodeLoader) -> Composition:
        """Makes the parts of a loader; see `Setup`."""
        if loader.transform_sampler_output is not None:
            raise ValueError("transform_sampler_output is not possible over ranks; use transform")
        options, cache = self._options, self._options.aggregation_cache
        features = self._features if cache is None else cached_store(cache, self._features)
        nodes = self._inputs.parts[0].node
        counts = [self._graph.num_nodes], self._graph.num_edges
        shape = functools.partial(shape_of, self._plan, {}, *counts, self._inputs)
        self.world.agree(lambda: {**shape(loader), **self._arguments()})
        seed = self.world.seed(self._request.seed)
        own = OwnSeeds.of(self._graph.part, nodes)
        schedule = self._schedule(loader, own)
        names = self._attributes()
        if cache is not None:
            names[NODES] = [*names[NODES], cache.attribute]
        plan = self._plan
        if options.export is Export.NATIVE:
            plan = dataclasses.replace(plan, edge_ids=bool(names[EDGES]))
        topology = self._graph.topology
        internal = None if topology is None else topology.internal
        fetcher = RemoteFetcher(features, names, internal, options.threads)
        sampler, of_any = self._samplers(plan, seed)
        exporter = self._exporter(loader.custom_cls)
        pipeline = Pipeline(self._inputs, sampler, fetcher, exporter, [self._graph.num_nodes])
        if options.feature_cache is not None:
            request = CacheRequest(options.feature_cache, plan, self._share(loader, own))
            self.world.now(lambda: fetcher.make_cache(request))
        return Composition(
            schedule,
            self._number(own),
            pipeline,
            as_they_are if topology is not None else looked_up(self._graph, nodes),
            pipeline.with_sampler(of_any),
            functools.partial(_cost, fetcher.row_bytes, options.export),
            [sampler, of_any],
            shape,
        )

    def graph(self, data: Any) -> Any:  # noqa: ARG002
        """Returns the stores; see `Setup`."""
        return self._features, self._graph

    def change_data(self, pipeline: Pipeline, loader: NodeLoader) -> NoReturn:  # noqa: ARG002
        """Raises AttributeError."""
        raise AttributeError("a loader over ranks reads the stores that it was made with; make another one")

    # What ranks must agree on ####################################################################

    def _arguments(self) -> dict[str, Any]:
        """Returns what must be the same on every rank, beside the shape of an epoch."""
        options, fields = self._options, self._features.fields
        cache = options.aggregation_cache
        return {
            "seed": self._request.seed,
            "schedule": self._request.schedule or "local",
            "macrobatch_size": options.macrobatch_size,
            "fetch_size": options.fetch_size,
            "prefetch": options.prefetch,
            "export": options.export.value,
            "attributes": options.reading.attributes,
            "node attributes": sorted(fields[NODES]),
            "edge attributes": sorted(fields[EDGES]),
            "feature_cache": options.feature_cache,
            "hybrid": self._graph.topology is not None,
            "aggregation cache": None if cache is None else cache.kind.value,
        }

    # Parts #######################################################################################

    def _schedule(self, loader: NodeLoader, own: OwnSeeds) -> SeedSchedule:
        shape, comm = step_shape(loader), self._graph.comm
        if not self._has_own_seeds:
            return GlobalSchedule(len(self._inputs), comm.rank, comm.size, shape)
        counts = comm.all_gather_json(own.positions.numel())
        partition = comm.all_gather_json(digest_text(minibatch_key(self._graph.part.node)))
        return LocalSchedule(own.positions, counts, comm.rank, shape, partition)

    def _number(self, own: OwnSeeds) -> NumberSeeds:
        """Returns what finds the internal ids of the schedule's seeds."""
        nodes = self._inputs.parts[0].node
        if self._graph.topology is not None:
            return as_they_are
        if not self._has_own_seeds:
            return looked_up(self._graph, nodes)
        internal = torch.full_like(nodes, -1)
        internal[own.positions] = own.row + self._graph.part.first
        return from_table(internal)

    def _attributes(self) -> dict[Group, list[str]]:
        """Returns the names of the attributes that batches carry, by group."""
        known = self._features.fields
        names = self._options.reading.chosen([name for fields in known.values() for name in fields])
        return {group: [name for name in names if name in fields] for group, fields in known.items()}

    def _samplers(
        self, plan: SamplingPlan, seed: int
    ) -> tuple[MacrobatchSampler | PartitionedSampler, MacrobatchSampler | PartitionedSampler]:
        """Makes the sampler of the schedule's seeds, and that of any seeds."""
        threads = self._options.threads
        layout = Layout.COO if self._options.export is Export.PYG else Layout.CSC
        if self._graph.topology is not None:
            whole = MacrobatchSampler(self._graph.topology.graph, plan, seed, threads, layout)
            return whole, whole
        sampler = PartitionedSampler(
            self._graph.part,
            self._graph.comm,
            plan,
            seed,
            threads,
            layout,
            seeds_are_own=self._has_own_seeds,
        )
        return sampler, sampler.of_any_seeds()

    def _exporter(self, custom_cls: Any) -> Exporter:
        if self._options.export is Export.NATIVE:
            return NativeExporter()
        return BlockExporter(custom_cls, self._options.threads)

    def _share(self, loader: NodeLoader, own: OwnSeeds) -> SeedShare:
        """Returns which nodes this rank's minibatches are made of."""
        every = own.positions if self._has_own_seeds else self._inputs.parts[0].node
        assert loader.batch_size is not None
        probability = min(1.0, loader.batch_size / max(every.numel(), 1))
        return SeedShare(own.row, probability, self._has_own_seeds)


def _cost(row_bytes: Sequence[int], export: Export, sampled: Sequence[SampledMinibatch]) -> AttributeCost:
    """Returns what attributes take that are fetched from other ranks.

    A remote row lies in the message that brought it and in the block.

    Args:
        row_bytes: the bytes of a row of each node type.
        export: the form of batches.
        sampled: some minibatches.
    """
    sizes = [[nodes.node.numel() for nodes in one.nodes] for one in sampled]
    bytes_ = [sum(map(operator.mul, row_bytes, counts)) for counts in sizes]
    mean = -(-sum(bytes_) // max(1, sum(map(sum, sizes))))
    return AttributeCost(row=2 * mean + 8, batch=max(bytes_) if export is Export.PYG else 0)
