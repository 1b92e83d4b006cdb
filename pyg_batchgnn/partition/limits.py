"""The loads of parts: weights of nodes, limits, and why a limit could not be kept."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.partition.checks import own_share
from pyg_batchgnn.partition.move import add_rows, own_rounds, send
from pyg_batchgnn.partition.part import Part
from pyg_batchgnn.partition.policy import EDGES, NODES, Balanced
from pyg_batchgnn.partition.reading import ReadingSlice

#: Loads of every report, in this order, before other splits and weights.
USUAL = (NODES, EDGES, "train", "val", "test")
_PRECISION = 1e-6  # relative precision in which sums of floating-point weights are compared


@dataclass(frozen=True)
class Load:
    """One load of the nodes of one type, by part: what a policy may balance."""

    name: str  # "nodes", "edges" (in-edges), a split, or an attribute with one weight per node
    node_type: str
    sums: tuple[float, ...]  # the load of each part
    heaviest: float  # the largest weight of one node
    slack: float | None = None  # how many times the mean a part may have; None: no limit

    @property
    def mean(self) -> float:
        """The mean load of the parts."""
        return sum(self.sums) / len(self.sums)

    @property
    def balance(self) -> float:
        """The fullest part's load over the mean; 1.0 is even."""
        return max(self.sums) / self.mean if self.mean else 1.0

    @property
    def fullest(self) -> int:
        """The part with the largest load."""
        return self.sums.index(max(self.sums))

    @property
    def is_met(self) -> bool:
        """True unless a part exceeds its limit, and the mean rounded up."""
        if self.slack is None:
            return True
        is_whole = all(isinstance(one, int) for one in self.sums)
        allowed = max(self.slack * self.mean, math.ceil(self.mean) if is_whole else self.mean)
        return max(self.sums) <= allowed * (1 + _PRECISION)

    @property
    def reason(self) -> str:
        """Why the limit could not be kept; "" if it is met."""
        if self.slack is None or self.is_met:
            return ""
        return unmet_reason(self.heaviest / self.mean, self.slack)


def unmet_reason(heaviest: float, slack: float) -> str:
    """Returns why a part exceeds ``slack`` times the mean. ``heaviest``: node's weight in means."""
    if heaviest > slack:
        return f"one node alone has {heaviest:.2f} times the mean"
    return "the policy found no parts within all limits, though no node is too heavy"


def sums_of(part: Part, wanted: Collection[str]) -> dict[str, dict[str, tuple[float, float]]]:
    """Returns (load of the part, largest weight of a node) by node type and load: nodes, in-edges,
    splits, and the attributes in ``wanted`` with a weight per node."""
    schema, degrees = part.schema, _degrees(part)
    found = dict[str, dict[str, tuple[float, float]]]()
    for number, (name, group) in enumerate(zip(schema.node_types, schema.node_groups, strict=True)):
        nodes, splits = len(part.nodes_of(number)), part.splits.get(group, {})
        loads: dict[str, tuple[float, float]] = {NODES: (nodes, 1), EDGES: _of_weights(degrees[number])}
        loads |= {split: (rows.numel(), 1) for split, rows in splits.items()}
        tables = part.attributes.get(group, {})
        loads |= {one: _of_weights(tables[one]) for one in wanted if one in tables and one not in loads}
        found[name] = loads
    return found


def _degrees(part: Part) -> list[Tensor]:
    found = [torch.zeros(len(part.nodes_of(at)), dtype=torch.int64) for at in range(part.schema.num_types)]
    for target, edges in zip(part.schema.target_types, part.relations, strict=True):
        found[target] += edges.indptr.diff()
    return found


def _of_weights(weight: Tensor) -> tuple[float, float]:
    exact = weight.to(torch.float64 if weight.is_floating_point() else torch.int64)
    return exact.sum().item(), exact.max().item() if exact.numel() else 0


_SUM = 1 << 30  # Floating-point weights, and weights with a larger sum, are scaled to this sum.


@dataclass(frozen=True, eq=False)
class Limits:
    """The weights by which parts are balanced, and the limits of the parts."""

    names: tuple[str, ...]  # the loads in words
    weight: Tensor  # [n, k] int32, weights of the nodes that this rank has read
    heaviest: Tensor  # [k] int64, the largest weight of a node on any rank
    slack: Tensor  # [k] float64, how many times the mean a part may have
    balance: Balance  # the number of parts and their limits


