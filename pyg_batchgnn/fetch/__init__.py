"""The fetchers, which bring attributes to the minibatches that need them."""

from pyg_batchgnn.fetch.block import BlockFetcher
from pyg_batchgnn.fetch.cache import FeatureCache
from pyg_batchgnn.fetch.choice import CacheRequest
from pyg_batchgnn.fetch.fetcher import Fetched, Fetcher, FetchGroup
from pyg_batchgnn.fetch.in_place import InPlaceFetcher, as_table
from pyg_batchgnn.fetch.inclusion import SeedShare
from pyg_batchgnn.fetch.mapped import are_mapped, is_mapped
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
