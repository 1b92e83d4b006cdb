"""The arguments of loaders, checked: sampling, attributes, sizes, and what does not go together."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch.utils.data import DataLoader
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn.loader.schedule import ScheduleName
from pyg_batchgnn.ops import number_of_bytes
from pyg_batchgnn.sample import Direction, LinkRules, NeighborChoice, as_integer
from pyg_batchgnn.store import AttributeGroups, TypedGraph

if TYPE_CHECKING:
    from pyg_batchgnn.cache import AggregationCache
    from pyg_batchgnn.embed import Embedding
    from pyg_batchgnn.history import HistoricalCaches


# Sampling #########################################################################################


@dataclass(frozen=True)
class SamplingRequest:
    """The sampling that a user asks a loader for."""

    num_neighbors: Any  # fanouts by hop in one of PyG's forms
    replace: bool  # True to sample with replacement
    seed: int | None  # the key of every random choice; None draws one
    sampler: Any  # the user's own sampler, or None
    schedule: ScheduleName | None  # which minibatches a rank trains; None if the user did not say
    choice: NeighborChoice = field(default_factory=NeighborChoice)  # the rules by which neighbours are chosen


def as_seed(seed: Any) -> int | None:
    """Returns a seed of Python, NumPy or torch as Python's integer; None stays None. Raises
    TypeError if it is something else."""
    number = None if seed is None else as_integer(seed)
    if seed is not None and number is None:
        raise TypeError(f"seed must be an integer or None, got {seed!r}")
    return number


# Reading ##########################################################################################


class Features(enum.Enum):
    """The place where the attributes of a native batch lie."""

    AUTO = "auto"  # in place if all of them are in memory, else copied
    IN_PLACE = "in_place"  # the user's own tensors
    COPY = "copy"  # a block of the fetch group's distinct nodes


@dataclass(frozen=True)
class Reading:
    """The attributes of native batches that a user chose, checked."""

    features: Features = Features.AUTO  # where the attributes lie
    attributes: tuple[str, ...] | None = None  # their names; None stands for all

    @classmethod
    def parse(cls, features: Any, attributes: Sequence[str] | None) -> Reading:
        if features not in [choice.value for choice in Features]:
            choices = ", ".join(repr(choice.value) for choice in Features)
            raise ValueError(f"features must be one of {choices}, got {features!r}")
        if attributes is None:
            return cls(Features(features))
        if isinstance(attributes, str) or not isinstance(attributes, Sequence):
            raise TypeError(f'attributes must be a list of names like ["x", "y"], got {attributes!r}')
        if wrong := [name for name in attributes if not isinstance(name, str)]:
            raise TypeError(f"attributes must be names, got {wrong[0]!r}")
        return cls(Features(features), tuple(attributes))

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Returns the wanted ones among ``names``."""
        known = list(names)
        if self.attributes is None:
            return known
        if missing := [name for name in self.attributes if name not in known]:
            held = ", ".join(map(repr, known)) or "none"
            raise ValueError(
                f"data has no node attribute {missing[0]!r} and no edge attribute of this name; it has {held}"
            )
        return [name for name in known if name in self.attributes]


# Options ##########################################################################################


Size: TypeAlias = int | Literal["auto", "all"]
#: The places of the tables that batches on a device are made of.
PLACEMENTS = ("auto", "device", "host")


class Export(enum.Enum):
    """The form of the batches that a loader hands out."""

    PYG = "pyg"  # torch_geometric.data.Data, as NeighborLoader does
    NATIVE = "native"  # pyg_batchgnn.Minibatch, attributes in place or in the fetch group's block


