"""The plans by which minibatches grow from their seeds: fanouts by hop, or budgets by node type."""

from __future__ import annotations

import dataclasses
import enum
import numbers
import operator
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import NumNeighbors
from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn import ops
from pyg_batchgnn.store import Sortedness
from pyg_batchgnn.types import HOMOGENEOUS, Relation, Schema

#: A number of neighbours, -1 for all; or a share of them, a float in (0, 1].
Fanout: TypeAlias = int | float
Fanouts: TypeAlias = tuple[Fanout, ...]


class Replacement(enum.Enum):
    """Whether a neighbour may be picked more than once for one node."""

    WITHOUT = "without"
    WITH = "with"


class TemporalStrategy(enum.Enum):
    """Which neighbours are picked, of all that are early enough for the seed."""

    UNIFORM = "uniform"
    LAST = "last"  # the latest ones


#: By what words of sources may be keyed, from the most to the least that is drawn anew.
LABOR = ("hop", "layers", "epoch")


class Subgraph(enum.Enum):
    """The edges of a minibatch."""

    DIRECTIONAL = "directional"  # the picked ones
    INDUCED = "induced"  # all edges between the nodes that were found


@dataclass(frozen=True)
class SamplingPlan:
    """The fanouts by hop and the rules of picking, checked once.

    >>> # 10 neighbours of each seed, which may repeat, then all neighbours of those
    >>> SamplingPlan((10, -1), Replacement.WITH).num_hops
    2

    Raises:
        ValueError, TypeError: a fanout is neither an integer from -1 on nor a float in (0, 1],
            relations differ in their hops, or ``labor`` does not go with another rule.
    """

    #: neighbours to pick for each node of hop 0 (the seeds), 1, ...; -1 picks all. A float f in (0,
    #: 1] picks ceil(f n) of the n allowed neighbours. Without fanouts a minibatch is its seeds.
    fanouts: Fanouts
    #: with `Replacement.WITH` a node that has any neighbour gets exactly as many picks as the
    #: fanout says
    replacement: Replacement = Replacement.WITHOUT
    edge_ids: bool = True  # True if minibatches carry the input ids of their edges
    #: the fanouts of relations that have their own, by relation, one per hop; other relations have
    #: ``fanouts``. A mapping may be given.
    by_relation: tuple[tuple[Relation, Fanouts], ...] = ()
    #: True if every seed has a subgraph of its own. Sampling by time always is disjoint.
    disjoint: bool = False
    temporal: TemporalStrategy = TemporalStrategy.UNIFORM  # which neighbours to pick in sampling by time
    #: with times, neighbours must not be older than this before the seed's time, in the unit of the
    #: times; None: they may be of any age
    time_window: int | None = None
    subgraph: Subgraph = Subgraph.DIRECTIONAL  # which edges the minibatch has
    #: "hop", "layers" or "epoch": the destinations of a minibatch share a random word per source,
    #: keyed by this, so that fewer distinct nodes are sampled (LABOR, Balin and Catalyurek 2023).
    #: None: every destination picks by itself.
    labor: str | None = None
    freeze: int | None = None  # with times, later seeds are sampled at this time; None: all at their own

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", tuple(map(_checked_fanout, self.fanouts)))
        kinds = {"replacement": Replacement, "temporal": TemporalStrategy, "subgraph": Subgraph}
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must be {ops.with_article(kind)}, got {getattr(self, name)!r}")
        given = dict(self.by_relation).items()
        own = tuple((relation, tuple(map(_checked_fanout, fanouts))) for relation, fanouts in given)
        object.__setattr__(self, "by_relation", own)
        for relation, fanouts in own:
            if len(fanouts) != self.num_hops:
                raise ValueError(
                    f"Number of hops must be the same across all edge types: {relation} has {len(fanouts)} "
                    f"fanouts, others have {self.num_hops}"
                )
        object.__setattr__(self, "time_window", checked_time("time_window", self.time_window))
        object.__setattr__(self, "freeze", checked_time("freeze", self.freeze))
        if self.labor is not None:
            self._check_labor()

    def _check_labor(self) -> None:
        known = ", ".join(map(repr, LABOR))
        if self.labor not in LABOR:
            raise ValueError(f"labor must be None or one of {known}, got {self.labor!r}")
        for is_set, what, why in (
            (self.replacement is Replacement.WITH, "replace=True", "the word of a source is drawn once"),
            (self.subgraph is Subgraph.INDUCED, "an induced subgraph", "it takes all edges"),
            (self.disjoint, "disjoint=True", "disjoint subgraphs share no sources"),
        ):
            if is_set:
                raise ValueError(f"labor={self.labor!r} does not go with {what}: {why}; leave out one")

    @property
    def num_hops(self) -> int:
        """The number of hops; 0 if a minibatch is its seeds."""
        return len(self.fanouts)

    def fanouts_of(self, relation: Relation) -> Fanouts:
        """Returns the fanouts of a relation by hop."""
        return dict(self.by_relation).get(relation, self.fanouts)

    def without_last_hop(self) -> SamplingPlan:
        """Returns the plan for minibatches whose last hop an `AggregationCache` replaces."""
        if self.num_hops <= 1:
            raise ValueError(
                f"an aggregation cache replaces the last hop of several, but the fanouts are "
                f"{list(self.fanouts)}; take a model of two layers or more, or no cache"
            )
        own = tuple((relation, fanouts[:-1]) for relation, fanouts in self.by_relation)
        return dataclasses.replace(self, fanouts=self.fanouts[:-1], by_relation=own)

    def settings(self) -> dict[str, Any]:
        """Returns the plan as JSON values, to compare on ranks and with saved states of loaders."""
        rules = {name: getattr(value, "value", value) for name, value in vars(self).items()}
        del rules["edge_ids"]  # they change no minibatch
        unset = {name for name, value in rules.items() if value is None and name != "time_window"}
        return {
            **{name: value for name, value in rules.items() if name not in {"by_relation", *unset}},
            "fanouts": list(self.fanouts),
            "fanouts_by_relation": [[list(name), list(own)] for name, own in self.by_relation],
        }

    def summary(self) -> str:
        """Returns the fanouts as a text for a loader's ``repr``."""
        own = {"-".join(relation): list(fanouts) for relation, fanouts in self.by_relation}
        return f"fanouts={own or list(self.fanouts)}"

    def rules(self, schema: Schema, coo: bool) -> ops.SamplingRules:
        """Returns the plan as the kernel takes it. ``coo``: edges lie as in PyG's
        ``edge_index``."""
        unknown = [relation for relation, _ in self.by_relation if relation not in schema.relations]
        if unknown:
            raise ValueError(
                f"Not all edge types specified in 'num_neighbors' exist in the graph: {unknown} are none of "
                f"{list(schema.relations)}"
            )
        own = dict(self.by_relation)
        fanouts = [fanout for names in schema.relations for fanout in own.get(names, self.fanouts)]
        shares = [fanout if isinstance(fanout, float) else 0.0 for fanout in fanouts]
        return ops.SamplingRules(
            self.num_hops,
            [0 if isinstance(fanout, float) else fanout for fanout in fanouts],
            torch.tensor(shares, dtype=torch.float64) if any(shares) else None,
            coo,
            {
                "replace": self.replacement is Replacement.WITH,
                "edge_ids": self.edge_ids,
                "last": self.temporal is TemporalStrategy.LAST,
                "window": -1 if self.time_window is None else self.time_window,
                "induced": self.subgraph is Subgraph.INDUCED,
                "labor": 0 if self.labor is None else 1 + LABOR.index(self.labor),
            },
        )


