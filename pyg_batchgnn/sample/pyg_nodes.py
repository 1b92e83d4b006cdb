"""The part that our samplers in PyG's form share: sampling around seed nodes."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch_geometric.sampler import BaseSampler, NodeSamplerInput

from pyg_batchgnn.sample.choice import NeighborChoice
from pyg_batchgnn.sample.pyg_output import PygForm, PygOutput
from pyg_batchgnn.sample.seeds import Seeds
from pyg_batchgnn.store import Times, TypedGraph


class PygNodeSampler(BaseSampler):
    """A sampler of macrobatches as PyG's `BaseSampler`.

    Samples also depend on ``epoch``, which PyG's loaders do not know of.
    """

    _epoch: int | Callable[[], int] = 0

    @property
    @abstractmethod
    def macrobatch(self) -> Any:
        """The sampler that this one stands around."""

    @property
    @abstractmethod
    def form(self) -> PygForm:
        """The form of the samples."""

    @property
    def choice(self) -> NeighborChoice:
        """The rules by which neighbours are chosen, beside the plan."""
        return NeighborChoice()

    @property
    def times(self) -> Times | None:
        """The times of the graph if sampling is temporal."""
        return None

    @property
    def graph(self) -> TypedGraph:
        """The graph, with types."""
        graph: TypedGraph = self.macrobatch.typed
        return graph

    @property
    def epoch(self) -> int:
        """The epoch that samples are keyed by."""
        return self._epoch() if callable(self._epoch) else self._epoch

    @epoch.setter
    def epoch(self, epoch: int | Callable[[], int]) -> None:
        self._epoch = epoch

    def sample_from_nodes(self, inputs: NodeSamplerInput, **_kwargs: Any) -> PygOutput:
        """Samples one minibatch around ``inputs.node``."""
        schema = self.macrobatch.schema
        if inputs.input_type is None and schema.num_types > 1:
            raise ValueError(
                f"the seed nodes came without input_type, but the graph has the node types "
                f"{list(schema.node_types)}; give NodeSamplerInput(..., input_type=...)"
            )
        name = inputs.input_type or schema.node_types[0]
        node, time = inputs.node.long().contiguous(), inputs.time
        if time is not None and self.times is None:
            raise ValueError(
                "seed nodes came with times, but the sampler does not sample by time; give it time_attr, the "
                "attribute that holds the times"
            )
        if time is None and self.times is not None:
            time = self.times.of_seeds(schema.node_groups[schema.type_number(name)], node)
        (minibatch,) = self.macrobatch.sample([Seeds.of(schema, {name: node}, time=time)], self.epoch)
        return self.form.output(
            dataclasses.replace(minibatch, input_id=inputs.input_id, seed_time=inputs.time)
        )

    @property
    def edge_permutation(self) -> Tensor | None:
        """The permutation of edge ids: None, as a sample carries input edge ids already."""
        return None