@dataclass(frozen=True)
class LoaderOptions:
    """The arguments that a loader adds to PyG's, checked once."""

    #: macrobatch_size, fetch_size: B and F, "auto", or "all" of an epoch and of a macrobatch
    macrobatch_size: Size = "auto"
    fetch_size: Size = "auto"
    memory_budget: int | None = None  # bytes; None means a share of the memory that is free at construction
    prefetch: int = 0  # macrobatches that are prepared ahead
    lookahead: int | None = None  # macrobatches whose rows in files are known ahead; None for the epoch
    threads: int | None = None  # at most this many threads work; torch's number if None
    export: Export = Export.PYG  # the form of the batches
    #: which attributes native batches carry, and where those lie
    reading: Reading = field(default_factory=Reading)
    feature_cache: int | None = None  # bytes for rows of other hosts; None for no cache
    aggregation_cache: AggregationCache | None = None  # aggregates that stand for the last hop, or None
    embedding: Embedding | None = None  # tables of learned rows, or None
    history: HistoricalCaches | None = None  # caches from which rows of halo nodes come, or None
    device: torch.device | None = None  # where batches are handed out; None for where they are made
    feature_placement: str = "auto"  # where the tables for a device lie, by the name of the choice
    device_cache: int | None = None  # bytes of the device for rows that lie on the host; None for no cache
    pinned_memory: int | None = None  # bytes that may be locked for a device; None means a share

    @classmethod
    def of(
        cls,
        *,
        macrobatch_size: Any,
        fetch_size: Any,
        memory_budget: Any,
        prefetch: Any,
        lookahead: Any = None,
        threads: Any,
        export: Any,
        features: Any,
        attributes: Any,
        feature_cache: Any = None,
        aggregation_cache: AggregationCache | None = None,
        embedding: Embedding | None = None,
        history: HistoricalCaches | None = None,
        device: Any = None,
        feature_placement: Any = "auto",
        device_cache: Any = None,
        pinned_memory: Any = None,
    ) -> LoaderOptions:
        """Makes the options from a loader's arguments, which have the same names. Bytes may be a
        text. ``export``, ``features`` and ``attributes`` are names."""
        return cls(
            _plain(macrobatch_size),
            _plain(fetch_size),
            _plain(number_of_bytes(memory_budget)),
            _plain(prefetch),
            _plain(lookahead),
            _plain(threads),
            _export(export),
            Reading.parse(features, attributes),
            _plain(number_of_bytes(feature_cache)),
            aggregation_cache,
            embedding,
            history,
            _device(device),
            feature_placement,
            _plain(number_of_bytes(device_cache)),
            _plain(number_of_bytes(pinned_memory)),
        )

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
        if self.lookahead is not None:
            _check_number("lookahead", self.lookahead, 1, "macrobatches")
        if self.threads is not None:
            _check_number("threads", self.threads, 1, "threads")
        for name, value in (("device_cache", self.device_cache), ("pinned_memory", self.pinned_memory)):
            if value is not None:
                _check_number(name, value, 0, "bytes")
        self._refuse_beside_device()

    def _refuse_beside_device(self) -> None:
        """Raises ValueError for arguments that contradict ``device``, or that need it."""
        if self.feature_placement not in PLACEMENTS:
            choices = ", ".join(map(repr, PLACEMENTS))
            raise ValueError(f"feature_placement must be one of {choices}, got {self.feature_placement!r}")
        given = {
            f"feature_placement={self.feature_placement!r}": self.feature_placement,
            f"device_cache={self.device_cache}": self.device_cache,
            f"pinned_memory={self.pinned_memory}": self.pinned_memory,
        }
        if self.device is None:
            for argument, value in given.items():
                if value not in (None, "auto"):
                    raise ValueError(f"{argument} is for batches on a device; say which, as in device='cuda'")
            return
        if self.embedding is not None:
            raise ValueError(
                f"embedding holds its tables in the computer's own memory, and its steps compute there; it "
                f"does not go with device={str(self.device)!r}: leave one of them out"
            )
        if self.history is not None:
            raise ValueError(
                f"history is read by native layers on the CPU; it does not go with "
                f"device={str(self.device)!r}: leave one of them out"
            )
        if self.reading.features is Features.IN_PLACE:
            raise ValueError(
                f"features='in_place' hands out tables in the computer's own memory; with "
                f"device={str(self.device)!r} feature_placement says where they lie"
            )
        if self.device_cache and self.feature_placement == "device":
            raise ValueError(
                "device_cache holds rows of tables on the host, but feature_placement='device' puts all "
                "tables on the device; leave one of them out"
            )


def _plain(value: Any) -> Any:
    """Returns a number of NumPy or torch as Python's integer, and anything else as it is."""
    number = as_integer(value)
    return value if number is None else number


def _export(export: str) -> Export:
    try:
        return Export(export)
    except ValueError:
        choices = ", ".join(repr(choice.value) for choice in Export)
        raise ValueError(f"export must be one of {choices}, got {export!r}") from None


def _device(device: Any) -> torch.device | None:
    if device is None:
        return None
    from pyg_batchgnn.device import checked_device

    return checked_device(device)


def refuse_what_does_not_go_together(
    options: LoaderOptions,
    choice: NeighborChoice,
    direction: Direction,
    kwargs: dict[str, Any],
    transform_sampler_output: Any,
) -> None:
    """Raises ValueError for arguments that contradict each other."""
    if options.prefetch and kwargs.get("num_workers", 0) > 0:
        raise ValueError(
            f"prefetch={options.prefetch} is for the loader's own thread; with "
            f"num_workers={kwargs['num_workers']} use prefetch_factor instead"
        )
    if options.device is not None and kwargs.get("num_workers", 0) > 0:
        raise ValueError(
            f"device={str(options.device)!r} needs no worker processes, which cannot share a device's "
            f"memory: threads sample and copy beside training; leave num_workers={kwargs['num_workers']} out"
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


# Arguments ########################################################################################

#: Attributes that are the graph itself.
TOPOLOGY = ("edge_index", "adj_t")

#: The keywords of PyG's loaders and of DataLoader that our signatures leave to ``kwargs``.
_KEYWORDS = {"input_id", "custom_cls", *inspect.signature(DataLoader).parameters}


def refuse_unknown(loader: DataLoader, kwargs: Mapping[str, Any]) -> None:
    """Raises TypeError for a keyword that neither a loader nor DataLoader takes."""
    for name in kwargs:
        if name not in _KEYWORDS:
            raise TypeError(
                f"{type(loader).__name__} got an unexpected keyword argument {name!r}: it takes its own and "
                f"those of torch.utils.data.DataLoader"
            )


def is_partitioned(data: Any) -> bool:
    return isinstance(data, (tuple, list)) and any(getattr(one, "is_partitioned", False) for one in data)


def worker_arguments(loader: DataLoader) -> dict[str, Any]:
    return {
        "num_workers": loader.num_workers,
        "persistent_workers": loader.persistent_workers,
        "prefetch_factor": loader.prefetch_factor,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context,
    }


def has_edge_attributes(data: Any, graph: TypedGraph) -> bool:
    """Returns whether edges have attributes, in a ``Data``, ``HeteroData`` or a pair of stores."""
    if isinstance(data, (Data, HeteroData)):
        return any(
            store.is_edge_attr(key) for store in data.edge_stores for key in store if key not in TOPOLOGY
        )
    groups = AttributeGroups(data[0], graph)
    return any(groups.of(attr).is_edge for attr in data[0].get_all_tensor_attrs())