def refuse_times(labor: str) -> NoReturn:
    raise ValueError(
        f"labor={labor!r} does not go with times: every seed then has a subgraph of its own, which shares "
        f"no sources; leave out one"
    )


def checked_time(name: str, given: Any) -> int | None:
    value, least = as_integer(given), "0" if name == "time_window" else "-2**63"
    if value is None and given is not None:
        raise TypeError(f"{name} must be an integer in the unit of the times, or None, got {given!r}")
    if value is not None and not (0 if least == "0" else -(1 << 63)) <= value < 1 << 63:
        raise ValueError(f"{name} must be from {least} to 2**63 - 1, got {value}; None sets no bound")
    return value


def _checked_fanout(fanout: Any) -> Fanout:
    value = as_integer(fanout)
    if value is None:
        is_number = isinstance(fanout, numbers.Real) and not isinstance(fanout, bool)
        if is_number and 0 < float(fanout) <= 1:
            return float(fanout)
        raise TypeError(f"a fanout must be an integer, or a float in (0, 1], got {fanout!r}")
    if value < ALL_NEIGHBORS:
        raise ValueError(f"a fanout must be -1 (all neighbours), 0 or more, got {value}")
    if value >= 1 << 31:
        raise ValueError(f"a fanout must be below 2**31, got {value}; -1 picks all neighbours")
    return value


