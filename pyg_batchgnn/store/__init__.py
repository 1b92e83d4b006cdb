"""The graph and the attributes that a process holds."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.store.directory import SlicedTables as SlicedTables
    from pyg_batchgnn.store.directory import ask as ask
    from pyg_batchgnn.store.directory import directory_tables as directory_tables
    from pyg_batchgnn.store.directory import even_bounds as even_bounds
    from pyg_batchgnn.store.directory import internal_ids as internal_ids
    from pyg_batchgnn.store.dist_features import EDGE_TYPE as EDGE_TYPE
    from pyg_batchgnn.store.dist_features import DistFeatureStore as DistFeatureStore
    from pyg_batchgnn.store.dist_graph import DistGraphStore as DistGraphStore
    from pyg_batchgnn.store.dist_graph import own_edges as own_edges
    from pyg_batchgnn.store.graph import CscGraph as CscGraph
    from pyg_batchgnn.store.graph import TypedGraph as TypedGraph
    from pyg_batchgnn.store.graph import reversed_graph as reversed_graph
    from pyg_batchgnn.store.graph import reversed_group as reversed_group
    from pyg_batchgnn.store.graph import reversed_relation as reversed_relation
    from pyg_batchgnn.store.hybrid import HybridTopology as HybridTopology
    from pyg_batchgnn.store.hybrid import replicate_attribute as replicate_attribute
    from pyg_batchgnn.store.hybrid import replicate_topology as replicate_topology
    from pyg_batchgnn.store.node_order import NodeOrder as NodeOrder
    from pyg_batchgnn.store.node_order import first_times_of_part as first_times_of_part
    from pyg_batchgnn.store.part_times import OwnRowFinder as OwnRowFinder
    from pyg_batchgnn.store.part_times import OwnRows as OwnRows
    from pyg_batchgnn.store.part_times import PartTimes as PartTimes
    from pyg_batchgnn.store.part_times import SeedTimes as SeedTimes
    from pyg_batchgnn.store.part_times import SortedNodes as SortedNodes
    from pyg_batchgnn.store.part_times import own_sums as own_sums
    from pyg_batchgnn.store.pyg import AttributeGroups as AttributeGroups
    from pyg_batchgnn.store.pyg import attribute_by_group as attribute_by_group
    from pyg_batchgnn.store.pyg import graph_from_pyg as graph_from_pyg
    from pyg_batchgnn.store.pyg import is_typed as is_typed
    from pyg_batchgnn.store.pyg import typed_graph_from_pyg as typed_graph_from_pyg
    from pyg_batchgnn.store.pyg import weight_by_group as weight_by_group
    from pyg_batchgnn.store.row_reader import RowReader as RowReader
    from pyg_batchgnn.store.shard import Columns as Columns
    from pyg_batchgnn.store.shard import RowBlock as RowBlock
    from pyg_batchgnn.store.shard import RowFormat as RowFormat
    from pyg_batchgnn.store.shard import RowRequest as RowRequest
    from pyg_batchgnn.store.time_order import TimeOrder as TimeOrder
    from pyg_batchgnn.store.time_order import WeightSums as WeightSums
    from pyg_batchgnn.store.times import Sortedness as Sortedness
    from pyg_batchgnn.store.times import TimeLevel as TimeLevel
    from pyg_batchgnn.store.times import Times as Times
    from pyg_batchgnn.store.times import first_times as first_times
    from pyg_batchgnn.store.times import sum_weights as sum_weights
else:
    __getattr__ = late_names(__name__)
