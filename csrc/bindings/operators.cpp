// The table of operators: name, schema and implementation. The wrappers in pyg_batchgnn/ops/
// document arguments and results.

#include "bindings/operators.h"

#include <string_view>

namespace pyg_batchgnn {
namespace {

struct Operator {
  const char* name;
  const char* schema;
  void (*boxed)(StableIValue*, uint64_t, uint64_t);

  // Torch chooses a kernel by the device of the tensor arguments. Lists do not count: one may be
  // empty.
  constexpr bool takes_tensor() const {
    const std::string_view text = schema;
    const std::string_view arguments = text.substr(0, text.find("->"));
    for (const std::string_view tensor : {"Tensor ", "Tensor(", "Tensor? "}) {
      if (arguments.find(tensor) != std::string_view::npos) return true;
    }
    return false;
  }
};

#define OPERATOR(name, signature) {#name, #name signature, TORCH_BOX(&operators::name)}

constexpr Operator kOperators[] = {
    // Graphs
    OPERATOR(build_csc,
             "(Tensor edge_index, int num_nodes) -> (Tensor indptr, Tensor indices, Tensor edge_ids)"),
    OPERATOR(extent, "(Tensor values, int threads) -> (int low, int high)"),
    OPERATOR(is_ascending, "(Tensor values) -> bool"),
    OPERATOR(sum_lists, "(Tensor indptr, Tensor values) -> Tensor"),
    OPERATOR(gather_rows, "(Tensor table, Tensor index, int threads) -> Tensor"),
    OPERATOR(put_rows, "(Tensor table, Tensor? index, Tensor(a!) out, int threads) -> ()"),
    OPERATOR(unique_nodes, "(Tensor[] nodes, int num_nodes) -> (Tensor unique, Tensor[] rows)"),
    OPERATOR(count_unique_nodes, "(Tensor[] nodes, int num_nodes) -> int"),
    // Partitioning
    OPERATOR(group_by_owner, "(Tensor owner, int groups) -> (Tensor order, Tensor counts)"),
    OPERATOR(group_by_range, "(Tensor values, Tensor bounds) -> (Tensor order, Tensor counts)"),
    OPERATOR(count_values_, "(Tensor values, int first, Tensor(a!) counts) -> bool"),
    OPERATOR(place_edges_,
             "(Tensor edges, int first, Tensor(a!) cursor, Tensor(b!) indices, Tensor(c!) edge_ids) -> "
             "bool"),
    OPERATOR(assign_nodes_,
             "(Tensor indptr, Tensor indices, int first, Tensor weight, Tensor(a!) owner, Tensor found, int "
             "begin, int end, Tensor(b!) load, Tensor limit, bool fennel, bool mend, float alpha, int step, "
             "int key) -> ()"),
    // Multilevel partitioning
    OPERATOR(append_neighbours_,
             "(Tensor rows, int first, Tensor(a!) cursor, Tensor(b!) ids, Tensor(c!)? weights) -> bool"),
    OPERATOR(
        merge_neighbours,
        "(Tensor indptr, Tensor(a!) ids, Tensor(b!)? weights, int first) -> (Tensor indptr_, Tensor ids_, "
        "Tensor weights_, int uniform)"),
    OPERATOR(number_ghosts_,
             "(Tensor ids, int first, int nodes, int total, Tensor(a!) local) -> Tensor ghosts"),
    OPERATOR(cluster_nodes_,
             "(Tensor indptr, Tensor indices, Tensor? edge_weight, Tensor node_weight, Tensor(a!) label, "
             "Tensor(b!) room, int key, int first, bool together) -> int"),
    OPERATOR(contract_clusters,
             "(Tensor indptr, Tensor indices, Tensor? edge_weight, Tensor node_weight, Tensor label, Tensor "
             "start, Tensor? member, int begin, int end) -> Tensor"),
    OPERATOR(improve_parts_,
             "(Tensor indptr, Tensor indices, Tensor? edge_weight, Tensor node_weight, Tensor(a!) part, "
             "Tensor(b!) room, Tensor unit, int key) -> ()"),
    OPERATOR(solve_partition,
             "(Tensor indptr, Tensor indices, Tensor? edge_weight, Tensor node_weight, int parts, Tensor "
             "limit, int key) -> (Tensor part, int cut, float excess)"),
    // Sampling
    OPERATOR(sampled_graph,
             "(int[] num_nodes, Tensor[] indptr, Tensor[] indices, Tensor[] edge_ids, int[] source, int[] "
             "target, int[] digest, Tensor[] order, Tensor[] weights) -> Tensor"),
    OPERATOR(sample,
             "(Tensor graph, Tensor seeds, Tensor seed_ptr, Tensor keys, Tensor? example, Tensor? time, "
             "Tensor? excluded, int hops, int[] fanouts, Tensor? shares, bool replace, bool return_edge, "
             "bool last, int window, bool induced, bool coo, int seed, int epoch, int threads) -> "
             "(Tensor[] arrays, Tensor counts)"),
    OPERATOR(sample_hgt,
             "(Tensor graph, Tensor seeds, Tensor seed_ptr, Tensor keys, int hops, int[] samples, int[] "
             "type_digest, int cap, bool return_edge, bool coo, int seed, int epoch, int threads) -> "
             "(Tensor[] arrays, Tensor counts)"),
    OPERATOR(keyed_permutation, "(int n, int seed, int epoch) -> Tensor"),
    OPERATOR(minibatch_key, "(Tensor seeds) -> int"),
    OPERATOR(relay_begin,
             "(Tensor seeds, Tensor seed_ptr, Tensor keys, Tensor? example, Tensor? time, Tensor? excluded, "
             "int[] offsets, int types, int rank, int[] source, int[] target, int[] num_edges, bool wide, "
             "bool disjoint, bool timed, bool excluding, int hops, int[] fanouts, Tensor? shares, bool "
             "replace, bool return_edge, bool "
             "last, int window, bool induced, bool coo, int seed, int epoch) -> Tensor"),
    OPERATOR(relay_ask,
             "(Tensor(a!) state, int threads) -> (Tensor words, int[] counts, int[] nodes, Tensor own)"),
    OPERATOR(relay_answer,
             "(Tensor graph, Tensor node, int first, int all_nodes, int[] num_edges, Tensor requests, int[] "
             "words_of, bool disjoint, bool timed, bool excluding, int hop, int hops, int[] fanouts, Tensor? "
             "shares, bool replace, bool return_edge, bool last, int window, bool induced, int threads) -> "
             "(Tensor words, int[] counts, int[] picks, int[] fault)"),
    OPERATOR(relay_merge,
             "(Tensor(a!) state, Tensor own, Tensor answers, int[] words_of, int threads) -> (int error, "
             "int peer, int value)"),
    OPERATOR(relay_take, "(Tensor(a!) state) -> (Tensor[] arrays, Tensor counts)"),
    // Historical embeddings
    OPERATOR(history_search,
             "(Tensor slot, Tensor named, Tensor links, Tensor ends, Tensor node, int since, int threads) -> "
             "Tensor"),
    OPERATOR(history_store_,
             "(Tensor(a!) slot, Tensor(b!) named, Tensor(c!) links, Tensor(d!) ends, Tensor node, Tensor "
             "step) -> Tensor"),
    OPERATOR(history_lines, "(Tensor slot, Tensor named, Tensor links, Tensor ends) -> Tensor"),
    OPERATOR(history_put_, "(Tensor(a!) table, Tensor line, Tensor rows, int threads) -> ()"),
    OPERATOR(history_layer,
             "(Tensor indptr, Tensor source, Tensor cached, int targets, int own_nodes, int own_rows, int "
             "threads) -> (Tensor indptr, Tensor source, Tensor place)"),
    OPERATOR(history_choose,
             "(Tensor ptr, Tensor peer, Tensor degree, Tensor row, Tensor name, int peers, int most, int "
             "key, int threads) -> (Tensor place, int[] counts, int[] candidates)"),
    // Normalisation and activation
    OPERATOR(batch_norm,
             "(Tensor x, Tensor? weight, Tensor? bias, Tensor? mean, Tensor? variance, float eps, bool "
             "relu, int threads) -> (Tensor y, Tensor mean, Tensor variance)"),
    OPERATOR(batch_norm_grads,
             "(Tensor grad, Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor variance, float "
             "eps, bool relu, bool own_statistics, int threads) -> (Tensor x, Tensor weight, Tensor bias)"),
    OPERATOR(batch_norm_grad_columns,
             "(Tensor grad, Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor variance, Tensor? "
             "sums, float eps, bool relu, int threads) -> (Tensor columns, Tensor weight, Tensor bias)"),
    OPERATOR(batch_norm_columns,
             "(Tensor? weight, Tensor? bias, Tensor mean, Tensor variance, float eps) -> Tensor"),
    OPERATOR(activate_,
             "(Tensor(a!) x, bool relu, float drop, int key, Tensor? node, int threads) -> Tensor"),
    OPERATOR(mask_grad, "(Tensor grad, Tensor mask, float scale, int threads) -> Tensor"),
    // Aggregation
    OPERATOR(aggregate,
             "(Tensor x, Tensor indptr, Tensor indices, Tensor? row, Tensor? edge_weight, Tensor? edge, "
             "Tensor? source_scale, Tensor? target_scale, Tensor? self_input, Tensor? self_scale, Tensor[] "
             "by_source, int num_targets, str reduce, ScalarType out_dtype, int threads) -> Tensor"),
    OPERATOR(aggregate_normed,
             "(Tensor x, Tensor columns, Tensor indptr, Tensor indices, Tensor self_scale, int "
             "num_targets, ScalarType out_dtype, int threads) -> Tensor"),
    OPERATOR(aggregate_normed_grads,
             "(Tensor grad, Tensor source_ptr, Tensor targets, Tensor self_scale, Tensor x, Tensor "
             "columns, int threads) -> (Tensor values, Tensor sums)"),
    OPERATOR(aggregate_weight_grads,
             "(Tensor grad, Tensor x, Tensor indptr, Tensor indices, Tensor? row, Tensor? source_scale, "
             "Tensor? target_scale, bool mean, bool need_edge, int self_size, int threads) -> (Tensor "
             "edge, Tensor self)"),
    OPERATOR(aggregate_max_grads,
             "(Tensor grad, Tensor out, Tensor x, Tensor indptr, Tensor indices, Tensor source_ptr, Tensor "
             "targets, int threads) -> Tensor"),
    OPERATOR(transpose,
             "(Tensor indptr, Tensor indices, int num_targets, int num_sources, int threads) -> (Tensor "
             "ptr, Tensor targets, Tensor edge)"),
    OPERATOR(degree_scale,
             "(Tensor indptr, int num_nodes, int loops, bool root, ScalarType dtype) -> Tensor"),
    OPERATOR(count_self_loops, "(Tensor indptr, Tensor indices) -> int"),
    OPERATOR(drop_self_loops,
             "(Tensor indptr, Tensor indices) -> (Tensor indptr, Tensor indices, Tensor kept)"),
    // Dense layers
    OPERATOR(linear,
             "(Tensor[] inputs, Tensor?[] rows, Tensor[] weights, Tensor? bias, int num_rows, int groups, "
             "ScalarType out_dtype, bool relu, float drop, int key, Tensor? node, bool after_relu, int "
             "threads) -> (Tensor y, Tensor mask)"),
    OPERATOR(linear_moments,
             "(Tensor x, Tensor weight, Tensor? bias, ScalarType out_dtype, int threads) -> (Tensor y, "
             "Tensor mean, Tensor variance)"),
    OPERATOR(linear_grads,
             "(Tensor grad, Tensor mask, float scale, Tensor[] inputs, Tensor?[] rows, Tensor[] weights, "
             "Tensor? center, int groups, bool after_relu, bool[] need_input, bool need_weight, bool "
             "need_bias, int threads) -> (Tensor[] inputs, Tensor[] weights, Tensor bias)"),
    OPERATOR(linear_grads_normed,
             "(Tensor grad, Tensor normed, Tensor columns, bool relu, Tensor input, Tensor weight, bool "
             "after_relu, bool need_input, int threads) -> (Tensor input, Tensor weight)"),
    OPERATOR(linear_grads_before,
             "(Tensor grad, Tensor normed, Tensor columns, bool relu, Tensor hidden, Tensor weight, Tensor "
             "x, Tensor center, int threads) -> (Tensor weight, Tensor folded, Tensor shift)"),
    OPERATOR(fold_norm,
             "(Tensor x, Tensor weight, Tensor? scale, Tensor? shift, float eps, ScalarType compute, int "
             "threads) -> (Tensor weight, Tensor constant, Tensor mean, Tensor variance, Tensor center, "
             "Tensor spread)"),
    OPERATOR(fold_norm_grads,
             "(Tensor d_folded, Tensor weight, Tensor? scale, Tensor variance, Tensor spread, float eps) "
             "-> (Tensor weight, Tensor scale)"),
    // Attention
    OPERATOR(attention,
             "(Tensor x, Tensor? row, Tensor indptr, Tensor indices, Tensor source_weight, Tensor? "
             "target_weight, Tensor? target_logits, Tensor? edge_logits, Tensor? node, Tensor[] by_source, "
             "int num_targets, int num_loops, float negative_slope, float drop, int key, ScalarType "
             "out_dtype, int threads) -> (Tensor out, Tensor coefficient)"),
    OPERATOR(attention_grads,
             "(Tensor grad, Tensor? grad_coefficient, Tensor coefficient, Tensor x, Tensor? row, Tensor "
             "indptr, Tensor indices, Tensor source_weight, Tensor? target_weight, Tensor? node, Tensor[] "
             "by_source, int num_targets, int num_loops, float negative_slope, float drop, int key, bool "
             "need_edge_logits, int threads) -> (Tensor source_weight, Tensor target_weight, Tensor "
             "target_logits, Tensor edge_logits, Tensor x)"),
    OPERATOR(attention_keep,
             "(Tensor indptr, Tensor? node, int num_targets, int num_loops, int heads, float drop, int "
             "key) -> Tensor"),
    // Embedding tables
    OPERATOR(fill_uniform_, "(Tensor(a!) rows, Tensor node, int key, float bound, int threads) -> ()"),
    OPERATOR(gather_either, "(Tensor near, Tensor far, Tensor source, Tensor(a!) out, int threads) -> ()"),
    OPERATOR(update_rows_,
             "(Tensor(a!) weight, Tensor(b!) first, Tensor(c!) second, Tensor? frozen, Tensor row, Tensor "
             "ptr, Tensor source, Tensor near, Tensor[] far, Tensor far_ptr, Tensor share, int rank, int "
             "rule, Tensor numbers, int threads) -> ()"),
    // Memory and processor
    OPERATOR(empty_cache, "() -> ()"),
    OPERATOR(memory_stats, "() -> (int live, int cached, int peak, int system_calls)"),
    OPERATOR(reset_memory_peak, "() -> ()"),
    OPERATOR(advise_huge_pages, "(Tensor tensor) -> ()"),
    OPERATOR(empty_bytes, "(int bytes) -> Tensor"),
    OPERATOR(simd_level, "() -> int"),
    // Processes that share memory
    OPERATOR(announce_turn_, "(Tensor(a!) word, int turn) -> ()"),
    OPERATOR(wait_for_turns, "(Tensor[] words, int turn, float seconds) -> bool"),
};

#undef OPERATOR

void implement(torch::stable::detail::StableLibrary& library, bool takes_tensor) {
  for (const Operator& one : kOperators) {
    if (one.takes_tensor() == takes_tensor) library.impl(one.name, one.boxed);
  }
}

}  // namespace

STABLE_TORCH_LIBRARY(pyg_batchgnn, m) {
  for (const Operator& one : kOperators) m.def(one.schema);
}

STABLE_TORCH_LIBRARY_IMPL(pyg_batchgnn, CPU, m) { implement(m, true); }

// Operators without a tensor argument are registered for all devices.
STABLE_TORCH_LIBRARY_IMPL(pyg_batchgnn, CompositeExplicitAutograd, m) { implement(m, false); }

}  // namespace pyg_batchgnn
