"""The drop-in for PyG's `LinkNeighborLoader`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData
from torch_geometric.loader import LinkNeighborLoader
from torch_geometric.loader.link_loader import LinkLoader

from pyg_batchgnn.cache import AggregationCache
from pyg_batchgnn.embed import Embedding
from pyg_batchgnn.loader.arguments import is_partitioned, refuse_unknown
from pyg_batchgnn.loader.input_links import LinkRequest
from pyg_batchgnn.loader.link_negatives import NegativeRequest
from pyg_batchgnn.loader.link_request import LinkLoading
from pyg_batchgnn.loader.local_setup import LocalSetup
from pyg_batchgnn.loader.options import (
    LoaderOptions,
    Size,
    refuse_exclusion_beside_aggregates,
    refuse_what_does_not_go_together,
)
from pyg_batchgnn.loader.order import with_keyed_shuffle
from pyg_batchgnn.loader.rank_setup import RankSetup
from pyg_batchgnn.loader.sampling import SamplingRequest
from pyg_batchgnn.loader.setup import Setup
from pyg_batchgnn.loader.shell import MacrobatchShell
from pyg_batchgnn.sample import PygNeighborSampler


class MacrobatchLinkNeighborLoader(MacrobatchShell, LinkNeighborLoader):
    """A `LinkNeighborLoader` that makes its minibatches in macrobatches (BatchGNN, section 3).

    It takes what PyG's `LinkNeighborLoader` takes and yields what it yields. A minibatch, negatives
    included, is a pure function of (graph, fanouts, seed, epoch, its links): the number of threads,
    workers and the sizes below change speed and memory, never a bit.

    Args:
        data: a ``Data``, a ``HeteroData``, or a ``(FeatureStore, GraphStore)`` pair. With a
            ``(DistFeatureStore, DistGraphStore)`` pair the ranks make every macrobatch together,
            and all give the same links.
        num_neighbors: fanouts by hop, nearest the seeds first; -1 takes all neighbours.
        edge_label_index: the links: [2, n] node ids, or None for all edges. With several types
            give an edge type, (edge type, [2, n] or None), or a dict from edge types to such: their
            links are visited as one list, in the order of the dict.
        edge_label: a label for each link; a dict by edge type for several.
        edge_label_time: [n] int64, the time of each link; likewise.
        neg_sampling: PyG's `NegativeSampling` in any of its forms, or a dict of such by edge type.
        neg_sampling_ratio: binary negatives per link.
        neighbor_sampler: a `PygNeighborSampler`, whose graph, plan and seed are then used, and of a
            `PygLinkSampler` also its ``exclude_existing`` and ``exclude_seed_edges``.
        exclude_existing: True for negatives that are no edges of the links' relation.
        exclude_seed_edges: True leaves the edges between the ends of a minibatch's links out of
            what is sampled, parallel edges included; "reverse" leaves their reverses out as well,
            and a dict says in which edge type those are.
        late_negatives: what is done if links are earlier than every node of an end's type, so that
            no negative exists at their time. "warn" takes the earliest node, as PyG does, and says
            so once; such negatives are later than their link, and the counter ``late_negatives`` of
            `stats` counts them. "raise" refuses such links when the loader is made.
        time_window: how much older than its link a neighbour may be, in the unit of the times.
        schedule: over ranks, "local" lets each rank train the links whose targets it owns,
            "balanced" equally many on every rank, most of them such links, "global" deals the
            minibatches of one process out to the ranks. Unset, it is "local".
        aggregation_cache: as in `MacrobatchNeighborLoader`, but not with ``exclude_seed_edges``:
            aggregates are over all edges.

    The other arguments, those of the macrobatches among them, mean what they mean in
    `MacrobatchNeighborLoader`. So do epochs, `set_epoch` and ``loader(index)``.

    Raises:
        TypeError, ValueError, IndexError: arguments that do not fit; the message gives value and
            remedy.
    """

    def __init__(
        self,
        data: Data | HeteroData | tuple[FeatureStore, GraphStore],
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: Any = None,
        edge_label_time: Any = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: PygNeighborSampler | None = None,
        directed: bool = True,
        *,
        exclude_existing: bool = False,
        exclude_seed_edges: Any = False,
        late_negatives: Literal["warn", "raise"] = "warn",
        time_window: int | None = None,
        macrobatch_size: Size = "auto",
        fetch_size: Size = "auto",
        memory_budget: int | str | None = None,
        prefetch: int = 0,
        seed: int | None = None,
        threads: int | None = None,
        export: Literal["pyg", "native"] = "pyg",
        features: Literal["auto", "in_place", "copy"] = "auto",
        attributes: Sequence[str] | None = None,
        embedding: Embedding | None = None,
        schedule: Literal["local", "balanced", "global"] | None = None,
        feature_cache: int | str | None = None,
        aggregation_cache: AggregationCache | None = None,
        **kwargs: Any,
    ) -> None:
        arguments = locals()  # by name, so that each is listed once, in the signature
        refuse_unknown(self, kwargs)
        self._options = LoaderOptions.of(arguments)
        request = SamplingRequest.of(arguments)
        make = RankSetup if is_partitioned(data) else LocalSetup.of
        setup: Setup = make(data, request, self._options)
        kwargs = setup.dataloader_arguments(kwargs)
        refuse_what_does_not_go_together(
            self._options, setup.choice, setup.direction, kwargs, transform_sampler_output
        )
        links = LinkRequest(edge_label_index, edge_label, edge_label_time, kwargs.pop("input_id", None))
        rules = setup.link_rules.joined(exclude_existing, exclude_seed_edges, late_negatives)
        refuse_exclusion_beside_aggregates(self._options, rules)
        negatives = NegativeRequest(
            neg_sampling,
            neg_sampling_ratio,
            rules.exclude_existing,
            rules.exclude_seed_edges,
            rules.late_negatives,
        )
        is_disjoint = setup.choice.disjoint
        inputs = setup.take_inputs(
            LinkLoading(links, negatives, is_disjoint, setup.direction, setup.link_place)
        )
        # Past LinkNeighborLoader's constructor, which would make a sampler of its own.
        LinkLoader.__init__(
            self,
            data,
            setup.node_sampler,
            **inputs.for_pyg(data),
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            **with_keyed_shuffle(kwargs, len(inputs)),
        )
        self.edge_label_index, self.edge_label, self.input_id = links.index, links.labels, links.ids
        self.edge_label_time, self.neg_sampling = links.times, negatives.for_pyg()
        self._compose(setup)
