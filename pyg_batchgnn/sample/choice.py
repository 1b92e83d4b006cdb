"""The rules by which neighbours are chosen, in PyG's words."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn.data import Schema
from pyg_batchgnn.sample.plan import SamplingPlan, Subgraph, TemporalStrategy, checked_time_window
from pyg_batchgnn.store import Sortedness

#: The arguments of PyG's that are attributes of a choice.
_AS_THEY_ARE = ("disjoint", "temporal_strategy", "time_attr", "time_window", "weight_attr")


@dataclass(frozen=True)
class NeighborChoice:
    """The rules by which neighbours are chosen, beside fanouts and replacement.

    Attributes:
        subgraph: which edges a sample has.
        disjoint: True if every seed has a subgraph of its own.
        temporal_strategy: "uniform" or "last", of the neighbours that a seed's time allows.
        time_attr: the attribute that holds times, or None.
        time_window: how much older than the seed a neighbour may be; None for any age.
        weight_attr: the attribute that holds the weights of edges, or None.
        sortedness: what the user says of the order of edges.
    """

    subgraph: SubgraphType = SubgraphType.directional
    disjoint: bool = False
    temporal_strategy: str = "uniform"
    time_attr: str | None = None
    time_window: int | None = None
    weight_attr: str | None = None
    sortedness: Sortedness = Sortedness.UNKNOWN

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> NeighborChoice:
        """Returns the choice that the arguments of a loader or of a sampler make.

        Args:
            arguments: by their names in PyG. ``subgraph_type`` is a `SubgraphType` or its name,
                ``directed`` PyG's deprecated word for a subgraph that is not induced, and
                ``is_sorted`` the user's promise about edges. A loader of nodes has ``input_time``.

        Raises:
            ValueError: an unknown name, or ``input_time`` without ``time_attr``.
        """
        subgraph_type = arguments["subgraph_type"]
        if not arguments["directed"]:
            warnings.warn("directed=False is deprecated; use subgraph_type='induced'", stacklevel=4)
            subgraph_type = SubgraphType.induced
        choice = cls(
            subgraph=_subgraph(subgraph_type),
            sortedness=Sortedness.PROMISED if arguments["is_sorted"] else Sortedness.UNKNOWN,
            **{name: arguments[name] for name in _AS_THEY_ARE},
        )
        if arguments.get("input_time") is not None and choice.time_attr is None:
            raise ValueError(
                "input_time is set while time_attr is not: name the attribute that holds the times"
            )
        return choice

    def __post_init__(self) -> None:
        for name in ("time_attr", "weight_attr"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise TypeError(
                    f"{name} must be the name of an attribute, got {value!r}; where several types have one, "
                    f"give it the same name in each"
                )
        if self.temporal_strategy not in ("uniform", "last"):
            raise ValueError(f"temporal_strategy must be 'uniform' or 'last', got {self.temporal_strategy!r}")
        if self.time_window is not None:
            if self.time_attr is None:
                raise ValueError(f"time_window={self.time_window} needs time_attr, which names the times")
            object.__setattr__(self, "time_window", checked_time_window(self.time_window))

    def plan(self, num_neighbors: Any, replace: bool, schema: Schema) -> SamplingPlan:
        """Returns the plan that these rules make for a graph.

        Args:
            num_neighbors: the fanouts in one of PyG's forms.
            replace: True if a neighbour may be picked more than once.
            schema: the schema of the graph.
        """
        is_induced = self.subgraph is SubgraphType.induced
        return SamplingPlan.from_pyg(
            num_neighbors,
            replace,
            schema,
            disjoint=self.disjoint,
            temporal=TemporalStrategy(self.temporal_strategy),
            time_window=self.time_window,
            subgraph=Subgraph.INDUCED if is_induced else Subgraph.DIRECTIONAL,
        )


def _subgraph(subgraph_type: Any) -> SubgraphType:
    kind = getattr(subgraph_type, "value", subgraph_type)
    if kind not in [one.value for one in SubgraphType]:
        choices = ", ".join(repr(one.value) for one in SubgraphType)
        raise ValueError(f"subgraph_type must be one of {choices}, got {subgraph_type!r}")
    return SubgraphType(kind)
