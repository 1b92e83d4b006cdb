"""The fetchers, which bring attributes to the minibatches that need them."""

from pyg_batchgnn.fetch.cache import CacheRequest, FeatureCache, SeedShare
from pyg_batchgnn.fetch.fetcher import (
    BlockFetcher,
    Fetched,
    Fetcher,
    FetchGroup,
    InPlaceFetcher,
    are_mapped,
    as_table,
    is_mapped,
)
from pyg_batchgnn.fetch.remote import RemoteFetcher

__all__ = [
    "BlockFetcher",
    "CacheRequest",
    "FeatureCache",
    "FetchGroup",
    "Fetched",
    "Fetcher",
    "InPlaceFetcher",
    "RemoteFetcher",
    "SeedShare",
    "are_mapped",
    "as_table",
    "is_mapped",
]
