"""Partitions a graph: policies, the partition book, and parts in memory and on disk."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.partition.book import PartitionBook
    from pyg_batchgnn.partition.build import partition, partition_parts
    from pyg_batchgnn.partition.checks import with_files
    from pyg_batchgnn.partition.codes import quantize_partition
    from pyg_batchgnn.partition.folder_meta import is_partition, read_partition_meta
    from pyg_batchgnn.partition.limits import Load
    from pyg_batchgnn.partition.load import load_partition, verify_partition
    from pyg_batchgnn.partition.move import node_values, own_rounds, send_rows
    from pyg_batchgnn.partition.multilevel import has_metis
    from pyg_batchgnn.partition.part import Part, directory_slice, directory_slices, slice_size
    from pyg_batchgnn.partition.policy import (
        Balanced,
        Direct,
        Given,
        Metis,
        Multilevel,
        Neighbours,
        Policy,
        PolicyLike,
        Score,
        Streaming,
        StreamState,
        TwoLevel,
        as_policy,
    )
    from pyg_batchgnn.partition.quality import PartCounts, PartitionReport, plot_partition, report_partition
    from pyg_batchgnn.partition.save import digest, refuse_existing, save_partition
    from pyg_batchgnn.partition.shared import allocate_on_host, share_arrays, share_attributes
    from pyg_batchgnn.partition.stream import random_owner
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "Balanced",
    "Direct",
    "Given",
    "Load",
    "Metis",
    "Multilevel",
    "Neighbours",
    "Part",
    "PartCounts",
    "PartitionBook",
    "PartitionReport",
    "Policy",
    "PolicyLike",
    "Score",
    "StreamState",
    "Streaming",
    "TwoLevel",
    "allocate_on_host",
    "as_policy",
    "digest",
    "directory_slice",
    "directory_slices",
    "has_metis",
    "is_partition",
    "load_partition",
    "node_values",
    "own_rounds",
    "partition",
    "partition_parts",
    "plot_partition",
    "quantize_partition",
    "random_owner",
    "read_partition_meta",
    "refuse_existing",
    "report_partition",
    "save_partition",
    "send_rows",
    "share_arrays",
    "share_attributes",
    "slice_size",
    "verify_partition",
    "with_files",
]
