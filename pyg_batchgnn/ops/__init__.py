"""The compiled operators, with their arguments checked before a kernel runs.

Kernels trust their arguments. A wrong shape, dtype, stride or range could make a kernel read or
write out of bounds, so all that users may give is checked here. The entries of an array are read
once: what was found is remembered until torch writes to the array, and arrays that kernels made are
known. Rooms that make all arrays of an operator themselves are trusted. Operators that layers and
samplers of one process do not call are imported when they are first used.
"""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names
from pyg_batchgnn.ops.aggregate import REDUCTIONS as REDUCTIONS
from pyg_batchgnn.ops.aggregate import SUMS as SUMS
from pyg_batchgnn.ops.aggregate import BySource as BySource
from pyg_batchgnn.ops.aggregate import aggregate as aggregate
from pyg_batchgnn.ops.aggregate import aggregate_with_targets as aggregate_with_targets
from pyg_batchgnn.ops.aggregate import first_rows as first_rows
from pyg_batchgnn.ops.aggregate import transpose as transpose
from pyg_batchgnn.ops.attention import Attention as Attention
from pyg_batchgnn.ops.attention import additive_attention as additive_attention
from pyg_batchgnn.ops.attention import attention as attention
from pyg_batchgnn.ops.attention import attention_key as attention_key
from pyg_batchgnn.ops.attention import attention_weights as attention_weights
from pyg_batchgnn.ops.attention import edge_sums as edge_sums
from pyg_batchgnn.ops.checks import FLOATS as FLOATS
from pyg_batchgnn.ops.checks import INTEGERS as INTEGERS
from pyg_batchgnn.ops.checks import MAP_IDS as MAP_IDS
from pyg_batchgnn.ops.checks import check_dense as check_dense
from pyg_batchgnn.ops.checks import check_drop as check_drop
from pyg_batchgnn.ops.checks import check_ids as check_ids
from pyg_batchgnn.ops.checks import check_matrix as check_matrix
from pyg_batchgnn.ops.checks import check_node_count as check_node_count
from pyg_batchgnn.ops.checks import check_range as check_range
from pyg_batchgnn.ops.checks import check_type as check_type
from pyg_batchgnn.ops.checks import check_vector as check_vector
from pyg_batchgnn.ops.checks import content_sums as content_sums
from pyg_batchgnn.ops.checks import dropout_scale as dropout_scale
from pyg_batchgnn.ops.checks import extent as extent
from pyg_batchgnn.ops.checks import fits_int32 as fits_int32
from pyg_batchgnn.ops.checks import id_dtype as id_dtype
from pyg_batchgnn.ops.checks import is_ascending as is_ascending
from pyg_batchgnn.ops.checks import is_transforming as is_transforming
from pyg_batchgnn.ops.checks import prefix as prefix
from pyg_batchgnn.ops.checks import too_many_nodes as too_many_nodes
from pyg_batchgnn.ops.checks import wide_dtype as wide_dtype
from pyg_batchgnn.ops.checks import with_article as with_article
from pyg_batchgnn.ops.graph import InEdges as InEdges
from pyg_batchgnn.ops.graph import OwnedEdges as OwnedEdges
from pyg_batchgnn.ops.graph import build_csc as build_csc
from pyg_batchgnn.ops.graph import count_unique_nodes as count_unique_nodes
from pyg_batchgnn.ops.graph import degree_scale as degree_scale
from pyg_batchgnn.ops.graph import drop_self_loops as drop_self_loops
from pyg_batchgnn.ops.graph import gather_rows as gather_rows
from pyg_batchgnn.ops.graph import list_unique_nodes as list_unique_nodes
from pyg_batchgnn.ops.graph import put_rows as put_rows
from pyg_batchgnn.ops.graph import sum_lists as sum_lists
from pyg_batchgnn.ops.graph import unique_nodes as unique_nodes
from pyg_batchgnn.ops.history import NO_LINE as NO_LINE
from pyg_batchgnn.ops.history import HaloPeers as HaloPeers
from pyg_batchgnn.ops.history import LineTable as LineTable
from pyg_batchgnn.ops.history import choose_pushed as choose_pushed
from pyg_batchgnn.ops.history import halo_layer as halo_layer
from pyg_batchgnn.ops.history import put_lines as put_lines
from pyg_batchgnn.ops.keys import WordStreams as WordStreams
from pyg_batchgnn.ops.keys import digest_text as digest_text
from pyg_batchgnn.ops.keys import drawn_key as drawn_key
from pyg_batchgnn.ops.keys import dropout_key as dropout_key
from pyg_batchgnn.ops.keys import fold_key as fold_key
from pyg_batchgnn.ops.keys import keyed_permutation as keyed_permutation
from pyg_batchgnn.ops.keys import minibatch_key as minibatch_key
from pyg_batchgnn.ops.keys import names_key as names_key
from pyg_batchgnn.ops.keys import part_key as part_key
from pyg_batchgnn.ops.library import first_order as first_order
from pyg_batchgnn.ops.library import simd_level as simd_level
from pyg_batchgnn.ops.library import thread_limit as thread_limit
from pyg_batchgnn.ops.library import to_signed as to_signed
from pyg_batchgnn.ops.linear import ProductsName as ProductsName
from pyg_batchgnn.ops.linear import bfloat16_level as bfloat16_level
from pyg_batchgnn.ops.linear import bfloat16_levels as bfloat16_levels
from pyg_batchgnn.ops.linear import compute_dtype as compute_dtype
from pyg_batchgnn.ops.linear import current_products as current_products
from pyg_batchgnn.ops.linear import linear as linear
from pyg_batchgnn.ops.linear import set_bfloat16_level as set_bfloat16_level
from pyg_batchgnn.ops.linear import set_products as set_products
from pyg_batchgnn.ops.linear_norm import linear_norm as linear_norm
from pyg_batchgnn.ops.memory import Turns as Turns
from pyg_batchgnn.ops.memory import advise_huge_pages as advise_huge_pages
from pyg_batchgnn.ops.memory import check_budget as check_budget
from pyg_batchgnn.ops.memory import empty as empty
from pyg_batchgnn.ops.memory import empty_cache as empty_cache
from pyg_batchgnn.ops.memory import free_bytes as free_bytes
from pyg_batchgnn.ops.memory import memory_stats as memory_stats
from pyg_batchgnn.ops.memory import number_of_bytes as number_of_bytes
from pyg_batchgnn.ops.memory import parse_bytes as parse_bytes
from pyg_batchgnn.ops.memory import reset_peak as reset_peak
from pyg_batchgnn.ops.norm import activate as activate
from pyg_batchgnn.ops.norm import batch_norm as batch_norm
from pyg_batchgnn.ops.norm import layer_norm as layer_norm
from pyg_batchgnn.ops.quantized import DECODED as DECODED
from pyg_batchgnn.ops.quantized import QuantizedTensor as QuantizedTensor
from pyg_batchgnn.ops.quantized import as_stored as as_stored
from pyg_batchgnn.ops.quantized import decoded as decoded
from pyg_batchgnn.ops.quantized import rows_like as rows_like
from pyg_batchgnn.ops.sample import BudgetRules as BudgetRules
from pyg_batchgnn.ops.sample import SampledGraph as SampledGraph
from pyg_batchgnn.ops.sample import SampledSeeds as SampledSeeds
from pyg_batchgnn.ops.sample import SamplingRules as SamplingRules
from pyg_batchgnn.ops.sample import list_tokens as list_tokens
from pyg_batchgnn.ops.sample import sample as sample
from pyg_batchgnn.ops.sample import sample_by_budgets as sample_by_budgets

