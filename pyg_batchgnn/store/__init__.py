"""The graph and the attributes that a process holds."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.store.directory import (
        SlicedTables,
        ask,
        directory_tables,
        even_bounds,
        internal_ids,
    )
    from pyg_batchgnn.store.dist_features import EDGE_TYPE, DistFeatureStore, group_name
    from pyg_batchgnn.store.dist_graph import DistGraphStore, own_edges
    from pyg_batchgnn.store.graph import (
        CscGraph,
        TypedGraph,
        reversed_graph,
        reversed_group,
        reversed_relation,
    )
    from pyg_batchgnn.store.hybrid import HybridTopology, replicate_attribute, replicate_topology
    from pyg_batchgnn.store.node_order import NodeOrder, first_times_of_part
    from pyg_batchgnn.store.part_times import (
        OwnRowFinder,
        OwnRows,
        PartTimes,
        SeedTimes,
        SortedNodes,
        own_sums,
    )
    from pyg_batchgnn.store.pyg import (
        AttributeGroups,
        attribute_by_group,
        graph_from_pyg,
        group_of,
        is_typed,
        typed_graph_from_pyg,
        weight_by_group,
    )
    from pyg_batchgnn.store.row_reader import RowReader, Rows
    from pyg_batchgnn.store.shard import Columns, RowBlock, RowFormat, RowRequest
    from pyg_batchgnn.store.time_order import TimeOrder, WeightSums
    from pyg_batchgnn.store.times import Sortedness, TimeLevel, Times, first_times, sum_weights
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "EDGE_TYPE",
    "AttributeGroups",
    "Columns",
    "CscGraph",
    "DistFeatureStore",
    "DistGraphStore",
    "HybridTopology",
    "NodeOrder",
    "OwnRowFinder",
    "OwnRows",
    "PartTimes",
    "RowBlock",
    "RowFormat",
    "RowReader",
    "RowRequest",
    "Rows",
    "SeedTimes",
    "SlicedTables",
    "SortedNodes",
    "Sortedness",
    "TimeLevel",
    "TimeOrder",
    "Times",
    "TypedGraph",
    "WeightSums",
    "ask",
    "attribute_by_group",
    "directory_tables",
    "even_bounds",
    "first_times",
    "first_times_of_part",
    "graph_from_pyg",
    "group_name",
    "group_of",
    "internal_ids",
    "is_typed",
    "own_edges",
    "own_sums",
    "replicate_attribute",
    "replicate_topology",
    "reversed_graph",
    "reversed_group",
    "reversed_relation",
    "sum_weights",
    "typed_graph_from_pyg",
    "weight_by_group",
]
