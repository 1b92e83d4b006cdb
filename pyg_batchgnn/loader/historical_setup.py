"""Composing the loader of a rank whose layers read historical embeddings."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch_geometric.loader import NodeLoader

from pyg_batchgnn.data import NODES
from pyg_batchgnn.history import HaloSampler, OwnRowFetcher
from pyg_batchgnn.loader.options import Export, LoaderOptions
from pyg_batchgnn.loader.rank_sampling import RankSamplers
from pyg_batchgnn.loader.rank_setup import RankSetup
from pyg_batchgnn.loader.sampling import SamplingRequest
from pyg_batchgnn.loader.schedule import ScheduleName
from pyg_batchgnn.loader.setup import Composition
from pyg_batchgnn.sample import NeighborChoice


class HistoricalSetup(RankSetup):
    """Composes a loader that samples within a rank's part and its halo; see `Setup`."""

    def __init__(self, data: Any, request: SamplingRequest, options: LoaderOptions) -> None:
        super().__init__(data, request, options)
        assert options.history is not None
        self._history = options.history
        because = self._refusal(request, options)
        if because is not None:
            raise ValueError(f"history is not possible: {because}")

    def compose(self, loader: NodeLoader) -> Composition:
        """Makes the parts of a loader; see `Setup`."""
        return dataclasses.replace(super().compose(loader), follower=self._history)

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "history": repr(self._history.settings)}

    def _fetcher(self) -> OwnRowFetcher:
        names = self._attributes()[NODES]
        return self.world.now(lambda: OwnRowFetcher(self._features, names, self._history))

    def _samplers(self, seed: int) -> RankSamplers:
        plan = dataclasses.replace(self._plan, edge_ids=False)
        sampler = HaloSampler(self._graph.part, self._history.halo, plan, seed, self._options.threads)
        return RankSamplers(sampler, sampler)

    def _refusal(self, request: SamplingRequest, options: LoaderOptions) -> str | None:
        """Returns why historical embeddings do not go with the other arguments, None if they do."""
        if self._history.part is not self._graph.part:
            return "the caches are of another graph; make them with this DistGraphStore"
        if options.export is not Export.NATIVE:
            return "PyG batches have no caches for halo nodes; use export='native'"
        if request.schedule not in (None, ScheduleName.LOCAL):
            return "a rank samples from the nodes that it owns; use schedule='local'"
        if request.choice != NeighborChoice():
            return f"neighbours are drawn uniformly within a part, without {request.choice}"
        if options.aggregation_cache is not None:
            return "aggregates have no rows of halo nodes; leave aggregation_cache out"
        if options.embedding is not None:
            return "learned rows of halo nodes are not pushed; leave embedding out"
        if options.feature_cache is not None:
            return "features of halo nodes come from caches; leave feature_cache out"
        if any(group.is_edge for group in self._attributes()):
            return "edge attributes are not carried; give the names of node attributes as attributes"
        return None
