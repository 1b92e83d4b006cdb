"""The policies that decide which part owns a node, and the interface of a user's policy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import Dataset, DatasetError
from pyg_batchgnn.partition.reading import ReadingSlice
from pyg_batchgnn.types import Schema

#: Loads that every graph has: nodes, and in-edges, which count for the target's part.
NODES, EDGES = "nodes", "edges"

SLACK = 1.05  # how many times the mean of each load a part may have, by default


@dataclass(frozen=True)
class Balanced:
    """The loads that a policy balances. Raises `ValueError` for a slack below 1, or no loads."""

    #: by load: how many times the mean a part may have, if possible. A load is "nodes", "edges"
    #: (in-edges of the nodes), a split ("train", "val", "test": its nodes), or an attribute with
    #: one weight per node. Each counts separately for each node type
    balance: Mapping[str, float] = field(default_factory=lambda: {NODES: SLACK, EDGES: SLACK, "train": SLACK})

    def __post_init__(self) -> None:
        if not isinstance(self.balance, Mapping) or not self.balance:
            raise ValueError('balance must name at least one load; {"nodes": 1.05} balances the nodes')
        for name, slack in self.balance.items():
            if not isinstance(slack, (int, float)) or not 1 <= slack < math.inf:
                fact = f"the slack of {name!r} must be finite and at least 1, not {slack}"
                remedy = "leave out a load that parts may have any amount of"
                raise ValueError(f"{fact}; 1.05 allows parts 5 % above the mean, or {remedy}")

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()} ({self._loads})"

    @property
    def _loads(self) -> str:
        return ", ".join(f"{name} {slack:g}" for name, slack in self.balance.items())


class Score(Enum):
    """How a streaming policy scores parts."""

    LDG = "ldg"
    FENNEL = "fennel"


@dataclass(frozen=True)
class Streaming(Balanced):
    """The policy LDG (Stanton and Kliot 2012) or Fennel (Tsourakakis et al. 2014), with any loads
    balanced. LDG takes the part with the most in-neighbours, weighted by its room; Fennel subtracts
    a price that rises as the part fills.

    >>> print(Streaming(score=Score.FENNEL, passes=2))
    fennel (2 passes, nodes 1.05, edges 1.05, train 1.05)

    ``passes``: how often all nodes are streamed. In a later pass all neighbours have owners, from
    this pass or the one before it (restreaming, Nishimura and Ugander 2013).
    """

    score: Score = Score.LDG
    passes: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        ops.check_type("passes", self.passes, int, "give int(passes)")
        if self.passes < 1:
            raise ValueError(f"passes must be at least 1, not {self.passes}")

    def __str__(self) -> str:
        return f"{self.score.value} ({self.passes} passes, {self._loads})"


@dataclass(frozen=True)
class TwoLevel(Balanced):
    """A policy that cuts a graph for hosts first, then for the parts of each: few edges join
    hosts."""

    #: hosts that get parts, in order, as many each. None: the hosts of the ranks if there is a part
    #: per rank, else 1
    hosts: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        hosts = 1 if self.hosts is None else self.hosts
        ops.check_type("hosts", hosts, int, "give int(hosts)")
        if hosts < 1:
            raise ValueError(f"hosts must be at least 1, not {self.hosts}")

    def __str__(self) -> str:
        hosts = "" if self.hosts is None else f"; {self.hosts} hosts"
        return f"{type(self).__name__.lower()} ({self._loads}{hosts})"


@dataclass(frozen=True)
class Multilevel(TwoLevel):
    """The multilevel policy: nodes are joined into clusters again and again, the small graph of
    clusters is cut, and the cut is refined on the way back. No rank holds the graph."""


@dataclass(frozen=True)
class Metis(TwoLevel):
    """The METIS library (Karypis and Kumar 1998) in the process of rank 0, which holds the whole
    graph, with METIS's own seed. It must be installed; the package ``cmeel-metis`` has it."""