class Direction(enum.Enum):
    """The direction in which neighbours are looked for (PyG's ``sample_direction``)."""

    FORWARD = "forward"  # the sources of edges into a node
    BACKWARD = "backward"  # the targets of edges from a node

    @classmethod
    def parse(cls, name: Any) -> Direction:
        try:
            return cls(name)
        except ValueError:
            raise ValueError(f"sample_direction must be 'forward' or 'backward', got {name!r}") from None

    def fanouts(self, num_neighbors: Any) -> Any:
        """Returns ``num_neighbors`` by the sampled graph's relations, which backward are
        reversed."""
        values, default = _parts(num_neighbors)
        if self is Direction.FORWARD or not isinstance(values, Mapping):
            return num_neighbors
        backward = {}
        for names, fanouts in values.items():
            if isinstance(names, str):
                names = names.to_tuple() if hasattr(names, "to_tuple") else names.split("__")
            backward[tuple(reversed(names))] = fanouts
        return NumNeighbors(backward, default) if isinstance(num_neighbors, NumNeighbors) else backward


@dataclass(frozen=True)
class NeighborChoice:
    """The arguments of PyG's samplers that decide which neighbours are picked, checked."""

    num_neighbors: Any = ()  # fanouts by hop; a list, a dict by relation, or a `NumNeighbors`
    replace: bool = False  # True samples with replacement
    subgraph_type: SubgraphType = SubgraphType.directional  # which edges a sample has; its name does, too
    disjoint: bool = False  # True if every seed has a subgraph of its own
    # "uniform" or "last", of the neighbours that a seed's time allows.
    temporal_strategy: str = "uniform"
    time_attr: str | None = None  # the attribute that holds times, or None
    time_window: int | None = None  # how much older than the seed a neighbour may be; None for any age
    weight_attr: str | None = None  # the attribute that holds the weights of edges, or None
    is_sorted: bool = False  # the user's promise that edges are sorted by target, and by time within it
    labor: str | None = None  # what the words of sources are keyed by, if destinations share them
    freeze: int | None = None  # the time after which nothing is sampled; None for the seeds' times alone

    def __post_init__(self) -> None:
        kind = getattr(self.subgraph_type, "value", self.subgraph_type)
        if kind not in [one.value for one in SubgraphType]:
            choices = ", ".join(repr(one.value) for one in SubgraphType)
            raise ValueError(f"subgraph_type must be one of {choices}, got {self.subgraph_type!r}")
        object.__setattr__(self, "subgraph_type", SubgraphType(kind))
        for name in ("replace", "disjoint", "is_sorted"):
            ops.check_type(name, getattr(self, name), (bool, int, np.bool_), "give True or False")
        for name in ("time_attr", "weight_attr"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise TypeError(
                    f"{name} must be the name of an attribute, got {value!r}; where several types have one, "
                    f"give it the same name in each"
                )
        if self.temporal_strategy not in ("uniform", "last"):
            raise ValueError(f"temporal_strategy must be 'uniform' or 'last', got {self.temporal_strategy!r}")
        for name in ("time_window", "freeze"):
            value = checked_time(name, getattr(self, name))
            if value is not None and self.time_attr is None:
                raise ValueError(f"{name}={value} needs time_attr, which names the times")
            object.__setattr__(self, name, value)
        if self.labor is not None and self.time_attr is not None:
            refuse_times(self.labor)

    @property
    def sortedness(self) -> Sortedness:
        return Sortedness.PROMISED if self.is_sorted else Sortedness.UNKNOWN

    def rules(self) -> dict[str, Any]:
        """Returns all fields but ``num_neighbors``, by the names of the loader's arguments."""
        own = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)[1:]}
        return {**own, "subgraph_type": self.subgraph_type.value}

    def plan(self, schema: Schema, direction: Direction = Direction.FORWARD) -> SamplingPlan:
        """Returns the plan for a graph; backward, ``schema`` is of the reversed graph. Raises
        ValueError or TypeError if ``num_neighbors`` does not fit."""
        # A graph without relations has fanouts all the same, which say the number of hops.
        relations = schema.relations or HOMOGENEOUS.relations
        fanouts = fanouts_by_relation(direction.fanouts(self.num_neighbors), relations)
        is_same = len(set(fanouts)) == 1
        is_induced = self.subgraph_type is SubgraphType.induced
        shared = {one.name for one in dataclasses.fields(SamplingPlan)} & vars(self).keys()
        return SamplingPlan(
            fanouts[0] if is_same else (0,) * len(fanouts[0]),
            Replacement.WITH if self.replace else Replacement.WITHOUT,
            by_relation=() if is_same else tuple(zip(relations, fanouts, strict=True)),
            temporal=TemporalStrategy(self.temporal_strategy),
            subgraph=Subgraph.INDUCED if is_induced else Subgraph.DIRECTIONAL,
            **{name: getattr(self, name) for name in shared},
        )


