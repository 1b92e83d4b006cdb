"""The arguments of loaders, checked: attributes, sizes, devices, and what does not go together."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch.utils.data import DataLoader
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.loader.schedule import ScheduleName
from pyg_batchgnn.ops import number_of_bytes
from pyg_batchgnn.sample import as_integer
from pyg_batchgnn.store import AttributeGroups, TypedGraph

if TYPE_CHECKING:
    from pyg_batchgnn.cache import AggregationCache
    from pyg_batchgnn.embed import Embedding
    from pyg_batchgnn.history import HistoricalCaches


class Features(enum.Enum):
    """The place where the attributes of a native batch lie."""

    AUTO = "auto"  # in place if all of them are in memory, else copied
    IN_PLACE = "in_place"  # the user's own tensors
    COPY = "copy"  # a block of the fetch group's distinct nodes


Size: TypeAlias = int | Literal["auto", "all"]
#: The places of the tables that batches on a device are made of.
PLACEMENTS = ("auto", "device", "host")


class Export(enum.Enum):
    """The form of the batches that a loader hands out."""

    PYG = "pyg"  # torch_geometric.data.Data, as NeighborLoader does
    NATIVE = "native"  # pyg_batchgnn.Minibatch, attributes in place or in the fetch group's block


def _number(unit: str, least: int) -> Any:
    """A field for an integer or None. With ``unit`` "bytes" a text such as "2GiB" is taken, too."""
    return field(default=None, metadata={"unit": unit, "least": least})


@dataclass(frozen=True)
class LoaderOptions:
    """The checked arguments that a loader has beside PyG's. All ranks must give the same values,
    except for the fields in `_OWN`."""

    macrobatch_size: Size = "auto"  # B; "all" of an epoch
    fetch_size: Size = "auto"  # F; "all" of a macrobatch
    memory_budget: int | None = _number("bytes", 1)  # None: a share of what is free at construction
    prefetch: int = field(default=0, metadata={"unit": "macrobatches", "least": 0})
    lookahead: int | None = _number("macrobatches", 1)
    threads: int | None = _number("threads", 1)
    export: Export = Export.PYG
    features: Features = Features.AUTO
    attributes: tuple[str, ...] | None = None
    feature_cache: int | None = _number("bytes", 0)
    aggregation_cache: AggregationCache | None = None
    embedding: Embedding | None = None
    history: HistoricalCaches | None = None
    device: torch.device | None = None
    feature_placement: str = "auto"
    device_cache: int | None = _number("bytes", 0)
    pinned_memory: int | None = _number("bytes", 0)
    seed: int | None = None  # the key of every random choice; None draws one
    schedule: ScheduleName | None = None
    tokens: int | None = _number("tokens", 1)

    @classmethod
    def of(cls, **given: Any) -> LoaderOptions:
        """Converts the fields from what users give: names, texts, integers of NumPy or torch."""
        return cls(**given)

    def __post_init__(self) -> None:
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        for one in fields(self):
            value = found[one.name]
            value = number_of_bytes(value) if one.metadata.get("unit") == "bytes" else value
            number = as_integer(value)
            found[one.name] = value if number is None else number
            if one.metadata and not (value is None is one.default):
                _check_number(one.name, found[one.name], **one.metadata)
        for name, kind in (("export", Export), ("features", Features)):
            found[name] = _choice(name, found[name], [member.value for member in kind], kind)
        _choice("feature_placement", self.feature_placement, PLACEMENTS)
        found["attributes"] = _names(self.attributes)
        found["schedule"] = ScheduleName.of(self.schedule)
        if self.seed is not None and as_integer(self.seed) is None:
            raise TypeError(f"seed must be an integer or None, got {self.seed!r}")
        for name in ("macrobatch_size", "fetch_size"):
            size = found[name]
            whole = isinstance(size, int) and not isinstance(size, bool) and size > 0
            if not whole and size not in ("auto", "all"):
                what = 'a positive number of minibatches, "all" or "auto"'
                raise ValueError(f"{name} must be {what}, got {size!r}")
        if self.device is not None:
            from pyg_batchgnn.device import checked_device

            found["device"] = checked_device(self.device)
        for name, value in found.items():
            object.__setattr__(self, name, value)
        raise_first(self._conflicts())

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Returns which of these attribute names native batches carry. Raises ValueError if the
        user asks for one that is not among them."""
        known = list(names)
        if self.attributes is None:
            return known
        if missing := [name for name in self.attributes if name not in known]:
            held = ", ".join(map(repr, known)) or "none"
            raise ValueError(
                f"data has no node attribute {missing[0]!r} and no edge attribute of this name; it has {held}"
            )
        return [name for name in known if name in self.attributes]

    def agreed(self) -> dict[str, Any]:
        """Returns the values that all ranks must share, for JSON."""
        cache = self.aggregation_cache
        return {
            **{one.name: getattr(self, one.name) for one in fields(self) if one.name not in _OWN},
            "export": self.export.value,
            "device": self.device is not None,
            "aggregation_cache": None if cache is None else cache.kind.value,
            "history": None if self.history is None else repr(self.history.settings),
        }

    def _conflicts(self) -> dict[str, Any]:
        b, f = self.macrobatch_size, self.fetch_size
        found = {
            f"fetch_size ({f}) must not exceed macrobatch_size ({b}): what is fetched was sampled": (
                isinstance(b, int) and isinstance(f, int) and f > b
            ),
            "an aggregation cache is for export='native': PyG's layers do not know of aggregates": (
                self.aggregation_cache is not None and self.export is Export.PYG
            ),
        }
        if self.device is None:
            for name in ("feature_placement", "device_cache", "pinned_memory"):
                value = getattr(self, name)
                text = f"{name}={value!r} is for batches on a device; say which, as in device='cuda'"
                found[text] = value not in (None, "auto")
            return found
        device = f"device={str(self.device)!r}: leave one of them out"
        return found | {
            f"embedding computes on the CPU; it does not go with {device}": self.embedding is not None,
            f"history is read on the CPU; it does not go with {device}": self.history is not None,
            "features='in_place' is for no device: feature_placement says where tables lie; leave it out": (
                self.features is Features.IN_PLACE
            ),
            "device_cache is not for feature_placement='device': leave one of them out": (
                self.device_cache and self.feature_placement == "device"
            ),
        }


