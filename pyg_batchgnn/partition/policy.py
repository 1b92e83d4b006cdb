"""The policies that decide which part owns a node, and what a policy of your own is given."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

from torch import Tensor

from pyg_batchgnn.data import Schema
from pyg_batchgnn.partition.balanced import Balanced, Metis, Multilevel, Score, Streaming
from pyg_batchgnn.partition.given import Given


class Neighbours(NamedTuple):
    """The in-neighbours of a few nodes.

    Attributes:
        indptr: [n + 1] int64, where each node's neighbours begin.
        node: [e] int32 or int64 original ids.
        owner: [e] int32 parts, -1 where a neighbour has none yet.
        node_type: [e] int64, the number of each neighbour's type in ``StreamState.schema``.
    """

    indptr: Tensor
    node: Tensor
    owner: Tensor
    node_type: Tensor


class StreamState(NamedTuple):
    """The state of the stream when a few nodes are to be assigned.

    Attributes:
        parts: the number of parts.
        seed: the seed of the run.
        load: [3, parts] float64, the nodes of the type, their in-edges and the training nodes among
            them that each part has got so far from all ranks, as of the beginning of the round.
        total: [3] float64, the same of the whole graph.
        train: [n] bool, True for training nodes.
        schema: the node types and the relations.
        node_type: the name of the type of the nodes to be assigned.
    """

    parts: int
    seed: int
    load: Tensor
    total: Tensor
    train: Tensor
    schema: Schema
    node_type: str


class Policy(Protocol):
    """A policy of your own.

    It is called for a few nodes of one type at a time, on every rank for the nodes that the rank
    has read. It returns the part of each node, [n] integers. Ranks go through their nodes side by
    side, type by type and in ascending original id; they may be called for no nodes at all. A
    policy should not depend on how many nodes it is asked for at once.
    """

    def __call__(self, node: Tensor, neighbours: Neighbours, state: StreamState) -> Tensor: ...


class Direct(Enum):
    """The policies that look at no neighbours."""

    RANDOM = "random"
    CONTIGUOUS = "contiguous"


#: The policies that are not functions.
BuiltIn = Direct | Balanced | Given
PolicyLike = str | BuiltIn | Policy


def as_policy(policy: PolicyLike) -> BuiltIn | Policy:
    """Returns a policy by name, or the policy itself."""
    if isinstance(policy, BuiltIn):
        return policy
    if isinstance(policy, str):
        named: dict[str, BuiltIn] = {direct.value: direct for direct in Direct}
        named |= {score.value: Streaming(score=score) for score in Score}
        named |= {"multilevel": Multilevel(), "metis": Metis()}
        if policy.endswith(".npy"):
            return Given(Path(policy).expanduser())
        if policy not in named:
            raise ValueError(
                f"policy {policy!r} is not known; choose among {', '.join(named)}, a .npy file of owners, "
                "or give a function"
            )
        return named[policy]
    if not callable(policy):
        raise TypeError(f"policy must be a name or a function, not {type(policy).__name__}")
    return policy


def name_of(policy: BuiltIn | Policy) -> str:
    """Returns the name of a policy, for messages, reports and agreement between ranks."""
    if isinstance(policy, Direct):
        return policy.value
    if isinstance(policy, (Balanced, Given)):
        return str(policy)
    return getattr(policy, "__qualname__", type(policy).__qualname__)
