"""The plan of sampling by budgets, as the Heterogeneous Graph Transformer does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyg_batchgnn import ops
from pyg_batchgnn.data import Schema
from pyg_batchgnn.sample.fanouts import as_integer
from pyg_batchgnn.sample.plan import Subgraph

ALL = -1

#: The neighbours of a node that count in a relation, in PyG's `HGTLoader` as well.
NEIGHBOR_CAP = 50


@dataclass(frozen=True)
class HGTPlan:
    """The number of nodes of each type that each hop samples, checked once.

    Attributes:
        samples: for each node type, the nodes to sample by hop; -1 samples all candidates. A
            mapping may be given.
        neighbor_cap: at most this many in-edges of a node count in a relation. If a node has more,
            those that count are drawn once per minibatch. None for no cap.
        edge_ids: True if minibatches carry the input ids of their edges.

    Raises:
        TypeError, ValueError: a number that cannot be, no hop, or types with different numbers of
            hops.
    """

    samples: tuple[tuple[str, tuple[int, ...]], ...]
    neighbor_cap: int | None = NEIGHBOR_CAP
    edge_ids: bool = True

    def __post_init__(self) -> None:
        given = dict(self.samples).items()
        samples = tuple((name, tuple(_checked(one, name) for one in hops)) for name, hops in given)
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
        """The number of hops."""
        return len(self.samples[0][1])

    @property
    def subgraph(self) -> Subgraph:
        """The edges of a minibatch: those between its nodes."""
        return Subgraph.INDUCED

    @classmethod
    def from_pyg(
        cls, num_samples: Any, node_types: Sequence[str], neighbor_cap: int | None = NEIGHBOR_CAP
    ) -> HGTPlan:
        """Returns the plan that PyG's ``num_samples`` says.

        Args:
            num_samples: a list for all node types, or a dict of lists by node type.
            node_types: the node types of the graph.
            neighbor_cap: see the attribute.

        Raises:
            TypeError: another form.
            ValueError: a type is missing or unknown, or the numbers of hops differ.
        """
        if not isinstance(num_samples, Mapping):
            num_samples = dict.fromkeys(node_types, _hops(num_samples))
        if unknown := [name for name in num_samples if name not in node_types]:
            raise ValueError(
                f"num_samples names the node type {unknown[0]!r}; the graph has {', '.join(node_types)}"
            )
        if missing := [name for name in node_types if name not in num_samples]:
            raise ValueError(
                f"num_samples lacks the node type {missing[0]!r}; add it (a list of zeros samples no nodes)"
            )
        return cls(tuple((name, _hops(num_samples[name])) for name in node_types), neighbor_cap)

    def rules(self, schema: Schema, coo: bool) -> ops.BudgetRules:
        """Returns the plan for a graph, in the form that the kernel takes.

        Args:
            schema: the schema of the graph, whose node types are those of the plan.
            coo: True for edges as in PyG's ``edge_index``.

        Raises:
            ValueError: the plan is for other node types.
        """
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
            ALL if self.neighbor_cap is None else self.neighbor_cap,
            self.edge_ids,
            coo,
        )

    def settings(self) -> dict[str, Any]:
        """Returns the plan as values that JSON can hold."""
        samples = [[name, list(hops)] for name, hops in self.samples]
        return {"num_samples": samples, "neighbor_cap": self.neighbor_cap}

    def summary(self) -> str:
        """Returns the nodes per hop in one line, by node type."""
        hops = {name: list(numbers) for name, numbers in self.samples}
        return f"num_samples={hops}"


def _hops(values: Any) -> tuple[Any, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise TypeError(
            f"num_samples must be a list with one number per hop, or a dict of such lists by node type, got "
            f"{values!r}"
        )
    return tuple(values)


def _checked(value: Any, name: str) -> int:
    number = as_integer(value)
    if number is None:
        raise TypeError(f"num_samples of {name!r} must be integers, got {value!r}")
    if not ALL <= number < 1 << 31:
        raise ValueError(f"num_samples of {name!r} must be from -1 (all) to 2**31 - 1, got {number}")
    return number