if TYPE_CHECKING:
    from pyg_batchgnn.ops.disk import NEVER as NEVER
    from pyg_batchgnn.ops.disk import NO_SLOT as NO_SLOT
    from pyg_batchgnn.ops.disk import ReadRows as ReadRows
    from pyg_batchgnn.ops.disk import Requests as Requests
    from pyg_batchgnn.ops.disk import RowFile as RowFile
    from pyg_batchgnn.ops.disk import RowStates as RowStates
    from pyg_batchgnn.ops.disk import RunRule as RunRule
    from pyg_batchgnn.ops.disk import SweepReading as SweepReading
    from pyg_batchgnn.ops.disk import count_operations as count_operations
    from pyg_batchgnn.ops.disk import direct_block as direct_block
    from pyg_batchgnn.ops.disk import lease_rows as lease_rows
    from pyg_batchgnn.ops.disk import move_rows as move_rows
    from pyg_batchgnn.ops.disk import next_uses as next_uses
    from pyg_batchgnn.ops.disk import note_use as note_use
    from pyg_batchgnn.ops.disk import read_rows as read_rows
    from pyg_batchgnn.ops.embedding import ROW_DTYPES as ROW_DTYPES
    from pyg_batchgnn.ops.embedding import RowChanges as RowChanges
    from pyg_batchgnn.ops.embedding import RowGradients as RowGradients
    from pyg_batchgnn.ops.embedding import RowRule as RowRule
    from pyg_batchgnn.ops.embedding import RowStep as RowStep
    from pyg_batchgnn.ops.embedding import RowTable as RowTable
    from pyg_batchgnn.ops.embedding import fill_uniform as fill_uniform
    from pyg_batchgnn.ops.embedding import gather_either as gather_either
    from pyg_batchgnn.ops.embedding import update_rows as update_rows
    from pyg_batchgnn.ops.multilevel import MergedLists as MergedLists
    from pyg_batchgnn.ops.multilevel import WeightedGraph as WeightedGraph
    from pyg_batchgnn.ops.multilevel import append_neighbours as append_neighbours
    from pyg_batchgnn.ops.multilevel import cluster_nodes as cluster_nodes
    from pyg_batchgnn.ops.multilevel import contract_clusters as contract_clusters
    from pyg_batchgnn.ops.multilevel import improve_parts as improve_parts
    from pyg_batchgnn.ops.multilevel import merge_neighbours as merge_neighbours
    from pyg_batchgnn.ops.multilevel import number_ghosts as number_ghosts
    from pyg_batchgnn.ops.multilevel import solve_partition as solve_partition
    from pyg_batchgnn.ops.partition import UNASSIGNED as UNASSIGNED
    from pyg_batchgnn.ops.partition import StreamRules as StreamRules
    from pyg_batchgnn.ops.partition import assign_nodes as assign_nodes
    from pyg_batchgnn.ops.partition import count_values as count_values
    from pyg_batchgnn.ops.partition import group_by_owner as group_by_owner
    from pyg_batchgnn.ops.partition import group_by_range as group_by_range
    from pyg_batchgnn.ops.partition import place_edges as place_edges
    from pyg_batchgnn.ops.relay import OpenSection as OpenSection
    from pyg_batchgnn.ops.relay import OwnedGraph as OwnedGraph
    from pyg_batchgnn.ops.relay import QuestionForm as QuestionForm
    from pyg_batchgnn.ops.relay import Relay as Relay
    from pyg_batchgnn.ops.relay import RelayAnswers as RelayAnswers
    from pyg_batchgnn.ops.relay import RelayBook as RelayBook
    from pyg_batchgnn.ops.relay import RelayFault as RelayFault
    from pyg_batchgnn.ops.relay import RelayQuestions as RelayQuestions
    from pyg_batchgnn.ops.relay import WireError as WireError
    from pyg_batchgnn.ops.relay import relay_answer as relay_answer
    from pyg_batchgnn.ops.relay import relay_answer_open as relay_answer_open
else:
    __getattr__ = late_names(__name__)
