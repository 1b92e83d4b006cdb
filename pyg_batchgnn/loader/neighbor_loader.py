"""The drop-ins for PyG's loaders: by neighbours, HGT, and links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData
from torch_geometric.loader import HGTLoader, LinkNeighborLoader, NeighborLoader, NodeLoader
from torch_geometric.loader.link_loader import LinkLoader

from pyg_batchgnn.loader.link_inputs import LinkRequest, UserLinks
from pyg_batchgnn.loader.node_inputs import NodeRequest
from pyg_batchgnn.loader.options import LoaderOptions, Size, is_partitioned, refuse_unknown
from pyg_batchgnn.loader.setup import LocalSetup, Setup, World, check_together
from pyg_batchgnn.loader.shell import MacrobatchShell
from pyg_batchgnn.sample import (
    NEIGHBOR_CAP,
    LateNegatives,
    LinkRules,
    NeighborChoice,
    PygHGTSampler,
    PygNeighborSampler,
    subgraph_of,
)

if TYPE_CHECKING:
    from pyg_batchgnn.cache import AggregationCache
    from pyg_batchgnn.embed import Embedding
    from pyg_batchgnn.history import HistoricalCaches


def _setup(data: Any, choice: NeighborChoice, sampler: Any, options: LoaderOptions) -> Setup:
    if not is_partitioned(data):
        return LocalSetup.of(data, choice, sampler, options)
    if sampler is not None:
        raise ValueError("neighbor_sampler works in one process; over ranks give num_neighbors and seed")
    # One process needs none of this.
    from pyg_batchgnn.loader.rank_setup import HistoricalSetup, RankSetup

    return (RankSetup if options.history is None else HistoricalSetup)(data, choice, options)


class MacrobatchNeighborLoader(MacrobatchShell, NeighborLoader):
    """A `NeighborLoader` that makes its minibatches in macrobatches (BatchGNN, section 3).

    A macrobatch is many minibatches that are sampled, and whose rows are read, together. The
    loader takes what PyG's `NeighborLoader` takes and yields what it yields. A minibatch is a pure
    function of (graph, fanouts, seed, epoch, its seed nodes): the number of threads, workers and
    the sizes below change speed and memory, never a bit.

    >>> loader = MacrobatchNeighborLoader(data, [10, 5], input_nodes=data.train_mask, batch_size=32)
    >>> for batch in loader:
    ...     out = model(batch.x, batch.edge_index)[: batch.batch_size]

    Args:
        data: a ``Data``, a ``HeteroData`` or a ``(FeatureStore, GraphStore)`` pair. With a
            ``(DistFeatureStore, DistGraphStore)`` pair the ranks make every macrobatch together:
            docs/reference/ranks.md says what is collective.
        num_neighbors: fanouts by hop, nearest the seeds first, for all relations or as a dict by
            relation; -1 takes all neighbours, a float in (0, 1] that share of them.
        input_nodes: seed nodes as an index tensor, a boolean mask, or None for all nodes. With node
            types: "type", ("type", nodes), or a dict of several types, whose seeds are shuffled as
            one and counted together by ``batch_size``. Over ranks the name of a split may stand for
            nodes.
        input_time: [S] int64, the times of the seeds; None takes the nodes' own. A dict by type if
            ``input_nodes`` is one, as ``input_id`` is then.
        replace: sample with replacement.
        subgraph_type: "directional", "bidirectional" or "induced"; native batches are not
            bidirectional.
        disjoint: every seed gets a subgraph of its own, as always in sampling by time.
        temporal_strategy: "uniform" or "last", among the neighbours that a seed's time allows.
        time_attr: the attribute of nodes or of edges, or of both, that holds int64 times.
            Neighbours are not younger than the seed.
        weight_attr: the attribute of edges that holds their weights. Neighbours are picked in
            proportion to them, also among those that a time allows.
        is_sorted: promises that edges are sorted by target, and by time within it. The promise is
            checked with ``time_attr``, and ignored without.
        neighbor_sampler: a `PygNeighborSampler`, whose graph, plan and seed are then used.
        time_window: how much older than its seed a neighbour may be, in the unit of the times.
        labor: "hop", "layers" or "epoch" lets the destinations of a minibatch pick the same sources
            where they can, so that it has fewer distinct nodes: half of them on many graphs
            (docs/concepts/labor.md says which strength shares what). None: each picks by itself.
        freeze: a time for all seeds: neighbours are later neither than their seed nor than this.
            Seeds may be later. They keep their times in the batch, and the counter
            ``frozen_seeds`` of `stats` counts them.
        tokens: K, for graph transformers: with times or ``disjoint`` a batch has the first K nodes
            around each seed, breadth first, as [S, K] tensors with a mask, in ``batch.tokens``
            (`pyg_batchgnn.sample.Tokens`). None: there are none.
        macrobatch_size: B, the minibatches sampled together; "all" of an epoch; "auto" fits the
            memory budget.
        fetch_size: F, native minibatches whose attributes are fetched together, at most B; "auto"
            likewise. PyG batches are gathered one by one, straight from ``data``, when they are
            asked for.
        memory_budget: bytes (or a text like "2GiB") that the loader may hold at its peak, graph
            and tables in memory not counted; None is an eighth of what is free at construction, or
            up to half where threads would have no minibatch or tables lie in mapped files. It
            decides what "auto" means and what is held of mapped files. Mapped edges that take more
            are read from their files, too, unless the page cache holds them (docs/how-to/disk.md).
        prefetch: macrobatches to prepare beside training, on one thread (0: none). Attributes are
            then read when the macrobatch is prepared, those of mapped files always.
        lookahead: macrobatches whose rows in mapped files are known before the first of them is
            made; None stands for the epoch, which reads least.
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
        embedding: tables of learned rows. They are told which rows each batch needs, for
            ``embedding(batch)`` (docs/how-to/embeddings.md).
        schedule: over ranks, which minibatches a rank trains. "local" (default): those of the seed
            nodes that it owns. "balanced": those of equally many seed nodes on every rank, most of
            them its own. "global": every R-th of those that one process would make. None in one
            process.
        feature_cache: over ranks, bytes (or a text like "512MiB") that a rank may spend on rows of
            other hosts that its minibatches are most likely to need; they are fetched when the
            loader is made and never again. None: no cache, as always in one process.
        aggregation_cache: aggregates of the features that stand for the last hop: the last of
            ``num_neighbors`` is not sampled, the other hops are as they were, and native
            minibatches carry each node's aggregate beside its features
            (docs/concepts/aggregation-cache.md). Over ranks all have one.
        history: over ranks, caches from which layers read the rows of halo nodes. Sampling then
            stays within the rank's part and its halo, and native minibatches are
            `HistoricalMinibatch` (docs/concepts/historical-embeddings.md). None: the exact mode.
        device: "cuda", "cuda:1" or a ``torch.device``: batches arrive whole on it, in the order and
            with the bits of those without it, and training never waits for a copy. Threads sample
            and copy beside training, ``prefetch`` macrobatches ahead or at least one; there are no
            worker processes (docs/how-to/gpu.md). "cpu" goes the same way without a GPU. None hands
            batches out where they are made.
        feature_placement: with ``device``, where the attributes of a ``Data`` or ``HeteroData`` in
            memory lie. "device": in the device's memory, copied once. "host": where they are; the
            device reads rows over the bus. "auto": on the device as far as half of its free memory
            goes, narrow rows first.
        device_cache: with ``device``, bytes (or a text like "2GiB") of its memory for rows of
            tables on the host that minibatches are most likely to need. None: no cache.
        pinned_memory: with ``device``, bytes of the computer's memory that may be page-locked for
            copies; what is beyond is copied from pageable memory, which is slower. None: for
            copies half of ``memory_budget``, or an eighth of what is free, and for tables as much
            as the system allows.
        **kwargs: those of ``torch.utils.data.DataLoader``. If ``generator``, ``sampler`` or
            ``batch_sampler`` is given, it decides the order. Else ``shuffle`` is a keyed
            permutation by (seed, epoch).

    Raises:
        TypeError, ValueError, IndexError: arguments that do not fit; the message gives value and
            remedy.

    Every ``iter(loader)`` starts the next epoch, the first is epoch 0; `set_epoch` overrides it;
    ``loader(index)`` uses the current one.
    """

    def __init__(
        self,
        data: Data | HeteroData | tuple[FeatureStore, GraphStore],
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: Tensor | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: PygNeighborSampler | None = None,
        directed: bool = True,
        *,
        time_window: int | None = None,
        labor: Literal["hop", "layers", "epoch"] | None = None,
        freeze: int | None = None,
        tokens: int | None = None,
        macrobatch_size: Size = "auto",
        fetch_size: Size = "auto",
        memory_budget: int | str | None = None,
        prefetch: int = 0,
        lookahead: int | None = None,
        seed: int | None = None,
        threads: int | None = None,
        export: Literal["pyg", "native"] = "pyg",
        features: Literal["auto", "in_place", "copy"] = "auto",
        attributes: Sequence[str] | None = None,
        embedding: Embedding | None = None,
        schedule: Literal["local", "balanced", "global"] | None = None,
        feature_cache: int | str | None = None,
        aggregation_cache: AggregationCache | None = None,
        history: HistoricalCaches | None = None,
        device: str | torch.device | None = None,
        feature_placement: Literal["auto", "device", "host"] = "auto",
        device_cache: int | str | None = None,
        pinned_memory: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(self, kwargs)
        options = LoaderOptions.of(
            macrobatch_size=macrobatch_size,
            fetch_size=fetch_size,
            memory_budget=memory_budget,
            prefetch=prefetch,
            lookahead=lookahead,
            threads=threads,
            export=export,
            features=features,
            attributes=attributes,
            feature_cache=feature_cache,
            aggregation_cache=aggregation_cache,
            embedding=embedding,
            schedule=schedule,
            history=history,
            tokens=tokens,
            device=device,
            feature_placement=feature_placement,
            device_cache=device_cache,
            pinned_memory=pinned_memory,
            seed=seed,
        )
        subgraph = subgraph_of(subgraph_type, directed)
        rules = disjoint, temporal_strategy, time_attr, time_window, weight_attr, is_sorted, labor, freeze
        choice = NeighborChoice(num_neighbors, replace, subgraph, *rules)
        if input_time is not None and time_attr is None:
            raise ValueError(
                "input_time is set while time_attr is not: name the attribute that holds the times"
            )
        setup = _setup(data, choice, neighbor_sampler, options)
        kwargs = setup.dataloader_arguments(kwargs)
        check_together(setup, kwargs, transform_sampler_output)
        given = NodeRequest(input_nodes, kwargs.pop("input_id", None), input_time)
        inputs = setup.take_inputs(given).for_pyg()
        hooks = transform, transform_sampler_output, filter_per_worker
        self._begin(NodeLoader, setup, data, inputs, kwargs, *hooks)
        self.input_nodes, self.input_id, self.input_time = given.nodes, given.ids, given.times


class MacrobatchHGTLoader(MacrobatchShell, HGTLoader):
    """An `HGTLoader` that makes its minibatches in macrobatches and needs no torch-sparse.

    It takes what PyG's `HGTLoader` takes and yields what it yields, with the right edge ids. A
    minibatch is a pure function of (graph, ``num_samples``, seed, epoch, its seed nodes): the
    number of threads, workers and the sizes below change speed and memory, never a bit.
    docs/concepts/sampling-contract.md has the law. In native minibatches every layer computes all
    nodes from all edges, as PyG's layers do on PyG batches.

    >>> loader = MacrobatchHGTLoader(typed, [8, 8], input_nodes="paper", batch_size=16)
    >>> next(iter(loader))["paper"].batch_size
    16

    Args:
        data: a ``HeteroData``, a ``Data``, which is a graph of one type, or a ``(FeatureStore,
            GraphStore)`` pair.
        num_samples: the nodes of each type that each hop samples: a list by hop for all types, or a
            dict of lists by type. -1 samples all candidates.
        input_nodes: "type", ("type", nodes) with None, a mask or ids, or a dict of several types.
            In a ``Data`` a mask, ids, or None for all nodes.
        is_sorted: ignored; the loader finds out itself.
        neighbor_cap: at most this many in-edges of a node are considered in each relation, drawn
            once per minibatch. None considers all.
        **kwargs: those of ``torch.utils.data.DataLoader``, and ``input_id``.

    The other arguments are as in `MacrobatchNeighborLoader`, and so are epochs, `set_epoch` and
    ``loader(index)``.

    Raises:
        NotImplementedError: a graph over ranks.
        TypeError, ValueError, IndexError: arguments that do not fit; the message gives value and
            remedy.
    """

    def __init__(
        self,
        data: Data | HeteroData | tuple[FeatureStore, GraphStore],
        num_samples: Any,
        input_nodes: Any = None,
        is_sorted: bool = False,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        filter_per_worker: bool | None = None,
        *,
        neighbor_cap: int | None = NEIGHBOR_CAP,
        macrobatch_size: Size = "auto",
        fetch_size: Size = "auto",
        memory_budget: int | str | None = None,
        prefetch: int = 0,
        lookahead: int | None = None,
        seed: int | None = None,
        threads: int | None = None,
        export: Literal["pyg", "native"] = "pyg",
        features: Literal["auto", "in_place", "copy"] = "auto",
        attributes: Sequence[str] | None = None,
        device: str | torch.device | None = None,
        feature_placement: Literal["auto", "device", "host"] = "auto",
        device_cache: int | str | None = None,
        pinned_memory: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(self, kwargs)
        if is_partitioned(data):
            raise NotImplementedError(
                "HGT sampling over ranks is not supported yet; give the graph whole, as a HeteroData, or use "
                "MacrobatchNeighborLoader"
            )
        options = LoaderOptions.of(
            macrobatch_size=macrobatch_size,
            fetch_size=fetch_size,
            memory_budget=memory_budget,
            prefetch=prefetch,
            lookahead=lookahead,
            threads=threads,
            export=export,
            features=features,
            attributes=attributes,
            device=device,
            feature_placement=feature_placement,
            device_cache=device_cache,
            pinned_memory=pinned_memory,
            seed=seed,
        )
        world = World()
        sampler = PygHGTSampler(
            data,
            num_samples,
            is_sorted,
            neighbor_cap=neighbor_cap,
            seed=world.seed(options.seed),
            threads=options.threads,
        )
        setup = LocalSetup(sampler, options, world)
        check_together(setup, kwargs, transform_sampler_output)
        given = NodeRequest(input_nodes, kwargs.pop("input_id", None))
        inputs = setup.take_inputs(given).for_pyg()
        hooks = transform, transform_sampler_output, filter_per_worker
        self._begin(NodeLoader, setup, data, inputs, kwargs, *hooks)
        self.num_samples, self.input_nodes, self.input_id = num_samples, given.nodes, given.ids


class MacrobatchLinkNeighborLoader(MacrobatchShell, LinkNeighborLoader):
    """A `LinkNeighborLoader` that makes its minibatches in macrobatches (BatchGNN, section 3).

    It takes what PyG's `LinkNeighborLoader` takes and yields what it yields. A minibatch, negatives
    included, is a pure function of (graph, fanouts, seed, epoch, its links): the number of threads,
    workers and the sizes below change speed and memory, never a bit.

    >>> links, pairs = data.edge_index[:, :100], "binary"
    >>> loader = MacrobatchLinkNeighborLoader(
    ...     data, [10, 5], edge_label_index=links, neg_sampling=pairs, batch_size=50
    ... )
    >>> next(iter(loader)).edge_label_index.shape  # 50 links, and a negative for each
    torch.Size([2, 100])

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
        neg_sampling: PyG's `NegativeSampling` in any of its forms; or [n, k] node ids, the negative
            targets of each link, as triplets; or "in-batch", the targets of the minibatch's other
            links, for `pyg_batchgnn.nn.in_batch_loss`. A dict by edge type for several.
        neg_sampling_ratio: binary negatives per link.
        neighbor_sampler: a `PygNeighborSampler`, whose graph, plan and seed are then used, and of a
            `PygLinkSampler` also its ``exclude_existing`` and ``exclude_seed_edges``.
        exclude_existing: True draws only negatives that are no edges of the links' relation.
        exclude_seed_edges: the edges that sampling must not pick. False: none. True: every edge
            from the source to the target of a link of the minibatch. "reverse": their reverses too;
            a dict gives the edge type of the reverses. "edges": only the edges with the ids in
            ``input_id`` (unset, links are all edges in order), and those of the same ids in the
            reverse edge type. ("edges", ids): as "edges", with the id of the reverse of each edge,
            [E] int64, -1 for none.
        late_negatives: the choice for links that are earlier than every node of an end's type, so
            that no negative exists at their time. "warn": the earliest node, as in PyG, with one
            warning; the counter ``late_negatives`` of `stats` counts such negatives. "raise": an
            error when the loader is made.
        time_window: how much older than its link a neighbour may be, in the unit of the times.
        labor, freeze: as in `MacrobatchNeighborLoader`; negatives are not later than ``freeze``
            either.
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
        labor: Literal["hop", "layers", "epoch"] | None = None,
        freeze: int | None = None,
        macrobatch_size: Size = "auto",
        fetch_size: Size = "auto",
        memory_budget: int | str | None = None,
        prefetch: int = 0,
        lookahead: int | None = None,
        seed: int | None = None,
        threads: int | None = None,
        export: Literal["pyg", "native"] = "pyg",
        features: Literal["auto", "in_place", "copy"] = "auto",
        attributes: Sequence[str] | None = None,
        embedding: Embedding | None = None,
        schedule: Literal["local", "balanced", "global"] | None = None,
        feature_cache: int | str | None = None,
        aggregation_cache: AggregationCache | None = None,
        device: str | torch.device | None = None,
        feature_placement: Literal["auto", "device", "host"] = "auto",
        device_cache: int | str | None = None,
        pinned_memory: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(self, kwargs)
        options = LoaderOptions.of(
            macrobatch_size=macrobatch_size,
            fetch_size=fetch_size,
            memory_budget=memory_budget,
            prefetch=prefetch,
            lookahead=lookahead,
            threads=threads,
            export=export,
            features=features,
            attributes=attributes,
            feature_cache=feature_cache,
            aggregation_cache=aggregation_cache,
            embedding=embedding,
            schedule=schedule,
            device=device,
            feature_placement=feature_placement,
            device_cache=device_cache,
            pinned_memory=pinned_memory,
            seed=seed,
        )
        subgraph = subgraph_of(subgraph_type, directed)
        rules = disjoint, temporal_strategy, time_attr, time_window, weight_attr, is_sorted, labor, freeze
        choice = NeighborChoice(num_neighbors, replace, subgraph, *rules)
        setup = _setup(data, choice, neighbor_sampler, options)
        kwargs = setup.dataloader_arguments(kwargs)
        links = UserLinks(edge_label_index, edge_label, edge_label_time, kwargs.pop("input_id", None))
        own = LinkRules(exclude_existing, exclude_seed_edges, LateNegatives.parse(late_negatives))
        request = LinkRequest(links, neg_sampling, neg_sampling_ratio, setup.link_rules.joined(own))
        check_together(setup, kwargs, transform_sampler_output, request.rules.exclude_seed_edges)
        inputs = setup.take_inputs(request).for_pyg(data)
        hooks = transform, transform_sampler_output, filter_per_worker
        self._begin(LinkLoader, setup, data, inputs, kwargs, *hooks)
        self.edge_label_index, self.edge_label, self.input_id = links.index, links.labels, links.ids
        self.edge_label_time, self.neg_sampling = links.times, request.for_pyg()