@dataclass(frozen=True, eq=False)
class Given:
    """The owners of all nodes in a file, from METIS, KaMinPar, DGL or a partitioner of your own."""

    #: a ``.npy`` file that every rank can read: [N] integers, the part of each node, by id; with
    #: several node types those of the first type, then of the second, and so on
    file: Path

    def __str__(self) -> str:
        return f"owners of {self.file}"


def given_owners(part: ReadingSlice, dataset: Dataset, file: Path, parts: int) -> Tensor:
    """Returns [n] int32, the owners of the nodes that this rank has read. Raises `DatasetError` if
    the file has another length, or names an unknown part."""
    try:
        whole = np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise DatasetError(f"{file}: is no array of NumPy ({error})") from None
    if whole.shape != (dataset.num_nodes,) or whole.dtype.kind not in "iu":
        raise DatasetError(
            f"{file}: holds {whole.dtype} {list(whole.shape)}, not one integer for each of the "
            f"{dataset.num_nodes} nodes of {dataset.name}"
        )
    owner, first = torch.empty(part.num_nodes, dtype=torch.int32), 0
    for number, nodes in enumerate(dataset.node_sets):
        own = part.nodes_of(number)
        piece = torch.from_numpy(whole[first + own.start : first + own.stop].astype(np.int64))
        low, high = ops.extent(piece)
        if low < 0 or high >= parts:
            bad = low if low < 0 else high
            raise DatasetError(f"{file}: names part {bad}, but there are {parts} parts, 0 to {parts - 1}")
        owner[part.rows_of(number)] = piece.to(torch.int32)
        first += nodes.num_nodes
    return owner


class Neighbours(NamedTuple):
    """The in-neighbours of some nodes, for a `Policy`."""

    indptr: Tensor  # [n + 1] int64, where each node's neighbours begin
    node: Tensor  # [e] int32 or int64, original ids
    owner: Tensor  # [e] int32, the part of each neighbour; -1: none yet
    node_type: Tensor  # [e] int64, the index of each neighbour's type in ``StreamState.schema``


class StreamState(NamedTuple):
    """What a `Policy` knows beside the neighbours of the nodes to assign."""

    parts: int  # the number of parts
    seed: int  # the seed of the partition
    #: [3, parts] float64, what each part has of this type, from all ranks, as of the beginning of
    #: the round: nodes, their in-edges, and training nodes
    load: Tensor
    total: Tensor  # [3] float64, the same for the whole graph
    train: Tensor  # [n] bool, which of the nodes to assign are training nodes
    schema: Schema  # node types and relations
    node_type: str  # the type of the nodes to assign


class Policy(Protocol):
    """A policy of your own. It is called for some nodes of one type at a time, on every rank for
    the nodes that the rank has read, and returns the part of each node, [n] integers.

    >>> def by_id(node, neighbours, state):
    ...     return node % state.parts
    >>> partition(data, by_id).num_nodes
    100

    ``node``: [n] int64 original ids, ascending; n may be 0. ``neighbours``: their in-neighbours.
    ``state``: parts, loads and seed. Ranks go through their nodes side by side, type by type, and
    in ascending id. The result should not depend on how many nodes come at once.
    """

    def __call__(self, node: Tensor, neighbours: Neighbours, state: StreamState) -> Tensor: ...


class Direct(Enum):
    """The policies that do not look at neighbours."""

    RANDOM = "random"
    CONTIGUOUS = "contiguous"


BuiltIn = Direct | Balanced | Given  # The policies that are not functions.
PolicyLike = str | BuiltIn | Policy


def as_policy(policy: PolicyLike) -> BuiltIn | Policy:
    """Returns the policy of a name such as "ldg", or of a .npy file of owners; a policy as it is.
    Raises `ValueError` for an unknown name, `TypeError` for another type."""
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
    if isinstance(policy, Direct):
        return policy.value
    if isinstance(policy, (Balanced, Given)):
        return str(policy)
    return getattr(policy, "__qualname__", type(policy).__qualname__)