def subgraph_of(subgraph_type: Any, directed: bool) -> Any:
    """Returns PyG's subgraph type; induced for ``directed=False``, PyG's deprecated argument."""
    if not isinstance(directed, bool):
        raise TypeError(f"directed must be True or False, got {directed!r}")
    if directed:
        return subgraph_type
    warnings.warn("directed=False is deprecated; use subgraph_type='induced'", stacklevel=3)
    return SubgraphType.induced


#: The neighbours of a node that count in a relation, in PyG's `HGTLoader` as well.
NEIGHBOR_CAP = 50


@dataclass(frozen=True)
class HGTPlan:
    """The number of nodes of each type that each hop samples. Raises TypeError or ValueError for an
    impossible number, no hop, or types with different numbers of hops."""

    # For each node type, or by name, the nodes to sample by hop; -1 samples all candidates.
    samples: tuple[tuple[str, tuple[int, ...]], ...]
    # At most this many in-edges of a node count in a relation. If a node has more, those that count
    # are drawn once per minibatch. None for no cap.
    neighbor_cap: int | None = NEIGHBOR_CAP
    edge_ids: bool = True  # True if minibatches carry the input ids of their edges

    def __post_init__(self) -> None:
        given = dict(self.samples).items()
        samples = tuple((name, tuple(_checked_samples(one, name) for one in hops)) for name, hops in given)
        object.__setattr__(self, "samples", samples)
        lengths = {name: len(hops) for name, hops in samples}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"num_samples must have one number per hop for every node type, but the numbers of hops are "
                f"{lengths}; fill up with zeros"
            )
        if not any(lengths.values()):
            raise ValueError("num_samples must have at least one hop, for instance [512, 512]")
        cap = self.neighbor_cap
        if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int)):
            raise TypeError(f"neighbor_cap must be an integer or None, got {cap!r}")
        if cap is not None and not 1 <= cap < 1 << 31:
            raise ValueError(
                f"neighbor_cap must be from 1 to 2**31 - 1, got {cap}; None lets all neighbours count"
            )

    @property
    def num_hops(self) -> int:
        return len(self.samples[0][1])

    @property
    def subgraph(self) -> Subgraph:
        return Subgraph.INDUCED

    @classmethod
    def from_pyg(
        cls, num_samples: Any, node_types: Sequence[str], neighbor_cap: int | None = NEIGHBOR_CAP
    ) -> HGTPlan:
        """Returns the plan for PyG's ``num_samples``: a list for all node types, or a dict of lists
        by node type. Raises TypeError for another form, ValueError for other types."""
        if not isinstance(num_samples, Mapping):
            num_samples = dict.fromkeys(node_types, _samples_by_hop(num_samples))
        if unknown := [name for name in num_samples if name not in node_types]:
            raise ValueError(
                f"num_samples names the node type {unknown[0]!r}; the graph has {', '.join(node_types)}"
            )
        if missing := [name for name in node_types if name not in num_samples]:
            raise ValueError(
                f"num_samples lacks the node type {missing[0]!r}; add it (a list of zeros samples no nodes)"
            )
        return cls(tuple((name, _samples_by_hop(num_samples[name])) for name in node_types), neighbor_cap)

    def rules(self, schema: Schema, coo: bool) -> ops.BudgetRules:
        """Returns the plan as the kernel takes it. ``coo``: as in `SamplingPlan.rules`."""
        by_type = dict(self.samples)
        if set(by_type) != set(schema.node_types):
            raise ValueError(
                f"the plan is for the node types {list(by_type)}, but the graph has "
                f"{list(schema.node_types)}; name each of them once"
            )
        return ops.BudgetRules(
            self.num_hops,
            [one for name in schema.node_types for one in by_type[name]],
            [ops.to_signed(ops.names_key((name,))) for name in schema.node_types],
            ALL_NEIGHBORS if self.neighbor_cap is None else self.neighbor_cap,
            self.edge_ids,
            coo,
        )

    def settings(self) -> dict[str, Any]:
        samples = [[name, list(hops)] for name, hops in self.samples]
        return {"num_samples": samples, "neighbor_cap": self.neighbor_cap}

    def summary(self) -> str:
        hops = {name: list(numbers) for name, numbers in self.samples}
        return f"num_samples={hops}"


