"""Fetch groups, and what every fetcher offers.

A fetch group is several minibatches of a macrobatch whose attributes are fetched together, each
distinct node's once (BatchGNN, appendix D.2.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyg_batchgnn.sample import Minibatch, SampledMinibatch


@dataclass(frozen=True, eq=False)
class FetchGroup:
    """Minibatches whose attributes are fetched together.

    Attributes:
        minibatches: sampled minibatches of one macrobatch.
        epoch: the epoch that they belong to.
        macrobatch: the macrobatch's number in the epoch.
        number: the group's number in the macrobatch.
    """

    minibatches: Sequence[SampledMinibatch]
    epoch: int = 0
    macrobatch: int = 0
    number: int = 0


@dataclass(frozen=True, eq=False)
class Fetched:
    """The minibatches of a fetch group with their attributes, and what fetching them took.

    Attributes:
        minibatches: the minibatches; their ``node`` holds original ids.
        bytes: the bytes that were copied, of the block and of edge attributes.
        rows: the number of nodes whose rows came from other hosts.
        hits: the number of nodes of other hosts whose rows a cache had.
        misses: the number of nodes of other hosts whose rows a cache had not; 0 without a cache.
        hit_bytes: the bytes that did not cross the wire because a cache had the rows.
    """

    minibatches: list[Minibatch]
    bytes: int = 0
    rows: int = 0
    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0


class Fetcher(Protocol):
    """Fetches the attributes of sampled minibatches."""

    def fetch(self, group: FetchGroup) -> Fetched:
        """Fetches the attributes of a group's minibatches together."""
