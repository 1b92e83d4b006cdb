"""The parts that a loader is composed of, and what composes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch_geometric.loader import NodeLoader
from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn.loader.inputs import Inputs, InputsRequest, InputsT
from pyg_batchgnn.loader.link_places import LinkPlace
from pyg_batchgnn.loader.numbering import NumberSeeds
from pyg_batchgnn.loader.order import Remainder, order_of
from pyg_batchgnn.loader.pipeline import Pipeline
from pyg_batchgnn.loader.probe import MeasureCost
from pyg_batchgnn.loader.schedule import SeedSchedule, StepShape
from pyg_batchgnn.loader.world import World
from pyg_batchgnn.sample import Direction, LinkRules, MinibatchPlan, NeighborChoice, Sampler


class StepFollower(Protocol):
    """A listener to what a loader hands out, on the thread of the user."""

    def begin_step(self, epoch: int, step: int, key: int) -> None:
        """Hears that a minibatch is handed out.

        Args:
            epoch: the number of the epoch.
            step: the number of the step in the epoch.
            key: the key of the minibatch.
        """

    def end_epoch(self) -> None:
        """Hears that the last step of an epoch has ended."""


@dataclass(frozen=True, eq=False)
class Composition:
    """The parts that a loader is composed of.

    Attributes:
        schedule: which seeds the steps of an epoch have.
        number: finds the internal ids of the seeds of the schedule's steps.
        pipeline: makes the batches of an epoch.
        number_any: finds the internal ids of any seeds.
        calls: makes the batches of ``loader(index)``, whose seeds may be any.
        cost: measures what attributes take.
        samplers: all samplers; they have one seed.
        shape: returns what decides, beside seed, epoch and schedule, which minibatches a loader
            has.
        follower: is told of every step, or None.
    """

    schedule: SeedSchedule
    number: NumberSeeds
    pipeline: Pipeline
    number_any: NumberSeeds
    calls: Pipeline
    cost: MeasureCost
    samplers: Sequence[Sampler]
    shape: Callable[[NodeLoader], dict[str, Any]]
    follower: StepFollower | None = None


class Setup(Protocol):
    """Composes a loader of a graph that is held whole, or of one partitioned over ranks."""

    @property
    def world(self) -> World:
        """The processes that make macrobatches together."""

    @property
    def choice(self) -> NeighborChoice:
        """The rules by which neighbours are chosen."""

    @property
    def plan(self) -> MinibatchPlan:
        """The plan that the user asked for, with its last hop where aggregates stand for it."""

    @property
    def direction(self) -> Direction:
        """The direction in which neighbours are looked for."""

    @property
    def node_sampler(self) -> Any:
        """The sampler that PyG's own code finds; None if no process samples alone."""

    @property
    def link_rules(self) -> LinkRules:
        """The rules of the user's sampler by which links are sampled."""

    @property
    def link_place(self) -> LinkPlace:
        """The place of the graph whose links are visited."""

    def dataloader_arguments(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Returns those arguments of DataLoader that mean something here.

        Raises:
            ValueError: an argument that is not possible here.
        """

    def take_inputs(self, request: InputsRequest[InputsT]) -> InputsT:
        """Returns what the loader's minibatches begin with, checked, and keeps it."""

    def compose(self, loader: NodeLoader) -> Composition:
        """Makes the parts of a loader whose arguments PyG's constructor has stored."""

    def graph(self, data: Any) -> Any:
        """Returns the graph with its features ``x`` as `AllNodes` takes them.

        Args:
            data: the object that attributes are read from.
        """

    def change_data(self, pipeline: Pipeline, loader: NodeLoader) -> None:
        """Lets the pipeline read attributes from another object, ``loader.data``.

        Raises:
            AttributeError: the loader can only read what it was made with.
        """


def step_shape(loader: NodeLoader) -> StepShape:
    """Returns what the minibatches of a loader are cut by."""
    assert loader.batch_size is not None
    remainder = Remainder.DROP if loader.drop_last else Remainder.KEEP
    return StepShape(loader.batch_size, remainder, order_of(loader))


def shape_of(
    plan: MinibatchPlan,
    rules: dict[str, Any],
    num_nodes: Sequence[int],
    num_edges: int,
    inputs: Inputs,
    loader: NodeLoader,
) -> dict[str, Any]:
    """Returns what decides, beside seed, epoch and schedule, which minibatches a loader has.

    Args:
        plan: what is sampled.
        rules: what else the sampler goes by; see `rules_of`.
        num_nodes: the number of nodes of each type.
        num_edges: the number of edges of all relations.
        inputs: the seeds.
        loader: has the rule by which they are cut.

    Returns:
        Values that JSON can hold.
    """
    return {
        "num_nodes": list(num_nodes),
        "num_edges": num_edges,
        **inputs.settings(),
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        **plan.settings(),
        **rules,
        "order": order_of(loader).value,
    }


def rules_of(choice: NeighborChoice, direction: Direction) -> dict[str, Any]:
    """Returns the rules of a sampler that its plan does not say, without those of the default.

    JSON can hold them.
    """
    found: dict[str, Any] = {}
    if choice.time_attr is not None:
        found["time_attr"] = choice.time_attr
    if choice.weight_attr is not None:
        found["weight_attr"] = choice.weight_attr
    if choice.subgraph is not SubgraphType.directional:
        found["subgraph_type"] = choice.subgraph.value
    if direction is not Direction.FORWARD:
        found["sample_direction"] = direction.value
    return found
