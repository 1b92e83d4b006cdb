"""How attributes reach the minibatches that need them."""

from pyg_batchgnn.fetch.cache import CacheRequest, FeatureCache
from pyg_batchgnn.fetch.group import Fetch, fetch_group
from pyg_batchgnn.fetch.in_place import as_table, point_into
from pyg_batchgnn.fetch.inclusion import SeedShare
from pyg_batchgnn.fetch.mapped import is_mapped
from pyg_batchgnn.fetch.remote import Fetched, RemoteFetch

__all__ = [
    "CacheRequest",
    "FeatureCache",
    "Fetch",
    "Fetched",
    "RemoteFetch",
    "SeedShare",
    "as_table",
    "fetch_group",
    "is_mapped",
    "point_into",
]
