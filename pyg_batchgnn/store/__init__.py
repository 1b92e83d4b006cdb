"""The graph and the attributes that a process holds."""

from pyg_batchgnn.store.attribute_groups import AttributeGroups
from pyg_batchgnn.store.backward import edge_list, reversed_graph, reversed_group, reversed_relation
from pyg_batchgnn.store.directory import directory_tables, internal_ids
from pyg_batchgnn.store.dist_features import DistFeatureStore
from pyg_batchgnn.store.dist_graph import DistGraphStore
from pyg_batchgnn.store.edges_of_part import OwnEdges, own_edges
from pyg_batchgnn.store.existence import first_times
from pyg_batchgnn.store.graph import CscGraph
from pyg_batchgnn.store.hybrid import HybridTopology, replicate_topology
from pyg_batchgnn.store.hybrid_attributes import replicate_attribute
from pyg_batchgnn.store.node_order import NodeOrder
from pyg_batchgnn.store.own_rows import OwnRowFinder, OwnRows, SortedNodes
from pyg_batchgnn.store.part_times import PartTimes, SeedTimes
from pyg_batchgnn.store.part_weights import own_sums
from pyg_batchgnn.store.pyg import graph_from_pyg, is_typed, typed_graph_from_pyg
from pyg_batchgnn.store.pyg_attributes import attribute_by_group, weight_by_group
from pyg_batchgnn.store.row_format import RowBlock, RowFormat
from pyg_batchgnn.store.row_reader import RowReader, Rows
from pyg_batchgnn.store.row_request import Columns, RowRequest
from pyg_batchgnn.store.shard import LocalShard
from pyg_batchgnn.store.slices import SlicedTables, Slices, ask, even_bounds
from pyg_batchgnn.store.spread_existence import first_times_of_part
from pyg_batchgnn.store.tensor_attr import EDGE_TYPE, group_name, group_of
from pyg_batchgnn.store.time_order import TimeOrder
from pyg_batchgnn.store.times import Sortedness, TimeLevel, Times
from pyg_batchgnn.store.typed_graph import TypedGraph
from pyg_batchgnn.store.weight_sums import WeightSums
from pyg_batchgnn.store.weights import sum_weights

__all__ = [
    "EDGE_TYPE",
    "AttributeGroups",
    "Columns",
    "CscGraph",
    "DistFeatureStore",
    "DistGraphStore",
    "HybridTopology",
    "LocalShard",
    "NodeOrder",
    "OwnEdges",
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
    "Slices",
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
    "edge_list",
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
