"""The compiled operators, with their arguments checked before a kernel runs.

Kernels trust their arguments. A wrong shape, dtype, stride or range could make a kernel read or
write out of bounds, so all of these are checked here. The entries of an array are read once: what
was found is remembered until torch writes to the array, and arrays that kernels made are known.
"""

from pyg_batchgnn.ops.activation import activate, check_drop, dropout_scale, mask_grad
from pyg_batchgnn.ops.aggregate import aggregate
from pyg_batchgnn.ops.aggregate_normed import aggregate_normed
from pyg_batchgnn.ops.aggregate_with_targets import WithTargets, aggregate_with_targets
from pyg_batchgnn.ops.attention import Attention, attention, attention_key, attention_weights
from pyg_batchgnn.ops.by_source import BySource, transpose
from pyg_batchgnn.ops.checks import (
    INTEGERS,
    MAP_IDS,
    MOST_NODES,
    check_dense,
    check_ids,
    check_indptr,
    check_matrix,
    check_node_count,
    check_range,
    check_vector,
    extent,
    fits_int32,
    id_dtype,
    is_ascending,
    too_many_nodes,
)
from pyg_batchgnn.ops.embedding import (
    ROW_DTYPES,
    RowChanges,
    RowGradients,
    RowRule,
    RowStep,
    RowTable,
    fill_uniform,
    gather_either,
    update_rows,
)
from pyg_batchgnn.ops.first_order import first_order
from pyg_batchgnn.ops.first_rows import first_rows
from pyg_batchgnn.ops.folded_norm import Hidden
from pyg_batchgnn.ops.gradient_sums import GradientSums
from pyg_batchgnn.ops.graph import (
    build_csc,
    count_unique_nodes,
    gather_rows,
    put_rows,
    sum_lists,
    unique_nodes,
)
from pyg_batchgnn.ops.hgt import BudgetRules, sample_by_budgets
from pyg_batchgnn.ops.history import (
    NO_LINE,
    HaloPeers,
    LineTable,
    PushedNodes,
    choose_pushed,
    halo_layer,
    put_lines,
)
from pyg_batchgnn.ops.in_edges import InEdges, OwnedEdges
from pyg_batchgnn.ops.keys import (
    digest_text,
    drawn_key,
    dropout_key,
    fold_key,
    keyed_permutation,
    minibatch_key,
    names_key,
    part_key,
)
from pyg_batchgnn.ops.known import content_sums, prefix
from pyg_batchgnn.ops.library import simd_level, to_signed
from pyg_batchgnn.ops.linear import LinearInput, RowsOfTable, linear
from pyg_batchgnn.ops.linear_norm import (
    LinearNorm,
    LinearNormHidden,
    LinearNormOnRead,
    linear_norm,
    linear_norm_hidden,
    linear_norm_on_read,
)
from pyg_batchgnn.ops.memory import (
    MemoryStats,
    advise_huge_pages,
    empty,
    empty_cache,
    memory_stats,
    reset_peak,
)
from pyg_batchgnn.ops.multilevel import (
    SolvedPartition,
    WeightedGraph,
    cluster_nodes,
    contract_clusters,
    improve_parts,
    solve_partition,
)
from pyg_batchgnn.ops.neighbour_lists import (
    MergedLists,
    append_neighbours,
    merge_neighbours,
    number_ghosts,
)
from pyg_batchgnn.ops.norm import BatchNormResult, batch_norm
from pyg_batchgnn.ops.partition import (
    UNASSIGNED,
    StreamRules,
    assign_nodes,
    count_values,
    group_by_owner,
    group_by_range,
    place_edges,
)
from pyg_batchgnn.ops.precision import compute_dtype
from pyg_batchgnn.ops.products import ProductsName, current_products, set_products
from pyg_batchgnn.ops.relay import (
    QuestionForm,
    Relay,
    RelayAnswers,
    RelayFault,
    RelayQuestions,
    WireError,
    relay_answer,
)
from pyg_batchgnn.ops.relay_graph import OwnedGraph, RelayBook
from pyg_batchgnn.ops.sample import SampledGraph, SampledSeeds, SamplingRules, sample
from pyg_batchgnn.ops.self_loops import LoopFree, degree_scale, drop_self_loops
from pyg_batchgnn.ops.transforms import is_transforming
from pyg_batchgnn.ops.turns import Turns
from pyg_batchgnn.ops.types import check_type, with_article
from pyg_batchgnn.ops.words import WordStreams

__all__ = [
    "INTEGERS",
    "MAP_IDS",
    "MOST_NODES",
    "NO_LINE",
    "ROW_DTYPES",
    "UNASSIGNED",
    "Attention",
    "BatchNormResult",
    "BudgetRules",
    "BySource",
    "GradientSums",
    "HaloPeers",
    "Hidden",
    "InEdges",
    "LineTable",
    "LinearInput",
    "LinearNorm",
    "LinearNormHidden",
    "LinearNormOnRead",
    "LoopFree",
    "MemoryStats",
    "MergedLists",
    "OwnedEdges",
    "OwnedGraph",
    "ProductsName",
    "PushedNodes",
    "QuestionForm",
    "Relay",
    "RelayAnswers",
    "RelayBook",
    "RelayFault",
    "RelayQuestions",
    "RowChanges",
    "RowGradients",
    "RowRule",
    "RowStep",
    "RowTable",
    "RowsOfTable",
    "SampledGraph",
    "SampledSeeds",
    "SamplingRules",
    "SolvedPartition",
    "StreamRules",
    "Turns",
    "WeightedGraph",
    "WireError",
    "WithTargets",
    "WordStreams",
    "activate",
    "advise_huge_pages",
    "aggregate",
    "aggregate_normed",
    "aggregate_with_targets",
    "append_neighbours",
    "assign_nodes",
    "attention",
    "attention_key",
    "attention_weights",
    "batch_norm",
    "build_csc",
    "check_dense",
    "check_drop",
    "check_ids",
    "check_indptr",
    "check_matrix",
    "check_node_count",
    "check_range",
    "check_type",
    "check_vector",
    "choose_pushed",
    "cluster_nodes",
    "compute_dtype",
    "content_sums",
    "contract_clusters",
    "count_unique_nodes",
    "count_values",
    "current_products",
    "degree_scale",
    "digest_text",
    "drawn_key",
    "drop_self_loops",
    "dropout_key",
    "dropout_scale",
    "empty",
    "empty_cache",
    "extent",
    "fill_uniform",
    "first_order",
    "first_rows",
    "fits_int32",
    "fold_key",
    "gather_either",
    "gather_rows",
    "group_by_owner",
    "group_by_range",
    "halo_layer",
    "id_dtype",
    "improve_parts",
    "is_ascending",
    "is_transforming",
    "keyed_permutation",
    "linear",
    "linear_norm",
    "linear_norm_hidden",
    "linear_norm_on_read",
    "mask_grad",
    "memory_stats",
    "merge_neighbours",
    "minibatch_key",
    "names_key",
    "number_ghosts",
    "part_key",
    "place_edges",
    "prefix",
    "put_lines",
    "put_rows",
    "relay_answer",
    "reset_peak",
    "sample",
    "sample_by_budgets",
    "set_products",
    "simd_level",
    "solve_partition",
    "sum_lists",
    "to_signed",
    "too_many_nodes",
    "transpose",
    "unique_nodes",
    "update_rows",
    "with_article",
]
