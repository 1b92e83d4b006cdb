"""The plan by which a minibatch grows from its seed nodes."""

from __future__ import annotations

import dataclasses
import enum
import numbers
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from pyg_batchgnn import ops
from pyg_batchgnn.data import HOMOGENEOUS, Relation, Schema
from pyg_batchgnn.sample.fanouts import ALL_NEIGHBORS, as_integer, fanouts_by_relation

#: A number of neighbours, -1 for all; or a share of them, a float in (0, 1].
Fanout: TypeAlias = int | float
Fanouts: TypeAlias = tuple[Fanout, ...]


class Replacement(enum.Enum):
    """The rule whether a neighbour may be picked more than once."""

    WITHOUT = "without"
    WITH = "with"


class TemporalStrategy(enum.Enum):
    """The neighbours to pick among those that the seed's time allows."""

    UNIFORM = "uniform"
    LAST = "last"  # the latest ones


class Subgraph(enum.Enum):
    """The edges of a minibatch."""

    DIRECTIONAL = "directional"  # the picked ones
    INDUCED = "induced"  # all edges between the nodes that were found


@dataclass(frozen=True)
class SamplingPlan:
    """The fanouts by hop and the rules of picking, checked once.

    Attributes:
        fanouts: neighbours to pick for each node of hop 0 (the seeds), 1, ...; -1 picks all. A
            float f in (0, 1] picks ceil(f n) of the n allowed neighbours. Without fanouts a
            minibatch is its seeds.
        replacement: with `Replacement.WITH` a node that has any neighbour gets exactly as many
            picks as the fanout says.
        edge_ids: True if minibatches carry the input ids of their edges.
        by_relation: the fanouts of relations that have their own, by relation, one per hop; other
            relations have ``fanouts``. A mapping may be given.
        disjoint: True if every seed has a subgraph of its own. Sampling by time always is disjoint.
        temporal: which neighbours to pick in sampling by time.
        time_window: with times, neighbours must not be older than this before the seed's time, in
            the unit of the times; None: they may be of any age.
        subgraph: which edges the minibatch has.

    Raises:
        ValueError, TypeError: a fanout is no integer or below -1 and no float in (0, 1], or
            relations have different numbers of hops.
    """

    fanouts: Fanouts
    replacement: Replacement = Replacement.WITHOUT
    edge_ids: bool = True
    by_relation: tuple[tuple[Relation, Fanouts], ...] = ()
    disjoint: bool = False
    temporal: TemporalStrategy = TemporalStrategy.UNIFORM
    time_window: int | None = None
    subgraph: Subgraph = Subgraph.DIRECTIONAL

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", tuple(map(_checked_fanout, self.fanouts)))
        for name, kind in (
            ("replacement", Replacement),
            ("temporal", TemporalStrategy),
            ("subgraph", Subgraph),
        ):
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
        object.__setattr__(self, "time_window", checked_time_window(self.time_window))

    @property
    def num_hops(self) -> int:
        """The number of hops."""
        return len(self.fanouts)

    def fanouts_of(self, relation: Relation) -> Fanouts:
        """Returns the fanouts of a relation by hop."""
        return dict(self.by_relation).get(relation, self.fanouts)

    def without_last_hop(self) -> SamplingPlan:
        """Returns the plan whose minibatches are those of this plan before the last hop.

        Raises:
            ValueError: the plan has one hop at most.
        """
        if self.num_hops <= 1:
            raise ValueError(
                f"an aggregation cache replaces the last hop of several, but the fanouts are "
                f"{list(self.fanouts)}; take a model of two layers or more, or no cache"
            )
        own = tuple((relation, fanouts[:-1]) for relation, fanouts in self.by_relation)
        return dataclasses.replace(self, fanouts=self.fanouts[:-1], by_relation=own)

    def settings(self) -> dict[str, Any]:
        """Returns the plan as values that JSON can hold."""
        return {
            "fanouts": list(self.fanouts),
            "fanouts_by_relation": [[list(name), list(own)] for name, own in self.by_relation],
            "replacement": self.replacement.value,
            "disjoint": self.disjoint,
            "temporal": self.temporal.value,
            "time_window": self.time_window,
            "subgraph": self.subgraph.value,
        }

    def summary(self) -> str:
        """Returns the fanouts in one line, those of relations that have their own by relation."""
        own = {"-".join(relation): list(fanouts) for relation, fanouts in self.by_relation}
        return f"fanouts={own or list(self.fanouts)}"

    def rules(self, schema: Schema, coo: bool) -> ops.SamplingRules:
        """Returns the plan for a graph, in the form that the kernel takes.

        Args:
            schema: the schema of the graph.
            coo: True for edges as in PyG's ``edge_index``.

        Raises:
            ValueError: the plan names a relation that the graph does not have.
        """
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
            self.replacement is Replacement.WITH,
            self.edge_ids,
            self.temporal is TemporalStrategy.LAST,
            -1 if self.time_window is None else self.time_window,
            self.subgraph is Subgraph.INDUCED,
            coo,
        )

    @classmethod
    def from_pyg(
        cls, num_neighbors: Any, replace: bool, schema: Schema = HOMOGENEOUS, **rules: Any
    ) -> SamplingPlan:
        """Returns the plan that PyG's ``num_neighbors`` and ``replace`` say.

        Args:
            num_neighbors: a list, a dict by relation, or a `NumNeighbors`.
            replace: True if a neighbour may be picked more than once.
            schema: the schema of the graph.
            rules: other fields of the plan.

        Raises:
            ValueError: a dict that names unknown relations or, without a default, not all; or
                relations with different numbers of hops.
            TypeError: another kind of ``num_neighbors``.
        """
        replacement = Replacement.WITH if replace else Replacement.WITHOUT
        # A graph without relations has fanouts all the same, which say the number of hops.
        fanouts = fanouts_by_relation(num_neighbors, schema.relations or HOMOGENEOUS.relations)
        if len(set(fanouts)) == 1:
            return cls(fanouts[0], replacement, **rules)
        own = tuple(zip(schema.relations, fanouts, strict=True))
        return cls((0,) * len(fanouts[0]), replacement, by_relation=own, **rules)


def checked_time_window(window: Any) -> int | None:
    """Returns None, or a window as Python's integer.

    Raises:
        TypeError, ValueError: it is neither None nor an int64 that is not negative.
    """
    if window is None:
        return None
    value = as_integer(window)
    if value is None:
        raise TypeError(f"time_window must be an integer or None, got {window!r}")
    if not 0 <= value < 1 << 63:
        raise ValueError(
            f"time_window must be from 0 to 2**63 - 1, got {value}; None allows neighbours of any age"
        )
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
