"""The interface of all samplers of macrobatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from pyg_batchgnn.sample.plan import Subgraph
from pyg_batchgnn.sample.sampled import SampledMinibatch
from pyg_batchgnn.sample.seeds import Seeds


@dataclass(frozen=True, eq=False)
class MacrobatchSeeds:
    """The seed nodes of the minibatches that are sampled together.

    Attributes:
        epoch: any integer, taken modulo 2**64.
        number: the macrobatch's number in the epoch.
        original: the seeds of each minibatch by original id; [S_b] int64 node ids do where there is
            one node type.
        internal: [S_b] int64 ids of the same nodes in the partition, for each minibatch; None if
            the sampler holds the whole graph.
    """

    epoch: int
    number: int
    original: Sequence[Tensor | Seeds]
    internal: Sequence[Tensor] | None = None

    @property
    def nodes(self) -> list[Tensor]:
        """The original node ids for each minibatch, where there is one node type."""
        return [one.nodes[0] if isinstance(one, Seeds) else one for one in self.original]


class MinibatchPlan(Protocol):
    """The plan by which a minibatch grows from its seeds."""

    @property
    def num_hops(self) -> int:
        """The number of hops."""

    @property
    def edge_ids(self) -> bool:
        """True if minibatches carry the input ids of their edges."""

    @property
    def subgraph(self) -> Subgraph:
        """The edges of a minibatch."""

    def settings(self) -> dict[str, Any]:
        """Returns the plan as values that JSON can hold."""

    def summary(self) -> str:
        """Returns the numbers of neighbours or nodes per hop, as in ``fanouts=[10, 5]``."""


class Sampler(Protocol):
    """Samples the minibatches of a macrobatch together.

    Attributes:
        seed: the key of every random choice.
        threads: at most this many threads work; torch's number if None.
    """

    seed: int
    threads: int | None

    @property
    def plan(self) -> MinibatchPlan:
        """The plan by which minibatches grow."""

    def sample_macrobatch(self, seeds: MacrobatchSeeds, threads: int | None = None) -> list[SampledMinibatch]:
        """Samples one minibatch for each list of seed nodes.

        Args:
            seeds: the seed nodes.
            threads: overrides the sampler's number for this call.
        """
