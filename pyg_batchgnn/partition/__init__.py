"""Partitions a graph: policies, the partition book, and parts in memory and on disk."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.partition.book import PartitionBook as PartitionBook
    from pyg_batchgnn.partition.build import partition as partition
    from pyg_batchgnn.partition.build import partition_parts as partition_parts
    from pyg_batchgnn.partition.checks import with_files as with_files
    from pyg_batchgnn.partition.codes import quantize_partition as quantize_partition
    from pyg_batchgnn.partition.folder_meta import is_partition as is_partition
    from pyg_batchgnn.partition.folder_meta import part_name as part_name
    from pyg_batchgnn.partition.folder_meta import read_partition_meta as read_partition_meta
    from pyg_batchgnn.partition.limits import Load as Load
    from pyg_batchgnn.partition.load import load_partition as load_partition
    from pyg_batchgnn.partition.load import verify_partition as verify_partition
    from pyg_batchgnn.partition.move import node_values as node_values
    from pyg_batchgnn.partition.move import own_rounds as own_rounds
    from pyg_batchgnn.partition.move import send_rows as send_rows
    from pyg_batchgnn.partition.multilevel import has_metis as has_metis
    from pyg_batchgnn.partition.part import Part as Part
    from pyg_batchgnn.partition.part import directory_slice as directory_slice
    from pyg_batchgnn.partition.part import directory_slices as directory_slices
    from pyg_batchgnn.partition.part import slice_size as slice_size
    from pyg_batchgnn.partition.policy import Balanced as Balanced
    from pyg_batchgnn.partition.policy import Direct as Direct
    from pyg_batchgnn.partition.policy import Given as Given
    from pyg_batchgnn.partition.policy import Metis as Metis
    from pyg_batchgnn.partition.policy import Multilevel as Multilevel
    from pyg_batchgnn.partition.policy import Neighbours as Neighbours
    from pyg_batchgnn.partition.policy import Policy as Policy
    from pyg_batchgnn.partition.policy import PolicyLike as PolicyLike
    from pyg_batchgnn.partition.policy import Score as Score
    from pyg_batchgnn.partition.policy import Streaming as Streaming
    from pyg_batchgnn.partition.policy import StreamState as StreamState
    from pyg_batchgnn.partition.policy import TwoLevel as TwoLevel
    from pyg_batchgnn.partition.policy import as_policy as as_policy
    from pyg_batchgnn.partition.quality import PartCounts as PartCounts
    from pyg_batchgnn.partition.quality import PartitionReport as PartitionReport
    from pyg_batchgnn.partition.quality import plot_partition as plot_partition
    from pyg_batchgnn.partition.quality import report_partition as report_partition
    from pyg_batchgnn.partition.save import digest as digest
    from pyg_batchgnn.partition.save import refuse_existing as refuse_existing
    from pyg_batchgnn.partition.save import save_partition as save_partition
    from pyg_batchgnn.partition.save import save_together as save_together
    from pyg_batchgnn.partition.shared import allocate_on_host as allocate_on_host
    from pyg_batchgnn.partition.shared import share_arrays as share_arrays
    from pyg_batchgnn.partition.shared import share_attributes as share_attributes
    from pyg_batchgnn.partition.stream import random_owner as random_owner
else:
    __getattr__ = late_names(__name__)
