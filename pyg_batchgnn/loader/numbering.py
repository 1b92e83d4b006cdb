"""Finding the internal ids of seed nodes, by which a partitioned graph is sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn.loader.inputs import OwnerNodes
from pyg_batchgnn.loader.node_inputs import NodeInputs
from pyg_batchgnn.loader.schedule import SeedStep
from pyg_batchgnn.partition import Part
from pyg_batchgnn.store import DistGraphStore, OwnRowFinder

#: Gives steps the internal ids of their seeds if the sampler needs them; collective over ranks.
NumberSeeds: TypeAlias = Callable[[Iterable[SeedStep]], Iterable[SeedStep]]

_NONE = torch.empty(0, dtype=torch.int64)


def as_they_are(steps: Iterable[SeedStep]) -> Iterable[SeedStep]:
    """Returns the steps: a sampler that holds the whole graph needs no internal ids."""
    return steps


def from_table(inputs: NodeInputs, internal: Tensor) -> NumberSeeds:
    """Returns a function that finds internal ids in a table.

    Args:
        inputs: the loader's input nodes.
        internal: [s] int64, by position in the input.
    """
    return lambda steps: (replace(step, internal=internal[inputs.by_type(step.positions)]) for step in steps)


def looked_up(inputs: NodeInputs, graph: DistGraphStore) -> NumberSeeds:
    """Returns a function that asks the ranks for the internal ids of all steps at once; collective.

    It takes two rounds, whatever the number of types.

    Args:
        inputs: the loader's input nodes, by original id.
        graph: the partitioned graph.
    """

    def number(steps: Iterable[SeedStep]) -> list[SeedStep]:
        steps = list(steps)
        positions = [inputs.by_type(step.positions) for step in steps]
        every = torch.cat([_NONE, *positions])
        ids = graph.comm.run_job(lambda: _internal_ids(inputs, graph, every))
        parts = ids.split([one.numel() for one in positions])
        return [replace(step, internal=part) for step, part in zip(steps, parts, strict=True)]

    return number


def _internal_ids(inputs: NodeInputs, graph: DistGraphStore, positions: Tensor) -> Tensor:
    """Returns the internal ids, [n] int64, of the input nodes at some positions. Collective."""
    node, of_type = inputs.node[positions], inputs.type_of(positions)
    places = {number: (of_type == number).nonzero().view(-1) for number in inputs.types}
    found = graph.internal_ids_by_type({number: node[place] for number, place in places.items()})
    ids = torch.empty_like(positions)
    for number, place in places.items():
        ids[place] = found[number]
    return ids


@dataclass(frozen=True, eq=False)
class OwnSeeds:
    """The positions of a loader's input that belong to a rank.

    Attributes:
        positions: [S_r] int64, ascending.
        internal: [S_r] int64, the internal ids of their nodes.
    """

    positions: Tensor
    internal: Tensor

    @classmethod
    def of(cls, part: Part, nodes: Sequence[OwnerNodes]) -> OwnSeeds:
        """Finds which positions of a loader's input belong to a part."""
        finder = OwnRowFinder(part)
        positions, internal, begin = [_NONE], [_NONE], 0
        for one in nodes:
            number = part.schema.type_number(one.node_type)
            own = finder.find(number, one.node)
            place = own.position if one.here is None else one.here.position[own.position]
            positions.append(place + begin)
            internal.append(own.row + part.nodes_of(number).start)
            begin += one.node.numel() if one.here is None else one.here.total
        return cls(torch.cat(positions), torch.cat(internal))
