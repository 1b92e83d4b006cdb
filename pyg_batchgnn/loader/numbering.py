"""Finding the internal ids of seed nodes, by which a partitioned graph is sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.loader.schedule import SeedStep
from pyg_batchgnn.partition import Part
from pyg_batchgnn.store import DistGraphStore

#: Gives steps the internal ids of their seeds if the sampler needs them; collective over ranks.
NumberSeeds: TypeAlias = Callable[[Iterable[SeedStep]], Iterable[SeedStep]]


def as_they_are(steps: Iterable[SeedStep]) -> Iterable[SeedStep]:
    """Returns the steps: a sampler that holds the whole graph needs no internal ids."""
    return steps


def from_table(internal: Tensor) -> NumberSeeds:
    """Returns a function that finds internal ids in a table.

    ``internal``: [s] int64, by position in the loader's input.
    """
    return lambda steps: (replace(step, internal=internal[step.positions]) for step in steps)


def looked_up(graph: DistGraphStore, nodes: Tensor) -> NumberSeeds:
    """Returns a function that asks the ranks for the internal ids of all steps at once; collective.

    Args:
        graph: the partitioned graph.
        nodes: [s] int64, the loader's input nodes by original id.
    """

    def number(steps: Iterable[SeedStep]) -> list[SeedStep]:
        steps = list(steps)
        every = torch.cat([torch.empty(0, dtype=torch.int64), *(step.positions for step in steps)])
        ids = graph.comm.run_job(lambda: graph.internal_ids(nodes[every]))
        parts = ids.split([step.positions.numel() for step in steps])
        return [replace(step, internal=part) for step, part in zip(steps, parts, strict=True)]

    return number


@dataclass(frozen=True, eq=False)
class OwnSeeds:
    """The loader's input nodes that a rank owns.

    Attributes:
        positions: [S_r] int64, their positions in the loader's input, ascending.
        row: [S_r] int64, their rows in the rank's part.
    """

    positions: Tensor
    row: Tensor

    @classmethod
    def of(cls, part: Part, nodes: Tensor) -> OwnSeeds:
        """Finds which of the input nodes, [s] int64 by original id, a part has."""
        node, order = part.node, None
        if not ops.is_ascending(node):  # a saved partition that another number of ranks has loaded
            node, order = node.sort()
        if not node.numel():
            return cls(node, node)
        row = torch.searchsorted(node, nodes)
        positions = (node[row.clamp(max=node.numel() - 1)] == nodes).nonzero().view(-1)
        row = row[positions]
        return cls(positions, row if order is None else order[row])
