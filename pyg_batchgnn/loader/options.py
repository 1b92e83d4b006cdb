"""The arguments that `MacrobatchNeighborLoader` adds to PyG's, and those it refuses."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn.cache import AggregationCache, number_of_bytes
from pyg_batchgnn.embed import Embedding
from pyg_batchgnn.history import HistoricalCaches
from pyg_batchgnn.loader.reading import Features, Reading
from pyg_batchgnn.sample import Direction, LinkRules, NeighborChoice, as_integer

_NUMBERS = {"macrobatch_size", "fetch_size", "memory_budget", "feature_cache", "prefetch", "threads"}

Size: TypeAlias = int | Literal["auto", "all"]


class Export(enum.Enum):
    """The form of the batches that a loader hands out."""

    PYG = "pyg"  # torch_geometric.data.Data, as NeighborLoader does
    NATIVE = "native"  # pyg_batchgnn.Minibatch, attributes in place or in the fetch group's block


@dataclass(frozen=True)
class LoaderOptions:
    """The arguments that the loader adds to PyG's, checked once.

    Attributes:
        macrobatch_size, fetch_size: B and F, "auto", or "all" of an epoch and of a macrobatch.
        memory_budget: bytes; None means a share of the memory that is free at construction.
        prefetch: macrobatches that are prepared ahead.
        threads: at most this many threads work; torch's number if None.
        export: the form of the batches.
        reading: which attributes native batches carry, and where those lie.
        feature_cache: bytes for rows of other hosts; None for no cache.
        aggregation_cache: aggregates that stand for the last hop, or None.
        embedding: tables of learned rows, or None.
        history: caches from which rows of halo nodes come, or None.

    Raises:
        TypeError, ValueError: an argument that cannot be, or two that contradict each other.
    """

    macrobatch_size: Size = "auto"
    fetch_size: Size = "auto"
    memory_budget: int | None = None
    prefetch: int = 0
    threads: int | None = None
    export: Export = Export.PYG
    reading: Reading = field(default_factory=Reading)
    feature_cache: int | None = None
    aggregation_cache: AggregationCache | None = None
    embedding: Embedding | None = None
    history: HistoricalCaches | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> LoaderOptions:
        """Returns the options among the arguments of a loader.

        Args:
            arguments: by name, as the user writes them: bytes may be a text, and ``export``,
                ``features`` and ``attributes`` are names. A loader may lack some of them.
        """
        given = {one.name: arguments[one.name] for one in fields(cls) if one.name in arguments}
        for name in ("memory_budget", "feature_cache"):
            if name in given:
                given[name] = number_of_bytes(given[name])
        for name in _NUMBERS & given.keys():
            number = as_integer(given[name])
            given[name] = given[name] if number is None else number
        if "export" in given:
            given["export"] = _export(given["export"])
            given["reading"] = Reading.parse(arguments["features"], arguments["attributes"])
        return cls(**given)

    def __post_init__(self) -> None:
        _check_size("macrobatch_size", self.macrobatch_size)
        _check_size("fetch_size", self.fetch_size)
        b, f = self.macrobatch_size, self.fetch_size
        if isinstance(b, int) and isinstance(f, int) and f > b:
            raise ValueError(
                f"fetch_size ({f}) must not exceed macrobatch_size ({b}): "
                f"attributes are fetched for minibatches that have been sampled"
            )
        if self.memory_budget is not None:
            _check_number("memory_budget", self.memory_budget, 1, "bytes")
        if self.feature_cache is not None:
            _check_number("feature_cache", self.feature_cache, 0, "bytes")
        if self.aggregation_cache is not None and self.export is Export.PYG:
            raise ValueError(
                "an aggregation cache is for export='native': PyG's layers aggregate what was sampled, and "
                "do not know of aggregates made beforehand; use native layers, or no cache"
            )
        _check_number("prefetch", self.prefetch, 0, "macrobatches")
        if self.threads is not None:
            _check_number("threads", self.threads, 1, "threads")


def _export(export: str) -> Export:
    """Returns the form of that name."""
    try:
        return Export(export)
    except ValueError:
        choices = ", ".join(repr(choice.value) for choice in Export)
        raise ValueError(f"export must be one of {choices}, got {export!r}") from None


def refuse_what_does_not_go_together(
    options: LoaderOptions,
    choice: NeighborChoice,
    direction: Direction,
    kwargs: dict[str, Any],
    transform_sampler_output: Any,
) -> None:
    """Raises ValueError for arguments that contradict each other.

    Args:
        options: the arguments that the loader adds to PyG's.
        choice: the rules of its sampler.
        direction: the direction that its sampler works in.
        kwargs: the arguments of DataLoader.
        transform_sampler_output: that of PyG.
    """
    if options.prefetch and kwargs.get("num_workers", 0) > 0:
        raise ValueError(
            f"prefetch={options.prefetch} is for the loader's own thread; with "
            f"num_workers={kwargs['num_workers']} use prefetch_factor instead"
        )
    if "batch_size" in kwargs and kwargs["batch_size"] is None and kwargs.get("batch_sampler") is None:
        raise ValueError("batch_size=None is not possible: a minibatch is a list of seeds; use batch_size=1")
    if options.export is Export.NATIVE and transform_sampler_output is not None:
        raise ValueError(
            "transform_sampler_output takes PyG's SamplerOutput, which export='native' does not make; "
            "use transform"
        )
    if options.export is Export.NATIVE and choice.subgraph is SubgraphType.bidirectional:
        raise ValueError(
            "subgraph_type='bidirectional' is for export='pyg': native minibatches have the edges that were "
            "picked, without their reverses; use 'directional' or 'induced'"
        )
    if options.export is Export.NATIVE and direction is Direction.BACKWARD:
        raise ValueError(
            "sample_direction='backward' is for export='pyg': native layers aggregate over the edges into a "
            "node; use a sampler that works forward"
        )
    if options.aggregation_cache is not None:
        _refuse_beside_aggregates(choice)
    if options.export is Export.PYG and options.reading != Reading():
        raise ValueError(
            "features and attributes are for export='native'; PyG batches carry a copy of every attribute"
        )
    if options.reading.features is Features.IN_PLACE and kwargs.get("num_workers", 0) > 0:
        raise ValueError(
            f"features='in_place' works in this process; with num_workers={kwargs['num_workers']} "
            f"use features='auto' or threads instead of workers"
        )


def _refuse_beside_aggregates(choice: NeighborChoice) -> None:
    """Raises ValueError for rules under which a node's neighbours are not all of its in-edges."""
    given = {
        f"time_attr={choice.time_attr!r}": choice.time_attr is not None,
        f"weight_attr={choice.weight_attr!r}": choice.weight_attr is not None,
        "disjoint=True": choice.disjoint,
        f"subgraph_type={choice.subgraph.value!r}": choice.subgraph is not SubgraphType.directional,
    }
    for argument, is_given in given.items():
        if is_given:
            raise ValueError(
                f"an aggregation cache holds aggregates over all neighbours of a node, the same for every "
                f"seed; it does not go with {argument}: leave one of them out"
            )


def refuse_exclusion_beside_aggregates(options: LoaderOptions, rules: LinkRules) -> None:
    """Raises ValueError if edges are excluded that aggregates hold."""
    if options.aggregation_cache is not None and rules.exclude_seed_edges:
        raise ValueError(
            f"an aggregation cache holds aggregates over all neighbours of a node, the ends of links too; it "
            f"does not go with exclude_seed_edges={rules.exclude_seed_edges!r}: leave one of them out"
        )


def _check_size(name: str, size: Any) -> None:
    if size in ("auto", "all"):
        return
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f'{name} must be a positive number of minibatches, "all" or "auto", got {size!r}')


def _check_number(name: str, value: Any, least: int, unit: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer number of {unit}, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be a number of {unit}, at least {least}, got {value}")
