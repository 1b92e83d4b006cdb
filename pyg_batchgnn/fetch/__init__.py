"""The fetchers, which bring attributes to the minibatches that need them."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.fetch.access import AccessString as AccessString
    from pyg_batchgnn.fetch.access import Unit as Unit
    from pyg_batchgnn.fetch.cache import CacheRequest as CacheRequest
    from pyg_batchgnn.fetch.cache import SeedShare as SeedShare
    from pyg_batchgnn.fetch.disk import DiskCounters as DiskCounters
    from pyg_batchgnn.fetch.disk import DiskRows as DiskRows
    from pyg_batchgnn.fetch.disk import Window as Window
    from pyg_batchgnn.fetch.fetcher import BlockFetcher as BlockFetcher
    from pyg_batchgnn.fetch.fetcher import Fetched as Fetched
    from pyg_batchgnn.fetch.fetcher import Fetcher as Fetcher
    from pyg_batchgnn.fetch.fetcher import FetchGroup as FetchGroup
    from pyg_batchgnn.fetch.fetcher import InPlaceFetcher as InPlaceFetcher
    from pyg_batchgnn.fetch.fetcher import as_table as as_table
    from pyg_batchgnn.fetch.fetcher import distinct_nodes as distinct_nodes
    from pyg_batchgnn.fetch.frequencies import Frequencies as Frequencies
    from pyg_batchgnn.fetch.remote import RemoteFetcher as RemoteFetcher
    from pyg_batchgnn.fetch.sweep import ENTRY_BYTES as ENTRY_BYTES
    from pyg_batchgnn.fetch.sweep import LIST_BYTES as LIST_BYTES
else:
    __getattr__ = late_names(__name__)
