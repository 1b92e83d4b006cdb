"""The weights of the nodes and the limits of the parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.partition.balanced import EDGES, NODES, Balanced
from pyg_batchgnn.partition.goal import Goal
from pyg_batchgnn.partition.reading import ReadingSlice
from pyg_batchgnn.partition.splits import read_split

#: Weights that are no whole numbers, or whose sum is larger, are scaled to this sum.
_SUM = 1 << 30


@dataclass(frozen=True, eq=False)
class Limits:
    """The weights by which parts are balanced, and the limits.

    Attributes:
        names: what each load is, in words.
        weight: [n, k] int32, the weights of the nodes that this rank has read.
        heaviest: [k] int64, the largest weights of a node on any rank.
        slack: [k] float64, the largest weights of a part over the mean, as wanted.
        goal: the parts and their limits.
    """

    names: tuple[str, ...]
    weight: Tensor
    heaviest: Tensor
    slack: Tensor
    goal: Goal


def read_limits(
    comm: Communicator, part: ReadingSlice, dataset: Dataset, policy: Balanced, parts: int
) -> Limits:
    """Reads the weights of this rank's nodes. Collective.

    Every load counts for every node type apart. What the graph has nothing of is left out.

    Raises:
        ValueError: a load is no attribute and no split, or its weights cannot be used.
    """
    wanted = [(name, number) for name in policy.balance for number in range(part.schema.num_types)]
    for name in policy.balance:
        _check_known(dataset, name)
    own = [_weights(comm, part, dataset, *one) for one in wanted]
    totals, heaviest = _totals_and_heaviest(comm, own)
    alone = part.schema.num_types == 1
    kept = [at for at, (name, _) in enumerate(wanted) if int(totals[at]) or (alone and name == NODES)]
    weight = torch.zeros(part.num_nodes, max(len(kept), 1), dtype=torch.int32)
    if not kept:
        any_slack = torch.ones(1, dtype=torch.float64)
        none = totals.new_zeros(1)
        return Limits(("nothing",), weight, none, any_slack, Goal.of(parts, none, any_slack))
    for column, at in enumerate(kept):
        weight[part.rows_of(wanted[at][1]), column] = own[at]
    names = tuple(_in_words(part, *wanted[at]) for at in kept)
    slack = torch.tensor([policy.balance[wanted[at][0]] for at in kept], dtype=torch.float64)
    return Limits(names, weight, heaviest[kept], slack, Goal.of(parts, totals[kept], slack))


def _totals_and_heaviest(comm: Communicator, own: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Returns the sum and the largest of each load's weights over all ranks, [k] int64. Collective.

    Args:
        comm: the communicator of all ranks.
        own: [n_t] int32, the weights of this rank's nodes for each load.
    """
    sums = [int(one.sum(dtype=torch.int64)) for one in own]
    largest = [int(one.max()) if len(one) else 0 for one in own]
    every = comm.all_gather(torch.tensor([[sums, largest]], dtype=torch.int64), MessageKind.PARTITION).rows
    return every[:, 0].sum(0), every[:, 1].amax(0)


def _in_words(part: ReadingSlice, name: str, node_type: int) -> str:
    words = {NODES: "nodes", EDGES: "in-edges"}.get(name, repr(name))
    return words if part.schema.num_types == 1 else f"{words} of {part.schema.node_types[node_type]!r}"


def _check_known(dataset: Dataset, name: str) -> None:
    known = {NODES, EDGES, "train", "val", "test"}
    for nodes in dataset.node_sets:
        known |= {*nodes.splits, *nodes.tables}
    if name not in known:
        raise ValueError(
            f"cannot balance {name!r}: it is no split and no node attribute of {dataset.name}; "
            f"choose among {', '.join(sorted(known))}"
        )


def _weights(comm: Communicator, part: ReadingSlice, dataset: Dataset, name: str, node_type: int) -> Tensor:
    """Returns the weights of this rank's nodes of a type, [n_t] int32. Collective."""
    own, nodes = part.nodes_of(node_type), dataset.node_sets[node_type]
    if name == NODES:
        return torch.ones(len(own), dtype=torch.int32)
    if name == EDGES:
        return part.degrees(node_type).to(torch.int32)
    if name in nodes.tables and name not in nodes.splits:
        return _whole_numbers(comm, nodes.tables[name], own, name)
    return read_split(comm, part, dataset, name, node_type).to(torch.int32)


def _whole_numbers(comm: Communicator, table: Tensor, own: range, name: str) -> Tensor:
    """Returns the user's weights of own nodes as whole numbers, [n_t] int32. Collective."""
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
