"""The sources of attributes in one process, and the fetcher that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_batchgnn.data import Group
from pyg_batchgnn.fetch import BlockFetcher, Fetched, Fetcher, FetchGroup, InPlaceFetcher
from pyg_batchgnn.loader.gather import Gatherer


class Source(Protocol):
    """The attributes of both forms of a batch, read from the user's object when a batch is made."""

    def batch(self, out: SamplerOutput | HeteroSamplerOutput, gather: Gatherer) -> Any:
        """Makes a PyG batch with every attribute of a sample's nodes and edges."""

    def block(self, nodes: Mapping[Group, Tensor], gather: Gatherer) -> dict[Group, dict[str, Tensor]]:
        """Copies the wanted node attributes of the given nodes, by group and name."""

    def tables(self, num_nodes: Mapping[Group, int]) -> dict[Group, dict[str, Tensor]] | None:
        """Returns the wanted node attributes of all nodes where they lie, by group and name.

        It returns None if they are to be copied.

        Raises:
            ValueError: the user wants tables read in place that cannot be.
        """


class SourceFetcher:
    """Reads in place what can be read so when a fetch group is made, and copies else.

    Args:
        source: where attributes come from.
        num_nodes: the number of nodes of each group of nodes.
        threads: at most this many threads copy rows.
    """

    def __init__(self, source: Source, num_nodes: Mapping[Group, int], threads: int | None) -> None:
        self._source, self._num_nodes, self._threads = source, num_nodes, threads
        self._counts: Sequence[int] = list(num_nodes.values())

    def fetch(self, group: FetchGroup) -> Fetched:
        """Returns the group's minibatches with their attributes; see `Fetcher`."""
        tables = self._source.tables(self._num_nodes)
        fetcher: Fetcher = (
            InPlaceFetcher(tables) if tables is not None else BlockFetcher(self._read, self._counts)
        )
        return fetcher.fetch(group)

    def _read(self, nodes: Mapping[Group, Tensor]) -> dict[Group, dict[str, Tensor]]:
        return self._source.block(nodes, Gatherer(self._threads))