#: Options that each rank may set for itself, or that are agreed upon before all others.
_OWN = {"memory_budget", "lookahead", "threads", "features", "embedding", "feature_placement"}
_OWN |= {"device_cache", "pinned_memory", "schedule"}


def raise_first(conflicts: Mapping[str, Any], end: str = "") -> None:
    """Raises ValueError with the first text whose condition is true. ``end``: of all texts."""
    for text, is_given in conflicts.items():
        if is_given:
            raise ValueError(text + end)


def _choice(name: str, given: Any, choices: Sequence[str], kind: Callable[[str], Any] = str) -> Any:
    given = given.value if isinstance(given, enum.Enum) else given
    if given not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {given!r}")
    return kind(given)


def _names(attributes: Any) -> tuple[str, ...] | None:
    if attributes is None:
        return None
    if isinstance(attributes, str) or not isinstance(attributes, Sequence):
        raise TypeError(f'attributes must be a list of names like ["x", "y"], got {attributes!r}')
    if wrong := [name for name in attributes if not isinstance(name, str)]:
        raise TypeError(f"attributes must be names, got {wrong[0]!r}")
    return tuple(attributes)


def _check_number(name: str, value: Any, unit: str, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer number of {unit}, got {value!r}")
    if not least <= value < 1 << 63:
        raise ValueError(f"{name} must be a number of {unit}, at least {least}, got {value}")


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


def has_edge_attributes(data: Any, graph: TypedGraph) -> bool:
    """Returns whether edges have attributes, in a ``Data``, ``HeteroData`` or a pair of stores."""
    if isinstance(data, (Data, HeteroData)):
        return any(
            store.is_edge_attr(key) for store in data.edge_stores for key in store if key not in TOPOLOGY
        )
    groups = AttributeGroups(data[0], graph)
    return any(groups.of(attr).is_edge for attr in data[0].get_all_tensor_attrs())
