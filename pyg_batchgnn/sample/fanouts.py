"""PyG's forms of ``num_neighbors``, read as fanouts by relation."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch_geometric.sampler import NumNeighbors

from pyg_batchgnn.data import Relation

#: Of each hop: a number of neighbours, -1 for all, or a fraction of them.
HopFanouts: TypeAlias = tuple[Any, ...]

#: The fanout that takes all neighbours.
ALL_NEIGHBORS = -1

#: PyG's name of the relation that a pair of node types stands for.
_DEFAULT_NAME = "to"


def fanouts_by_relation(num_neighbors: Any, relations: Sequence[Relation]) -> tuple[HopFanouts, ...]:
    """Returns the fanouts of each relation, in the order of ``relations``.

    Negative integers become -1, as in PyG. The entries are checked by `SamplingPlan`.

    Args:
        num_neighbors: a list, which holds for every relation; a dict of lists by relation, whose
            keys are tuples of three names or of two (the name "to" is added), or texts like
            "paper__to__paper"; or a `NumNeighbors`.
        relations: the relations of the graph.

    Raises:
        TypeError: another form.
        ValueError: a relation is missing or unknown, or the numbers of hops differ.
    """
    values, default = _parts(num_neighbors)
    if not isinstance(values, Mapping):
        return tuple(_hops(values, num_neighbors) for _ in relations)
    named = {_relation(key): _hops(hops, num_neighbors) for key, hops in values.items()}
    _refuse_unknown(named, relations)
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
    """Returns an integer of Python, NumPy or torch as Python's; None for booleans and all else."""
    if isinstance(value, bool) or getattr(value, "dtype", None) is torch.bool:
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _parts(num_neighbors: Any) -> tuple[Any, Any]:
    """Returns the values and the default of a `NumNeighbors`, or the values alone."""
    if isinstance(num_neighbors, NumNeighbors):
        return num_neighbors.values, num_neighbors.default
    return num_neighbors, None


def _hops(values: Any, num_neighbors: Any) -> HopFanouts:
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise TypeError(
            f"num_neighbors must be a list with one entry for each hop, or a dict of such lists by edge "
            f"type, got {num_neighbors!r}"
        )
    return tuple(map(_fanout, values))


def _fanout(value: Any) -> Any:
    number = as_integer(value)
    return ALL_NEIGHBORS if number is not None and number < 0 else value


def _relation(key: Any) -> Relation:
    """Returns the relation that a key of a dict names."""
    names = key.split("__") if isinstance(key, str) else list(key) if isinstance(key, tuple) else []
    if len(names) == 2 and not isinstance(key, str):
        names.insert(1, _DEFAULT_NAME)
    if len(names) != 3 or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"num_neighbors has the key {key!r}, which is no edge type; write (source, name, target)"
        )
    return names[0], names[1], names[2]


def _refuse_unknown(named: Mapping[Relation, Any], relations: Sequence[Relation]) -> None:
    known = set(relations)
    if unknown := [relation for relation in named if relation not in known]:
        raise ValueError(
            f"Not all edge types specified in 'num_neighbors' exist in the graph: {unknown[0]} does not; "
            f"it has {', '.join(map(str, relations)) or 'none'}"
        )
