"""The drop-in for PyG's `LinkNeighborLoader`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData
from torch_geometric.loader import LinkNeighborLoader
from torch_geometric.loader.link_loader import LinkLoader

from pyg_batchgnn.loader.arguments import is_partitioned
from pyg_batchgnn.loader.bytes import parse_bytes
from pyg_batchgnn.loader.input_links import LinkRequest
from pyg_batchgnn.loader.link_negatives import NegativeRequest
from pyg_batchgnn.loader.link_request import LinkLoading
from pyg_batchgnn.loader.local_setup import LocalSetup
from pyg_batchgnn.loader.options import (
    LoaderOptions,
    Size,
    parse_export,
    refuse_what_does_not_go_together,
)
from pyg_batchgnn.loader.order import with_keyed_shuffle
from pyg_batchgnn.loader.reading import Reading
from pyg_batchgnn.loader.sampling import SamplingRequest
from pyg_batchgnn.loader.shell import MacrobatchShell
from pyg_batchgnn.sample import NeighborChoice, PygNeighborSampler


class MacrobatchLinkNeighborLoader(MacrobatchShell, LinkNeighborLoader):
    """A `LinkNeighborLoader` that makes its minibatches in macrobatches (BatchGNN, section 3).

    It takes what PyG's `LinkNeighborLoader` takes and yields what it yields. A minibatch, negatives
    included, is a pure function of (graph, fanouts, seed, epoch, its links): the number of threads,
    workers and the sizes below change speed and memory, never a bit.

    Args:
        data: a ``Data``, a ``HeteroData``, or a ``(FeatureStore, GraphStore)`` pair.
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
        time_window: how much older than its link a neighbour may be, in the unit of the times.
        macrobatch_size: B, the minibatches sampled together; "all" of an epoch; "auto" fits the
            memory budget.
        fetch_size: F, native minibatches whose attributes are fetched together, at most B; "auto"
            likewise. PyG batches are gathered one by one, straight from ``data``, when they are
            asked for.
        memory_budget: bytes (or a text like "2GiB") that the loader may hold at its peak, graph
            and features not counted; None is an eighth of what is free at construction. It decides
            what "auto" means, and nothing else.
        prefetch: macrobatches to prepare beside training, on one thread (0: none). Attributes are
            then read when the macrobatch is prepared.
        seed: key of shuffling and sampling; None draws one from torch's default generator.
        threads: at most this many threads work; torch's number if None. Worker processes use one
            each.
        export: "pyg" for ``Data`` batches, "native" for `Minibatch`.
        features: where the node attributes of native batches lie. "in_place": ``block`` holds the
            tensors of ``data`` themselves and ``row`` is ``node``. Nothing is copied, and a change
            to a tensor shows in batches that are made already. "copy": rows of the fetch group's
            nodes as they were when it was made. "auto": in place if every wanted attribute is a
            dense tensor in memory. Feature stores, mapped files and worker processes copy.
        attributes: names of the attributes that native batches carry; None stands for all.
        **kwargs: those of ``torch.utils.data.DataLoader``. If ``generator``, ``sampler`` or
            ``batch_sampler`` is given, it decides the order. Else ``shuffle`` is a keyed
            permutation by (seed, epoch).

    The other arguments are those of `MacrobatchNeighborLoader`.

    Raises:
        NotImplementedError: a graph over ranks, or a sampler that works backward.
        TypeError, ValueError, IndexError: arguments that do not fit; the message gives value and
            remedy.

    Every ``iter(loader)`` starts the next epoch, the first is epoch 0; `set_epoch` overrides it;
    ``loader(index)`` uses the current one.
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
        **kwargs: Any,
    ) -> None:
        if is_partitioned(data):
            raise NotImplementedError(
                "links over ranks are not supported yet in MacrobatchLinkNeighborLoader; give the graph "
                "whole, as a Data"
            )
        self._options = LoaderOptions(
            macrobatch_size,
            fetch_size,
            parse_bytes(memory_budget) if isinstance(memory_budget, str) else memory_budget,
            prefetch,
            threads,
            parse_export(export),
            Reading.parse(features, attributes),
        )
        choice = NeighborChoice.parse(
            subgraph_type,
            directed,
            is_sorted,
            None,
            disjoint=disjoint,
            temporal_strategy=temporal_strategy,
            time_attr=time_attr,
            time_window=time_window,
            weight_attr=weight_attr,
        )
        request = SamplingRequest(num_neighbors, replace, seed, neighbor_sampler, None, choice)
        setup = LocalSetup(data, request, self._options)
        refuse_what_does_not_go_together(
            self._options, setup.choice, setup.direction, kwargs, transform_sampler_output
        )
        links = LinkRequest(edge_label_index, edge_label, edge_label_time, kwargs.pop("input_id", None))
        rules = setup.node_sampler.rules_of_links().joined(exclude_existing, exclude_seed_edges)
        negatives = NegativeRequest(
            neg_sampling, neg_sampling_ratio, rules.exclude_existing, rules.exclude_seed_edges
        )
        is_disjoint = setup.node_sampler.macrobatch.plan.disjoint
        inputs = setup.take_inputs(LinkLoading(links, negatives, is_disjoint))
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
