"""Who owns which node."""

from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.build import partition
from pyg_batchgnn.partition.part import Part, directory_slice, slice_size
from pyg_batchgnn.partition.shared import ArraySpec, allocate_on_host, share_arrays, share_tables

__all__ = [
    "ArraySpec",
    "Part",
    "PartitionBook",
    "allocate_on_host",
    "directory_slice",
    "partition",
    "share_arrays",
    "share_tables",
    "slice_size",
]
