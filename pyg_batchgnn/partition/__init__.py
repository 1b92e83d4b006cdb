"""Who owns which node."""

from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.build import partition
from pyg_batchgnn.partition.part import Part, directory_slice, slice_size

__all__ = ["Part", "PartitionBook", "directory_slice", "partition", "slice_size"]
