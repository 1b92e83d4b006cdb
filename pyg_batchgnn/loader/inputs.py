"""The inputs of a loader, and the numbers of its graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from torch import Tensor

from pyg_batchgnn.data import Group, Schema
from pyg_batchgnn.loader.places import OwnPositions
from pyg_batchgnn.loader.work import WorkItem
from pyg_batchgnn.sample import Names, SampledLinks, SampleInfo, Seeds


@dataclass(frozen=True, eq=False)
class StepInputs:
    """The inputs of one minibatch.

    Attributes:
        seeds: the seeds, as the sampler takes them.
        input_id: [S] int64, what PyG calls the seeds in ``input_id``.
        time: [S] int64, the times that the user gave for the seeds; None if there are none.
        links: the links that the seeds are ends of, by local ids.
        internal: [S] int64, the internal ids of the seeds, by type in the order of the schema; None
            if the sampler holds the whole graph.
        late_negatives: how many negatives of the links are later than their link.
    """

    seeds: Seeds
    input_id: Tensor
    time: Tensor | None = None
    links: tuple[SampledLinks, ...] = ()
    internal: Tensor | None = None
    late_negatives: int = 0


class OwnTimes(Protocol):
    """The times that nodes have themselves."""

    def of_seeds(self, group: Group, node: Tensor) -> Tensor:
        """Returns the times of nodes of one type, [n] int64.

        Raises:
            ValueError: nodes of this type have no time.
        """


class GraphTimes(Protocol):
    """The times of a graph."""

    def of_inputs(self, nodes: Mapping[Group, Tensor]) -> OwnTimes:
        """Returns the own times of input nodes, [n] int64 ids by group; collective over ranks.

        Raises:
            ValueError: nodes of a type have no time.
        """


class GraphShape(Protocol):
    """The numbers of a graph, whose edges may be elsewhere."""

    @property
    def schema(self) -> Schema:
        """The node types and the relations."""

    @property
    def num_nodes(self) -> Sequence[int]:
        """The number of nodes of each type."""


@dataclass(frozen=True, eq=False)
class OwnerNodes:
    """The nodes that some positions of a loader's input belong to, whose owner trains them.

    Attributes:
        node_type: the name of their type.
        node: [n] int64 ids, by position.
        here: the positions, if nodes of other ranks are left out; None: 0, 1, ...
    """

    node_type: str
    node: Tensor
    here: OwnPositions | None = None


class Inputs(Protocol):
    """The meaning of a loader's positions."""

    def __len__(self) -> int:
        """Returns the number of positions."""

    def take(self, item: WorkItem, seed: int) -> list[StepInputs]:
        """Returns the inputs of each minibatch of a macrobatch; collective over ranks.

        Args:
            item: the macrobatch.
            seed: the seed of the sampler.
        """

    def settings(self) -> dict[str, Any]:
        """Returns what tells these inputs from others; JSON can hold it."""

    @property
    def info(self) -> SampleInfo:
        """The entries of PyG batches that are about the inputs."""

    @property
    def owned_by(self) -> Sequence[OwnerNodes]:
        """The nodes that positions belong to, in their order, cut where the type changes."""

    @property
    def excluding(self) -> bool:
        """True if seeds may have excluded pairs."""


InputsT = TypeVar("InputsT", bound=Inputs, covariant=True)


class InputsRequest(Protocol[InputsT]):
    """The user's wish what a loader's minibatches begin with."""

    def inputs(self, graph: GraphShape, times: GraphTimes | None, names: Names) -> InputsT:
        """Returns the inputs, checked; collective over ranks.

        Args:
            graph: the graph.
            times: the times of its nodes or edges if sampling is temporal.
            names: whether the user names node types.

        Raises:
            TypeError, ValueError, IndexError: the wish does not fit the graph.
        """