def read_limits(
    comm: Communicator, part: ReadingSlice, dataset: Dataset, policy: Balanced, parts: int
) -> Limits:
    """Reads the weights of this rank's nodes. Collective. Each load counts separately for each node
    type; loads that are 0 everywhere are left out. Raises `ValueError` if a load is no attribute
    and no split, or its weights cannot be used."""
    wanted = [(name, number) for name in policy.balance for number in range(part.schema.num_types)]
    known = {NODES, EDGES, "train", "val", "test"}
    known = known.union(*({*nodes.splits, *nodes.tables} for nodes in dataset.node_sets))
    for name in policy.balance:
        if name not in known:
            raise ValueError(
                f"cannot balance {name!r}: it is no split and no node attribute of {dataset.name}; "
                f"choose among {', '.join(sorted(known))}"
            )
    own = [_weights(comm, part, dataset, *one) for one in wanted]
    sums = [int(one.sum(dtype=torch.int64)) for one in own]
    largest = [int(one.max()) if len(one) else 0 for one in own]
    every = comm.all_gather(torch.tensor([[sums, largest]], dtype=torch.int64), MessageKind.PARTITION).rows
    totals, heaviest = every[:, 0].sum(0), every[:, 1].amax(0)
    alone = part.schema.num_types == 1
    kept = [at for at, (name, _) in enumerate(wanted) if int(totals[at]) or (alone and name == NODES)]
    weight = torch.zeros(part.num_nodes, max(len(kept), 1), dtype=torch.int32)
    if not kept:
        any_slack = torch.ones(1, dtype=torch.float64)
        none = totals.new_zeros(1)
        return Limits(("nothing",), weight, none, any_slack, Balance.of(parts, none, any_slack))
    for column, at in enumerate(kept):
        weight[part.rows_of(wanted[at][1]), column] = own[at]
    words = {NODES: "nodes", EDGES: "in-edges"}
    names = tuple(
        words.get(name, repr(name)) + ("" if alone else f" of {part.schema.node_types[number]!r}")
        for name, number in (wanted[at] for at in kept)
    )
    slack = torch.tensor([policy.balance[wanted[at][0]] for at in kept], dtype=torch.float64)
    return Limits(names, weight, heaviest[kept], slack, Balance.of(parts, totals[kept], slack))


def _weights(comm: Communicator, part: ReadingSlice, dataset: Dataset, name: str, node_type: int) -> Tensor:
    own, nodes = part.nodes_of(node_type), dataset.node_sets[node_type]
    if name == NODES:
        return torch.ones(len(own), dtype=torch.int32)
    if name == EDGES:
        return part.degrees(node_type).to(torch.int32)
    if name in nodes.tables and name not in nodes.splits:
        return _whole_numbers(comm, nodes.tables[name], own, name)
    return read_split(comm, part, dataset, name, node_type).to(torch.int32)


def _whole_numbers(comm: Communicator, table: Tensor, own: range, name: str) -> Tensor:
    """Returns [n_t] int32, the user's weights of this rank's nodes, scaled. Collective."""
    if table.dim() != 1 or table.is_complex():
        raise ValueError(
            f"cannot balance {name!r}: it has shape {list(table.shape)}, not one weight per node"
        )
    mine = table[own.start : own.stop].to(torch.float64)
    bad = bool((~mine.isfinite() | (mine < 0)).any())
    if comm.max(int(bad)):
        raise ValueError(f"cannot balance {name!r}: a weight is negative or not finite")
    total = float(comm.all_reduce(mine.sum().view(1), MessageKind.PARTITION))
    scale = 1.0 if not table.is_floating_point() and total <= _SUM else _SUM / max(total, 1e-300)
    return (mine * scale).round().to(torch.int32)


@dataclass(frozen=True, eq=False)
class Balance:
    """The number of parts, and the largest load that each may have."""

    parts: int
    total: Tensor  # [k] int64, the loads of the whole graph
    limit: Tensor  # [k] int64, the largest loads of a part, at least the mean rounded up

    @classmethod
    def of(cls, parts: int, total: Tensor, slack: Tensor) -> Balance:
        """Allows parts ``slack`` [k] times the mean, up to the whole graph."""
        wanted = torch.minimum(slack * total / parts, total.to(slack.dtype))
        return cls.within(parts, total, wanted.to(torch.int64))

    @classmethod
    def within(cls, parts: int, total: Tensor, limit: Tensor) -> Balance:
        """Allows parts the loads ``limit`` [k], or the mean rounded up if that is more."""
        return cls(parts, total, torch.maximum(limit, -(-total // parts)))

    @property
    def slack(self) -> Tensor:
        mean = self.total.to(torch.float64) / self.parts
        return torch.where(mean > 0, self.limit / mean, 1.0)


def read_split(comm: Communicator, part: ReadingSlice, dataset: Dataset, name: str, node_type: int) -> Tensor:
    """Returns [n_t] bool, which of this rank's nodes of a type are in a split. Collective."""
    own = part.nodes_of(node_type)
    found = torch.zeros(len(own), dtype=torch.bool)
    mine = own_share(comm, dataset.split(name, part.schema.node_types[node_type]))
    for rows in own_rounds(comm, mine.numel(), 8):
        piece = mine[rows.start : rows.stop]
        found[send(comm, piece, part.group(piece, node_type)).rows - own.start] = True
    return found


def warn_of_unmet(comm: Communicator, limits: Limits, owner: Tensor) -> None:
    """Warns, on rank 0, of every load that exceeds its limit. Collective."""
    parts = limits.balance.parts
    load = torch.zeros(parts, len(limits.names), dtype=torch.int64)
    add_rows(load, owner, limits.weight.to(torch.int64))
    comm.all_reduce(load, MessageKind.PARTITION)
    fullest, part = load.max(0)
    for at in (fullest > limits.balance.limit).nonzero().flatten().tolist():
        mean = int(limits.balance.total[at]) / parts
        why = unmet_reason(int(limits.heaviest[at]) / mean, float(limits.slack[at]))
        if comm.rank == 0:
            warnings.warn(
                f"part {int(part[at])} has {int(fullest[at]) / mean:.3f} times the mean of "
                f"{limits.names[at]}, more than {float(limits.slack[at]):g}: {why}",
                stacklevel=2,
            )
