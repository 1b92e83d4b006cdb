"""The nodes that a loader's minibatches begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from pyg_batchgnn.data import Schema
from pyg_batchgnn.loader.places import Places
from pyg_batchgnn.ops import digest_text, minibatch_key
from pyg_batchgnn.sample import Names, SampledLinks, SampleInfo, SeedInfo, Seeds
from pyg_batchgnn.store import Times, TypedGraph


@dataclass(frozen=True, eq=False)
class StepInputs:
    """The inputs of one minibatch.

    Attributes:
        seeds: the seeds, as the sampler takes them.
        input_id: [S] int64, what PyG calls the seeds in ``input_id``.
        time: [S] int64, the times that the user gave for the seeds; None if there are none.
        links: the links that the seeds are ends of, by local ids.
    """

    seeds: Seeds
    input_id: Tensor
    time: Tensor | None = None
    links: tuple[SampledLinks, ...] = ()


class Inputs(Protocol):
    """The meaning of a loader's positions."""

    def __len__(self) -> int:
        """Returns the number of positions."""

    def take(self, positions: Tensor, seed: int, epoch: int) -> StepInputs:
        """Returns the inputs of one minibatch.

        Args:
            positions: [n] int64, its positions.
            seed: the seed of the sampler.
            epoch: the epoch.
        """

    def settings(self) -> dict[str, Any]:
        """Returns what tells these inputs from others; JSON can hold it."""

    @property
    def info(self) -> SampleInfo:
        """The entries of PyG batches that are about the inputs."""


InputsT = TypeVar("InputsT", bound=Inputs, covariant=True)


class InputsRequest(Protocol[InputsT]):
    """The user's wish what a loader's minibatches begin with."""

    def inputs(self, graph: TypedGraph, times: Times | None, names: Names) -> InputsT:
        """Returns the inputs, checked.

        Args:
            graph: the graph.
            times: the times of its nodes or edges if sampling is temporal.
            names: whether the user names node types.

        Raises:
            TypeError, ValueError, IndexError: the wish does not fit the graph.
        """


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

    def __init__(
        self,
        schema: Schema,
        parts: Sequence[TypeInputs],
        times: Times | None = None,
        names: Names = Names.NONE,
    ) -> None:
        self._schema, self.parts, self._times, self._names = schema, tuple(parts), times, names
        self._places = Places(self.parts)

    @property
    def info(self) -> SampleInfo:
        """The entries of PyG batches that are about the seeds."""
        return SeedInfo([part.name for part in self.parts])

    def __len__(self) -> int:
        return len(self._places)

    def take(self, positions: Tensor, seed: int = 0, epoch: int = 0) -> StepInputs:  # noqa: ARG002
        """Returns the inputs of one minibatch; see `Inputs`.

        Seeds of one type stay in the order of their positions.
        """
        places = self._places.within(positions)
        nodes = {part.name: part.node[at] for part, at in zip(self.parts, places, strict=True)}
        given = [part.time[at] for part, at in zip(self.parts, places, strict=True) if part.time is not None]
        time = torch.cat(given) if given else None
        seeds = Seeds.of(self._schema, nodes, time=self._own_times(nodes) if time is None else time)
        ids = [part.ids(at) for part, at in zip(self.parts, places, strict=True)]
        return StepInputs(seeds, ids[0] if len(ids) == 1 else torch.cat(ids), time)

    def for_pyg(self) -> dict[str, Any]:
        """Returns the arguments of PyG's `NodeLoader` that describe the input nodes.

        PyG knows seeds of one type only. Those of several stand there under the first one's name.
        """
        first, nodes = self.parts[0], torch.cat([part.node for part in self.parts])
        given = [part.time for part in self.parts if part.time is not None]
        return {
            "input_nodes": nodes if self._names is Names.NONE else (first.name, nodes),
            "input_id": first.input_id if len(self.parts) == 1 else None,
            "input_time": torch.cat(given) if given else None,
        }

    def settings(self) -> dict[str, Any]:
        """Returns what tells these input nodes from others; JSON can hold it."""
        nodes = torch.cat([part.node for part in self.parts])
        found: dict[str, Any] = {
            "num_seeds": len(self),
            "seeds_digest": digest_text(minibatch_key(nodes.contiguous())),
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
