"""The fetchers, which bring attributes to the minibatches that need them."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.fetch.access import AccessString, Unit
    from pyg_batchgnn.fetch.cache import CacheRequest, FeatureCache, SeedShare
    from pyg_batchgnn.fetch.disk import DiskCounters, DiskRows, UnitRows, Window
    from pyg_batchgnn.fetch.fetcher import (
        BlockFetcher,
        Fetched,
        Fetcher,
        FetchGroup,
        InPlaceFetcher,
        as_table,
        distinct_nodes,
    )
    from pyg_batchgnn.fetch.frequencies import Frequencies
    from pyg_batchgnn.fetch.remote import RemoteFetcher
    from pyg_batchgnn.fetch.sweep import ENTRY_BYTES, LIST_BYTES
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "ENTRY_BYTES",
    "LIST_BYTES",
    "AccessString",
    "BlockFetcher",
    "CacheRequest",
    "DiskCounters",
    "DiskRows",
    "FeatureCache",
    "FetchGroup",
    "Fetched",
    "Fetcher",
    "Frequencies",
    "InPlaceFetcher",
    "RemoteFetcher",
    "SeedShare",
    "Unit",
    "UnitRows",
    "Window",
    "as_table",
    "distinct_nodes",
]
