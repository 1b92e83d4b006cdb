"""The macrobatch sampler as a PyG `BaseSampler`."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from pyg_batchgnn.sample.macrobatch import MacrobatchSampler
from pyg_batchgnn.sample.plan import Fanout, SamplingPlan
from pyg_batchgnn.sample.pyg_output import PygForm, PygOutput
from pyg_batchgnn.sample.sampled import Layout
from pyg_batchgnn.sample.seeds import Seeds
from pyg_batchgnn.store import CscGraph, Times, TypedGraph


class PygNeighborSampler(BaseSampler):
    """Samples for ``NodeLoader(node_sampler=...)`` and ``NeighborLoader(neighbor_sampler=...)``.

    Args:
        graph: the whole graph by destination; the loader's ``data`` must be the same graph.
        num_neighbors: fanouts, one per hop; -1 picks all neighbours.
        replace: True if a neighbour may be picked more than once.
        seed: the key of every random choice.
        threads: at most this many threads work; torch's number if None.

    Samples also depend on ``epoch``, which PyG's loaders do not know of. Assign it between epochs,
    or the same seed nodes get the same neighbours again.
    """

    def __init__(
        self,
        graph: CscGraph,
        num_neighbors: Any,
        replace: bool = False,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        plan = SamplingPlan.from_pyg(num_neighbors, replace)
        self._begin(MacrobatchSampler(graph, plan, seed, threads, Layout.COO), PygForm(), None)

    @classmethod
    def of(cls, macrobatch: MacrobatchSampler, form: PygForm, times: Times | None) -> PygNeighborSampler:
        """Returns a sampler around another one.

        Args:
            macrobatch: samples with edges in the layout `Layout.COO`.
            form: the form of the samples.
            times: the times of the graph if sampling is temporal.
        """
        made = cls.__new__(cls)
        made._begin(macrobatch, form, times)
        return made

    def _begin(self, macrobatch: MacrobatchSampler, form: PygForm, times: Times | None) -> None:
        self.epoch = 0
        self.macrobatch, self.form, self.times = macrobatch, form, times

    @property
    def graph(self) -> TypedGraph:
        """The graph, with types."""
        return self.macrobatch.typed

    @property
    def num_neighbors(self) -> list[Fanout]:
        """The fanouts by hop. They do not change: make another sampler for other fanouts."""
        return list(self.macrobatch.plan.fanouts)

    def sample_from_nodes(self, inputs: NodeSamplerInput, **_kwargs: Any) -> PygOutput:
        """Samples one minibatch around ``inputs.node``."""
        schema = self.macrobatch.schema
        name = inputs.input_type or schema.node_types[0]
        node, time = inputs.node.long().contiguous(), inputs.time
        if time is not None and self.times is None:
            raise NotImplementedError(
                "input_time came for a sampler without times, whose sampling is not temporal; a loader with "
                "time_attr makes one that is"
            )
        if time is None and self.times is not None:
            time = self.times.of_seeds(schema.node_groups[schema.type_number(name)], node)
        (minibatch,) = self.macrobatch.sample([Seeds.of(schema, {name: node}, time=time)], self.epoch)
        return self.form.output(
            dataclasses.replace(minibatch, input_id=inputs.input_id, seed_time=inputs.time)
        )

    def sample_from_edges(self, *_args: Any, **_kwargs: Any) -> SamplerOutput:
        """Raises NotImplementedError: link sampling is not supported yet."""
        raise NotImplementedError("sampling around edges (LinkLoader) is not supported yet; use a NodeLoader")

    @property
    def edge_permutation(self) -> Tensor | None:
        """The permutation of edge ids: None, as a sample carries input edge ids already."""
        return None
