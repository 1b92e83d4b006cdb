"""The interface of all samplers of macrobatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from pyg_batchgnn.sample.plan import SamplingPlan
from pyg_batchgnn.sample.sampled import SampledMinibatch


@dataclass(frozen=True, eq=False)
class MacrobatchSeeds:
    """The seed nodes of the minibatches that are sampled together.

    Attributes:
        epoch: any integer, taken modulo 2**64.
        number: the macrobatch's number in the epoch.
        original: [S_b] int64 original node ids for each minibatch.
        internal: [S_b] int64 ids of the same nodes in the partition, for each minibatch; None if
            the sampler holds the whole graph.
    """

    epoch: int
    number: int
    original: Sequence[Tensor]
    internal: Sequence[Tensor] | None = None


class Sampler(Protocol):
    """Samples the minibatches of a macrobatch together.

    Attributes:
        plan: fanouts, replacement and whether edge ids are wanted.
        seed: the key of every random choice.
        threads: at most this many threads work; torch's number if None.
    """

    plan: SamplingPlan
    seed: int
    threads: int | None

    def sample_macrobatch(self, seeds: MacrobatchSeeds, threads: int | None = None) -> list[SampledMinibatch]:
        """Samples one minibatch for each list of seed nodes.

        Args:
            seeds: the seed nodes.
            threads: overrides the sampler's number for this call.
        """
