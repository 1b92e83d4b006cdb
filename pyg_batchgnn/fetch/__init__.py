"""The fetchers, which bring attributes to the minibatches that need them."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.fetch.cache import CacheRequest, FeatureCache, SeedShare
    from pyg_batchgnn.fetch.fetcher import (
        BlockFetcher,
        Fetched,
        Fetcher,
        FetchGroup,
        InPlaceFetcher,
        as_table,
    )
    from pyg_batchgnn.fetch.remote import RemoteFetcher
else:
    __getattr__ = late_names(__name__)

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
    "as_table",
]
