"""How attributes reach the minibatches that need them."""

from pyg_batchgnn.fetch.group import Fetch, fetch_group

__all__ = ["Fetch", "fetch_group"]
