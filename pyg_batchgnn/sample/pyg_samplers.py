"""Our samplers in the form of PyG's `BaseSampler`: of neighbours, of links, and by budgets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    NegativeSampling,
    NodeSamplerInput,
    NumNeighbors,
)
from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn.sample.link_seeds import Links, LinkSeeder, SeedEdges
from pyg_batchgnn.sample.macrobatch import HGTSampler, MacrobatchSampler
from pyg_batchgnn.sample.negatives import LateNegatives, check_early_links, negative_plan
from pyg_batchgnn.sample.pyg_output import Names, PygForm, PygOutput
from pyg_batchgnn.sample.sampling_plan import (
    NEIGHBOR_CAP,
    Direction,
    HGTPlan,
    NeighborChoice,
    as_integer,
    subgraph_of,
)
from pyg_batchgnn.sample.seeds import Seeds, frozen
from pyg_batchgnn.store import (
    CscGraph,
    TimeOrder,
    Times,
    TypedGraph,
    WeightSums,
    attribute_by_group,
    first_times,
    is_typed,
    reversed_graph,
    reversed_group,
    sum_weights,
    typed_graph_from_pyg,
    weight_by_group,
)
from pyg_batchgnn.types import Group, Relation


class PygNodeSampler(BaseSampler):
    """A sampler of macrobatches with the interface of PyG's `BaseSampler`. Samples depend on
    ``epoch``, too, which PyG's loaders do not set."""

    macrobatch: Any  # the sampler that this one stands around
    form: PygForm  # the form of the samples
    graph: TypedGraph  # the graph as the user knows it, with types
    choice: NeighborChoice  # the rules by which neighbours are chosen
    times: Times | None  # the times of the graph if sampling is temporal
    _epoch: int | Callable[[], int] = 0

    @property
    def epoch(self) -> int:
        return self._epoch() if callable(self._epoch) else int(self._epoch)

    @epoch.setter
    def epoch(self, epoch: int | Callable[[], int]) -> None:
        if as_integer(epoch) is None and not callable(epoch):
            raise TypeError(f"epoch must be an integer, or a function that returns one, got {epoch!r}")
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
        node = inputs.node if inputs.node.dtype is torch.bool else inputs.node.long()  # masks are refused
        time = inputs.time
        if time is not None and self.times is None:
            raise ValueError(
                "seed nodes came with times, but sampling is not by time; give the sampler a time_attr"
            )
        if time is None and self.times is not None:
            time = self.times.of_seeds(schema.node_groups[schema.type_number(name)], node)
        (minibatch,) = self.macrobatch.sample([Seeds.of(schema, {name: node}, time=time)], self.epoch)
        found = dataclasses.replace(minibatch, input_id=inputs.input_id, seed_time=inputs.time)
        return self.form.output(found)


def graph_of(data: Any) -> TypedGraph:
    if isinstance(data, TypedGraph):
        return data
    return data.typed if isinstance(data, CscGraph) else typed_graph_from_pyg(data).advise_huge_pages()


def names_of(data: Any) -> Names:
    is_named = not isinstance(data, CscGraph) and (isinstance(data, TypedGraph) or is_typed(data))
    return Names.TYPES if is_named else Names.NONE


def index_dtype(data: Any) -> torch.dtype:
    """Returns the dtype of ids in PyG's batches: the dtype of the user's edges, else int64."""
    if not isinstance(data, (Data, HeteroData)):
        return torch.int64
    for store in data.edge_stores:
        edges = store.get("edge_index", None)
        if isinstance(edges, Tensor):
            return edges.dtype
    return torch.int64