def _samples_by_hop(values: Any) -> tuple[Any, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise TypeError(
            f"num_samples must be a list with one number per hop, or a dict of such lists by node type, got "
            f"{values!r}"
        )
    return tuple(values)


def _checked_samples(value: Any, name: str) -> int:
    number = as_integer(value)
    if number is None:
        raise TypeError(f"num_samples of {name!r} must be integers, got {value!r}")
    if not ALL_NEIGHBORS <= number < 1 << 31:
        raise ValueError(f"num_samples of {name!r} must be from -1 (all) to 2**31 - 1, got {number}")
    return number


ALL_NEIGHBORS = -1  # the fanout that takes all neighbours


def fanouts_by_relation(num_neighbors: Any, relations: Sequence[Relation]) -> tuple[tuple[Any, ...], ...]:
    """Returns the fanouts of each relation, in the order of ``relations``. Negative integers become
    -1, as in PyG. `SamplingPlan` checks the entries.

    Args:
        num_neighbors: a list for every relation; a `NumNeighbors`; or a dict of lists by relation,
            given as three names, as two (the name "to" is added) or like "paper__to__paper".
    """
    values, default = _parts(num_neighbors)
    if not isinstance(values, Mapping):
        return tuple(_hops(values, num_neighbors) for _ in relations)
    named = {_relation(key): _hops(hops, num_neighbors) for key, hops in values.items()}
    if unknown := named.keys() - set(relations):
        raise ValueError(
            f"Not all edge types specified in 'num_neighbors' exist in the graph: {min(unknown)} does not; "
            f"it has {', '.join(map(str, relations)) or 'none'}"
        )
    if default is not None:
        named = {**dict.fromkeys(relations, _hops(default, num_neighbors)), **named}
    if missing := [relation for relation in relations if relation not in named]:
        raise ValueError(
            f"Missing number of neighbors for edge type {missing[0]}: num_neighbors names "
            f"{len(named)} of {len(relations)} edge types; add it (a list of zeros samples nothing), or use "
            f"NumNeighbors(values, default=...)"
        )
    lengths = {relation: len(hops) for relation, hops in named.items()}
    if len(set(lengths.values())) > 1:
        one, other = min(lengths, key=lengths.__getitem__), max(lengths, key=lengths.__getitem__)
        raise ValueError(
            f"Number of hops must be the same across all edge types, but {one} has {lengths[one]} and "
            f"{other} has {lengths[other]}; fill up with zeros"
        )
    return tuple(named[relation] for relation in relations)


def as_integer(value: Any) -> int | None:
    """Returns an integer of Python, NumPy or torch as an ``int``; None for any other value."""
    if isinstance(value, bool) or getattr(value, "dtype", None) is torch.bool:
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _parts(num_neighbors: Any) -> tuple[Any, Any]:
    if isinstance(num_neighbors, NumNeighbors):
        return num_neighbors.values, num_neighbors.default
    return num_neighbors, None


def _hops(values: Any, num_neighbors: Any) -> tuple[Any, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise TypeError(
            f"num_neighbors must be a list with one entry for each hop, or a dict of such lists by edge "
            f"type, got {num_neighbors!r}"
        )
    numbers = map(as_integer, values)
    return tuple(
        ALL_NEIGHBORS if number is not None and number < 0 else value
        for value, number in zip(values, numbers, strict=True)
    )


def _relation(key: Any) -> Relation:
    names = key.split("__") if isinstance(key, str) else list(key) if isinstance(key, tuple) else []
    if len(names) == 2 and not isinstance(key, str):
        names.insert(1, "to")  # what PyG calls the relation of a pair of node types
    if len(names) != 3 or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"num_neighbors has the key {key!r}, which is no edge type; write (source, name, target)"
        )
    return names[0], names[1], names[2]


def taken_probability(degree: Tensor, fanout: Fanout, replacement: Replacement) -> Tensor:
    """Returns [n], the probability that a given in-edge of a node is picked. ``degree``: [n]
    floating-point, the node's in-edges. ``fanout``: the number of neighbours to pick, -1 for all,
    or a share."""
    degree = degree.clamp(min=1)
    if fanout == ALL_NEIGHBORS:
        return torch.ones_like(degree)
    picks: Any = fanout
    if isinstance(fanout, float):  # as the kernel counts them: 0.1 * 30 may come out a little too large
        picks = (degree.double() * fanout - 1e-9).ceil().clamp(min=1).to(degree.dtype)
    if replacement is Replacement.WITH:
        return 1 - (1 - 1 / degree) ** picks
    return (picks / degree).clamp(max=1)
