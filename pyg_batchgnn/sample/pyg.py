"""The macrobatch sampler as PyG's `BaseSampler`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NumNeighbors

from pyg_batchgnn.sample.choice import NeighborChoice
from pyg_batchgnn.sample.macrobatch import MacrobatchSampler
from pyg_batchgnn.sample.negatives import LateNegatives
from pyg_batchgnn.sample.plan import Replacement, SamplingPlan
from pyg_batchgnn.sample.pyg_links import LinkRules
from pyg_batchgnn.sample.pyg_nodes import PygNodeSampler
from pyg_batchgnn.sample.pyg_output import Direction, PygForm, PygOutput
from pyg_batchgnn.sample.pyg_parts import PygParts
from pyg_batchgnn.store import Times, TypedGraph


class PygNeighborSampler(PygNodeSampler):
    """PyG's `NeighborSampler`, with keyed samples.

    It is for ``NodeLoader(node_sampler=...)``, ``LinkLoader(link_sampler=...)``,
    ``NeighborLoader(neighbor_sampler=...)``, and for Lightning's ``LightningNodeData`` and
    ``LightningLinkData`` with ``loader="custom"``.

    Args:
        data: a ``Data``, a ``HeteroData``, a ``(FeatureStore, GraphStore)`` pair, or a `CscGraph`;
            the loader's ``data`` must be the same graph.
        num_neighbors: fanouts in one of PyG's forms; -1 picks all neighbours. It can be assigned.
        subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr, is_sorted,
            directed: those of PyG's `NeighborSampler`.
        share_memory: ignored; worker processes read the same memory.
        sample_direction: "forward" follows edges against their direction, as layers do;
            "backward" follows them from source to target.
        time_window: how much older than its seed a neighbour may be, in the unit of the times.
        seed: the key of every random choice.
        threads: at most this many threads work; torch's number if None.
        epoch: the epoch, or a function that returns it.

    Samples also depend on ``epoch``, which PyG's loaders do not know of. Assign it between epochs,
    or give a function, such as ``lambda: trainer.current_epoch``. Otherwise the same seeds get the
    same neighbours again.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        subgraph_type: Any = "directional",
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        is_sorted: bool = False,
        share_memory: bool = False,
        directed: bool = True,
        sample_direction: str = "forward",
        *,
        time_window: int | None = None,
        seed: int = 0,
        threads: int | None = None,
        epoch: int | Callable[[], int] = 0,
    ) -> None:
        choice = NeighborChoice.of(locals())
        direction = Direction.parse(sample_direction)
        self._begin(
            PygParts.of(data, num_neighbors, replace, choice, seed, threads, direction), num_neighbors
        )
        self.epoch = epoch

    @classmethod
    def of(cls, parts: PygParts, num_neighbors: Any) -> PygNeighborSampler:
        """Returns a sampler of these parts, whose fanouts were given as ``num_neighbors``."""
        made = cls.__new__(cls)
        made._begin(parts, num_neighbors)
        return made

    def _begin(self, parts: PygParts, num_neighbors: Any) -> None:
        self._parts, self._num_neighbors = parts, _as_pyg(num_neighbors)
        self._links = LinkRules()

    @property
    def macrobatch(self) -> MacrobatchSampler:
        """The sampler that this one stands around."""
        return self._parts.macrobatch

    @property
    def form(self) -> PygForm:
        """The form of the samples."""
        return self._parts.form

    @property
    def choice(self) -> NeighborChoice:
        """The rules by which neighbours are chosen."""
        return self._parts.choice

    @property
    def times(self) -> Times | None:
        """The times of the graph if sampling is temporal."""
        return self._parts.times

    @property
    def graph(self) -> TypedGraph:
        """The graph as the user knows it, with types."""
        return self._parts.graph

    @property
    def num_neighbors(self) -> NumNeighbors:
        """The fanouts, as they were given."""
        return self._num_neighbors

    @num_neighbors.setter
    def num_neighbors(self, num_neighbors: Any) -> None:
        made = self.macrobatch
        own = SamplingPlan.from_pyg(
            self.form.direction.fanouts(num_neighbors),
            made.plan.replacement is Replacement.WITH,
            made.schema,
        )
        plan = dataclasses.replace(made.plan, fanouts=own.fanouts, by_relation=own.by_relation)
        self._parts = dataclasses.replace(self._parts, macrobatch=made.with_plan(plan, made.layout))
        self._num_neighbors = _as_pyg(num_neighbors)

    def sample_from_edges(
        self, inputs: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> PygOutput:
        """Samples one minibatch around the links ``inputs``, with keyed negatives.

        Backward, the neighbours of the ends are the targets of edges from them. Links, negatives
        and labels are as they are forward.

        Raises:
            ValueError: a negative cannot be drawn. The message names its link.
        """
        start = self._links.start(inputs, neg_sampling, self._parts, self.epoch)
        (minibatch,) = self.macrobatch.sample([start.seeds], self.epoch)
        return self.form.output(dataclasses.replace(minibatch, links=start.links))

    @property
    def links(self) -> LinkRules:
        """The rules by which links are sampled."""
        return self._links


class PygLinkSampler(PygNeighborSampler):
    """A `PygNeighborSampler` whose negatives and neighbours can leave out edges.

    Args:
        data, num_neighbors: see `PygNeighborSampler`.
        exclude_existing: True for negatives that are no edges of the links' relation.
        exclude_seed_edges: False, True, "reverse", or a dict from edge types to their reverses; see
            `MacrobatchLinkNeighborLoader`.
        late_negatives: "warn" or "raise", as in `MacrobatchLinkNeighborLoader`.
        **kwargs: the other arguments of `PygNeighborSampler`.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        *,
        exclude_existing: bool = False,
        exclude_seed_edges: Any = False,
        late_negatives: str = "warn",
        **kwargs: Any,
    ) -> None:
        super().__init__(data, num_neighbors, **kwargs)
        late = LateNegatives.parse(late_negatives)
        self._links = LinkRules(exclude_existing, exclude_seed_edges, late)


def _as_pyg(num_neighbors: Any) -> NumNeighbors:
    return num_neighbors if isinstance(num_neighbors, NumNeighbors) else NumNeighbors(num_neighbors)