class PygHGTSampler(PygNodeSampler):
    """PyG's `HGTSampler` with random choices by key, and without torch-sparse.

    >>> from torch_geometric.loader import NodeLoader
    >>> sampler = PygHGTSampler(typed, [8, 8], seed=1)
    >>> batch = next(iter(NodeLoader(typed, sampler, input_nodes="paper", batch_size=16)))

    Args:
        data, num_samples, neighbor_cap: as in `MacrobatchHGTLoader`.
        is_sorted, share_memory: ignored, as sorted edges are found out and worker processes read
            the same memory.
        seed: the key of every random choice.
        threads: at most this many threads work; torch's number if None.

    Samples depend on ``epoch``, too, which PyG's loaders do not set. Assign it between epochs, or
    assign a function that returns it.

    Raises:
        TypeError, ValueError, IndexError: arguments that do not fit the graph.
    """

    def __init__(
        self,
        data: Any,
        num_samples: Any,
        is_sorted: bool = False,  # noqa: ARG002  (what is sorted is found out)
        share_memory: bool = False,  # noqa: ARG002  (nothing is copied for workers)
        *,
        neighbor_cap: int | None = NEIGHBOR_CAP,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        self.graph, self.choice, self.times = graph_of(data), NeighborChoice(), None
        plan = HGTPlan.from_pyg(num_samples, self.graph.schema.node_types, neighbor_cap)
        self.macrobatch = HGTSampler(self.graph, plan, seed, threads)
        self.form = PygForm(names_of(data), SubgraphType.induced, index_dtype(data))

    def sample_from_edges(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            "HGT sampling begins with nodes, not with links; use PygNeighborSampler for links"
        )


#: Seeders are kept for at most this many negatives and relations.
_KEPT = 64


@dataclass(frozen=True)
class LinkRules:
    """The rules of sampling links that PyG does not have."""

    exclude_existing: bool = False  # True if negatives must not be edges
    exclude_seed_edges: Any = False  # False, True, "reverse", or a dict from relations to their reverses
    # What is done about links that are earlier than every node.
    late_negatives: LateNegatives = LateNegatives.WARN

    def __post_init__(self) -> None:
        if not isinstance(self.exclude_existing, bool):
            raise TypeError(f"exclude_existing must be True or False, got {self.exclude_existing!r}")

    def joined(self, other: LinkRules) -> LinkRules:
        own, given = self.exclude_seed_edges, other.exclude_seed_edges
        if own and given and own != given:
            raise ValueError(
                f"exclude_seed_edges={given!r}, but neighbor_sampler has {own!r}; leave one of them out"
            )
        late = self if other.late_negatives is LateNegatives.WARN else other
        both = other.exclude_existing or self.exclude_existing
        return LinkRules(both, own or given, late.late_negatives)


class PygNeighborSampler(PygNodeSampler):
    """PyG's `NeighborSampler`, with keyed samples.

    It is for ``NodeLoader(node_sampler=...)``, ``LinkLoader(link_sampler=...)``,
    ``NeighborLoader(neighbor_sampler=...)``, and for Lightning's ``LightningNodeData`` and
    ``LightningLinkData`` with ``loader="custom"``.

    >>> from torch_geometric.loader import NodeLoader
    >>> sampler = PygNeighborSampler(data, [10, 5], seed=1)
    >>> batch = next(iter(NodeLoader(data, sampler, input_nodes=data.train_mask, batch_size=32)))

    Args:
        data: a ``Data``, a ``HeteroData``, a ``(FeatureStore, GraphStore)`` pair, or a `CscGraph`;
            the loader's ``data`` must be the same graph.
        num_neighbors: fanouts in one of PyG's forms; -1 picks all neighbours. It can be assigned.
        subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr, is_sorted,
            directed: as in PyG's `NeighborSampler`.
        share_memory: ignored; worker processes read the same memory.
        sample_direction: "forward" follows edges against their direction, as layers do; "backward"
            follows them from source to target.
        time_window: how much older than its seed a neighbour may be, in the unit of the times.
        labor: "hop", "layers" or "epoch" lets destinations share the words of sources, None not; as
            in `MacrobatchNeighborLoader`.
        freeze: the time after which nothing is sampled; as in `MacrobatchNeighborLoader`.
        times: the attribute ``time_attr`` by group, for a `CscGraph`, which has no attributes.
        seed: the key of every random choice.
        threads: at most this many threads work; torch's number if None.
        epoch: the epoch, which samples also depend on and PyG's loaders do not know. Assign it
            between epochs, or give a function such as ``lambda: trainer.current_epoch``. Otherwise
            the same seeds get the same neighbours again.
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
        share_memory: bool = False,  # noqa: ARG002  (nothing is copied for workers)
        directed: bool = True,
        sample_direction: str = "forward",
        *,
        time_window: int | None = None,
        labor: str | None = None,
        freeze: int | None = None,
        times: Mapping[Group, Tensor] | None = None,
        seed: int = 0,
        threads: int | None = None,
        epoch: int | Callable[[], int] = 0,
    ) -> None:
        rules = disjoint, temporal_strategy, time_attr, time_window, weight_attr, is_sorted, labor, freeze
        subgraph = subgraph_of(subgraph_type, directed)
        choice = NeighborChoice(num_neighbors, replace, subgraph, *rules)
        self._make(data, choice, seed, threads, Direction.parse(sample_direction), times)
        self.epoch = epoch

    @classmethod
    def of(cls, data: Any, choice: NeighborChoice, seed: int, threads: int | None) -> PygNeighborSampler:
        """Makes a sampler from checked options. ``choice``: which neighbours are picked."""
        made = cls.__new__(cls)
        made._make(data, choice, seed, threads)
        return made

    def _make(
        self,
        data: Any,
        choice: NeighborChoice,
        seed: int,
        threads: int | None,
        direction: Direction = Direction.FORWARD,
        times: Mapping[Group, Tensor] | None = None,
    ) -> None:
        self.graph, names = graph_of(data), names_of(data)
        graph = self.graph if direction is Direction.FORWARD else reversed_graph(self.graph)
        plan = choice.plan(graph.schema, direction)
        self.times = None
        orders: Sequence[TimeOrder | None] = (None,) * len(graph.relations)
        weights: Sequence[WeightSums | None] = ()
        if choice.time_attr is not None:
            if direction is Direction.BACKWARD:
                raise NotImplementedError(
                    "times go with sample_direction='forward' only: a seed's time does not bound what "
                    "comes after it; leave time_attr out"
                )
            found = attribute_by_group(data, choice.time_attr, graph) if times is None else times
            self.times = Times.of(choice.time_attr, found, graph.rows_by_group)
            orders = self.times.orders(graph, choice.sortedness)
        if choice.weight_attr is not None:
            found = weight_by_group(data, choice.weight_attr, self.graph)
            if direction is Direction.BACKWARD:
                found = {reversed_group(group): weight for group, weight in found.items()}
            weights = sum_weights(choice.weight_attr, found, graph, orders)
        csc = graph if names is Names.TYPES else CscGraph(graph.relations[0])
        self.macrobatch = MacrobatchSampler(csc, plan, seed, threads, times=orders, weights=weights)
        self.form = PygForm(names, choice.subgraph_type, index_dtype(data), direction)
        self.choice, self.links = choice, LinkRules()
        self._has_warned = False
        # By relation and address of the negatives, which are held so that none other gets it.
        self._seeders: dict[tuple[Relation, int], tuple[NegativeSampling | None, LinkSeeder]] = {}

    @property
    def num_neighbors(self) -> NumNeighbors:
        """The fanouts, as PyG's object; may be set to anything that PyG's samplers take."""
        given = self.choice.num_neighbors
        return given if isinstance(given, NumNeighbors) else NumNeighbors(given)

    @num_neighbors.setter
    def num_neighbors(self, num_neighbors: Any) -> None:
        choice, made = dataclasses.replace(self.choice, num_neighbors=num_neighbors), self.macrobatch
        self.macrobatch = made.with_plan(choice.plan(made.schema, self.form.direction), made.layout)
        self.choice = choice

    def sample_from_edges(
        self, inputs: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> PygOutput:
        """Samples one minibatch around the links ``inputs``, with negatives drawn by key.

        With ``sample_direction="backward"`` a node's neighbours are the targets of its out-edges.
        Links, negatives and labels are the same.

        Raises:
            ValueError: with the link, a negative cannot be drawn, or is late and ``late_negatives``
                is "raise".
        """
        relations = self.graph.schema.relations
        if inputs.input_type is None and len(relations) != 1:
            raise ValueError(
                f"the links came without input_type, but the graph has the edge types {list(relations)}; "
                f"give EdgeSamplerInput(..., input_type=...)"
            )
        relation = inputs.input_type or relations[0]
        index = torch.arange(inputs.row.numel()) if inputs.input_id is None else inputs.input_id
        links = Links(relation, inputs.row.long(), inputs.col.long(), index, inputs.label, inputs.time)
        seeder = self._seeder(relation, neg_sampling)
        if not self._has_warned and relation in seeder.negatives:
            checked = [(relation, frozen(inputs.time, self.choice.freeze), seeder.negatives[relation])]
            self._has_warned = check_early_links(checked, self.links.late_negatives, stacklevel=2)
        start = seeder.start([links], self.macrobatch.seed, self.epoch)
        (minibatch,) = self.macrobatch.sample([start.seeds], self.epoch)
        return self.form.output(dataclasses.replace(minibatch, links=start.links))

    def _seeder(self, relation: Relation, neg_sampling: NegativeSampling | None) -> LinkSeeder:
        key = relation, id(neg_sampling)
        if key not in self._seeders:
            if len(self._seeders) == _KEPT:
                del self._seeders[next(iter(self._seeders))]
            graph, times, rules, plans = self.graph, self.times, self.links, {}
            if neg_sampling is not None:
                first = None if times is None else first_times(times, graph)
                plans[relation] = negative_plan(neg_sampling, relation, graph, first, rules.exclude_existing)
            excluded = SeedEdges.wanted(
                rules.exclude_seed_edges, graph.schema, [relation], self.form.direction
            )
            is_disjoint = self.choice.disjoint or times is not None
            made = LinkSeeder(graph.schema, plans, is_disjoint, excluded, freeze=self.choice.freeze)
            self._seeders[key] = neg_sampling, made
        return self._seeders[key][1]


class PygLinkSampler(PygNeighborSampler):
    """A `PygNeighborSampler` whose negatives avoid edges, and whose samples leave out edges of
    links.

    >>> from torch_geometric.loader import LinkLoader
    >>> sampler = PygLinkSampler(data, [10, 5], exclude_seed_edges=True, seed=1)
    >>> links = data.edge_index[:, :64]
    >>> batch = next(iter(LinkLoader(data, sampler, edge_label_index=links, batch_size=32)))

    Args:
        data, num_neighbors: as in `PygNeighborSampler`.
        exclude_existing, exclude_seed_edges, late_negatives: as in `MacrobatchLinkNeighborLoader`.
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
        self.links = LinkRules(exclude_existing, exclude_seed_edges, LateNegatives.parse(late_negatives))
