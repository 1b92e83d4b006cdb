"""The nodes that a loader's minibatches begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.data import Group, Schema
from pyg_batchgnn.loader.inputs import GraphTimes, OwnerNodes, OwnTimes, StepInputs
from pyg_batchgnn.loader.places import Places
from pyg_batchgnn.loader.schedule import SeedStep
from pyg_batchgnn.loader.work import WorkItem
from pyg_batchgnn.ops import digest_text, minibatch_key
from pyg_batchgnn.sample import Names, SampleInfo, SeedInfo, Seeds


@dataclass(frozen=True, eq=False)
class TypeInputs:
    """The input nodes of one type.

    Attributes:
        name: the node type.
        node: [n] int64 node ids.
        input_id: [n] int64; None for the positions in ``node``.
        time: [n] int64, the times that the user gave; None if there are none.
    """

    name: str
    node: Tensor
    input_id: Tensor | None = None
    time: Tensor | None = None

    def __len__(self) -> int:
        return self.node.numel()

    def ids(self, at: Tensor) -> Tensor:
        """Returns what ``input_id`` of a batch holds for some positions."""
        return at if self.input_id is None else self.input_id[at]


class NodeInputs:
    """The input nodes of a loader: those of one type after those of the other.

    Args:
        schema: the schema of the graph.
        parts: the input nodes by type, in the user's order. All have times or none.
        times: the nodes' own times, which seeds have where the user gives none; None if sampling is
            not temporal.
        names: whether the user names node types.
    """

    excluding = False

    def __init__(
        self,
        schema: Schema,
        parts: Sequence[TypeInputs],
        times: OwnTimes | None = None,
        names: Names = Names.NONE,
    ) -> None:
        self._schema, self.parts, self._times, self._names = schema, tuple(parts), times, names
        self._places = Places(self.parts)
        #: The number of the node type of each part.
        self.types = tuple(schema.type_number(part.name) for part in self.parts)

    def with_times(self, times: GraphTimes) -> NodeInputs:
        """Returns the same input nodes for sampling by time; collective over ranks.

        Raises:
            ValueError: nodes have no time, and the user gave none.
        """
        own = times.of_inputs(self.untimed)
        inputs = NodeInputs(self._schema, self.parts, own, self._names)
        inputs.step(SeedStep.of(torch.empty(0, dtype=torch.int64)))  # raises here if seeds have no time
        return inputs

    @property
    def info(self) -> SampleInfo:
        """The entries of PyG batches that are about the seeds."""
        return SeedInfo([part.name for part in self.parts])

    def __len__(self) -> int:
        return len(self._places)

    def take(self, item: WorkItem, seed: int) -> list[StepInputs]:  # noqa: ARG002
        """Returns the inputs of each minibatch; see `Inputs`."""
        return [self.step(step) for step in item.steps]

    def step(self, step: SeedStep) -> StepInputs:
        """Returns the inputs of one minibatch. Seeds of one type stay in the order of positions."""
        places = self._places.within(step.positions)
        nodes = {part.name: part.node[at] for part, at in zip(self.parts, places, strict=True)}
        given = [part.time[at] for part, at in zip(self.parts, places, strict=True) if part.time is not None]
        time = torch.cat(given) if given else None
        seeds = Seeds.of(self._schema, nodes, time=self._own_times(nodes) if time is None else time)
        ids = [part.ids(at) for part, at in zip(self.parts, places, strict=True)]
        return StepInputs(seeds, ids[0] if len(ids) == 1 else torch.cat(ids), time, internal=step.internal)

    @cached_property
    def node(self) -> Tensor:
        """[s] int64, the id of each input node within its type."""
        return self.parts[0].node if len(self.parts) == 1 else torch.cat([part.node for part in self.parts])

    @property
    def owned_by(self) -> list[OwnerNodes]:
        """The input nodes themselves."""
        return [OwnerNodes(part.name, part.node) for part in self.parts]

    @property
    def untimed(self) -> dict[Group, Tensor]:
        """The input nodes that the user gave no times for, by group."""
        groups = self._schema.node_groups
        parts = zip(self.types, self.parts, strict=True)
        return {groups[number]: part.node for number, part in parts if part.time is None}

    def type_of(self, positions: Tensor) -> Tensor:
        """Returns the number of the node type at each position, [n] int64."""
        return torch.tensor(self.types)[self._places.parts_of(positions)]

    def by_type(self, positions: Tensor) -> Tensor:
        """Returns positions by node type in the order of the schema, else in their order."""
        if len(self.parts) == 1:
            return positions
        return positions[torch.argsort(self.type_of(positions), stable=True)]

    def for_pyg(self) -> dict[str, Any]:
        """Returns the arguments of PyG's `NodeLoader` that describe the input nodes.

        PyG knows seeds of one type only. Those of several stand there under the first one's name.
        """
        first, nodes = self.parts[0], self.node
        given = [part.time for part in self.parts if part.time is not None]
        return {
            "input_nodes": nodes if self._names is Names.NONE else (first.name, nodes),
            "input_id": first.input_id if len(self.parts) == 1 else None,
            "input_time": torch.cat(given) if given else None,
        }

    def settings(self) -> dict[str, Any]:
        """Returns what tells these input nodes from others; JSON can hold it."""
        found: dict[str, Any] = {
            "num_seeds": len(self),
            "seeds_digest": digest_text(minibatch_key(self.node.contiguous())),
        }
        if self._schema.num_types > 1:
            found["seed_types"] = [[part.name, len(part)] for part in self.parts]
        if given := [part.time for part in self.parts if part.time is not None]:
            found["times_digest"] = digest_text(minibatch_key(torch.cat(given)))
        return found

    def _own_times(self, nodes: dict[str, Tensor]) -> Tensor | None:
        if self._times is None:
            return None
        times = self._times
        groups = self._schema.node_groups
        return torch.cat(
            [times.of_seeds(groups[self._schema.type_number(name)], node) for name, node in nodes.items()]
        )
