"""What a loader is composed of, in one process or over ranks, and which arguments go together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn.loader.budget import AttributeCost
from pyg_batchgnn.loader.link_inputs import InputRequest, Inputs, InputsT, LinkPlace
from pyg_batchgnn.loader.options import Export, Features, LoaderOptions, raise_first
from pyg_batchgnn.loader.pipeline import Pipeline
from pyg_batchgnn.loader.position import order_of
from pyg_batchgnn.loader.prefetch import Executor, T, ThreadExecutor
from pyg_batchgnn.loader.schedule import SeedSchedule, SeedStep
from pyg_batchgnn.sample import (
    Direction,
    LinkRules,
    MinibatchPlan,
    Names,
    NeighborChoice,
    SampledMinibatch,
    Sampler,
)

if TYPE_CHECKING:
    from pyg_batchgnn.history import HistoricalCaches
    from pyg_batchgnn.loader.device_stage import DeviceStage
    from pyg_batchgnn.loader.node_inputs import GraphShape, GraphTimes
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
        raise_first(
            [
                (options.prefetch, f"prefetch={options.prefetch} is for threads; use prefetch_factor"),
                (
                    options.device is not None,
                    f"device={str(options.device)!r} needs no worker processes; leave out",
                ),
                (
                    options.features is Features.IN_PLACE,
                    "features='in_place' works in this process; leave out",
                ),
            ],
            f" num_workers={workers}",
        )
    if kwargs.get("batch_size", 1) is None and kwargs.get("batch_sampler") is None:
        raise ValueError("batch_size=None is not possible: a minibatch is a list of seeds; use batch_size=1")
    if options.export is Export.NATIVE:
        only_pyg = {
            "transform_sampler_output": transform_sampler_output is not None,
            "subgraph_type='bidirectional'": choice.subgraph_type is SubgraphType.bidirectional,
            "sample_direction='backward'": setup.direction is Direction.BACKWARD,
        }
        text = "is for export='pyg', not 'native', whose edges are as they were sampled; leave it out"
        raise_first([(one, f"{name} {text}") for name, one in only_pyg.items()])
    elif options.features is not Features.AUTO or options.attributes is not None:
        raise ValueError("features and attributes are for export='native'; PyG batches carry every attribute")
    if options.tokens is not None:
        text, named, carried = f"tokens={options.tokens}", choice.time_attr, options.attributes
        is_directional = choice.subgraph_type is SubgraphType.directional
        raise_first(
            [
                (
                    named is None and not choice.disjoint,
                    f"{text} are of seeds with a subgraph each; give time_attr or disjoint=True",
                ),
                (not is_directional, f"{text} follow the edges that were sampled; leave subgraph_type out"),
                (
                    transform_sampler_output is not None,
                    f"{text} are of the sample, which transform_sampler_output may change; use transform",
                ),
                (
                    named is not None and carried is not None and named not in carried,
                    f"{text} have times, which attributes={carried} leaves out; add {named!r}",
                ),
            ]
        )
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
        raise_first([(one, f"{text}{name}: leave one of them out") for name, one in given.items()])
