// Every operator's schema in one block. What the arguments mean stands in pyg_batchgnn/ops/, beside the
// checks.

#include "bindings/operators.h"

namespace pyg_batchgnn {

STABLE_TORCH_LIBRARY(pyg_batchgnn, m) {
  m.def("build_csc(Tensor edge_index, int num_nodes) -> (Tensor, Tensor, Tensor)");
  m.def("extent(Tensor values, int threads) -> (int, int)");
  m.def("is_ascending(Tensor values) -> bool");
  m.def("gather_rows(Tensor table, Tensor index, int threads) -> Tensor");
  m.def("put_rows(Tensor table, Tensor? index, Tensor(a!) out, int threads) -> ()");
  m.def("unique_nodes(Tensor[] nodes, int num_nodes) -> (Tensor, Tensor[])");
  m.def("count_unique_nodes(Tensor[] nodes, int num_nodes) -> int");
  m.def(
      "sample(Tensor indptr, Tensor indices, Tensor? edge_ids, Tensor seeds, Tensor seed_ptr, int[] fanouts, "
      "bool replace, bool return_edge, bool coo, int seed, int epoch, int threads) -> (Tensor[], Tensor)");
  m.def(
      "relay_begin(Tensor seeds, Tensor originals, Tensor seed_ptr, int[] offsets, int rank, int num_edges, "
      "bool wide, int[] fanouts, bool replace, bool return_edge, bool coo, int seed, int epoch) -> Tensor");
  m.def("relay_ask(Tensor(a!) state, int threads) -> (Tensor, int[], int[], Tensor)");
  m.def(
      "relay_answer(Tensor indptr, Tensor indices, Tensor edge_ids, Tensor node, int first, int num_edges, "
      "Tensor requests, int[] words_of, int fanout, bool replace, bool return_edge, int threads) -> (Tensor, "
      "int[], int[], int[])");
  m.def("relay_merge(Tensor(a!) state, Tensor own, Tensor answers, int[] words_of, int threads) -> int[]");
  m.def("relay_take(Tensor(a!) state) -> (Tensor[], Tensor)");
  m.def("keyed_permutation(int n, int seed, int epoch) -> Tensor");
  m.def("minibatch_key(Tensor seeds) -> int");
  m.def(
      "batch_norm(Tensor x, Tensor? weight, Tensor? bias, Tensor? mean, Tensor? variance, float eps, bool "
      "relu, "
      "int threads) -> (Tensor, Tensor, Tensor)");
  m.def(
      "batch_norm_grads(Tensor grad, Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor variance, "
      "float eps, bool relu, bool own_statistics, int threads) -> (Tensor, Tensor, Tensor)");
  m.def(
      "batch_norm_grad_columns(Tensor grad, Tensor x, Tensor? weight, Tensor? bias, Tensor mean, "
      "Tensor variance, Tensor? sums, float eps, bool relu, int threads) -> (Tensor, Tensor, Tensor)");
  m.def(
      "batch_norm_columns(Tensor? weight, Tensor? bias, Tensor mean, Tensor variance, float eps) -> Tensor");
  m.def("activate_(Tensor(a!) x, bool relu, float drop, int key, Tensor? node, int threads) -> Tensor");
  m.def("mask_grad(Tensor grad, Tensor mask, float scale, int threads) -> Tensor");
  m.def(
      "aggregate(Tensor x, Tensor indptr, Tensor indices, Tensor? row, Tensor? edge_weight, Tensor? edge, "
      "Tensor? source_scale, Tensor? target_scale, Tensor? self_input, Tensor? self_scale, Tensor[] "
      "by_source, "
      "int num_targets, str reduce, ScalarType out_dtype, int threads) -> Tensor");
  m.def(
      "aggregate_normed(Tensor x, Tensor columns, Tensor indptr, Tensor indices, Tensor self_scale, "
      "int num_targets, ScalarType out_dtype, int threads) -> Tensor");
  m.def(
      "aggregate_normed_grads(Tensor grad, Tensor source_ptr, Tensor targets, Tensor self_scale, Tensor x, "
      "Tensor columns, int threads) -> (Tensor, Tensor)");
  m.def(
      "aggregate_weight_grads(Tensor grad, Tensor x, Tensor indptr, Tensor indices, Tensor? row, "
      "Tensor? source_scale, Tensor? target_scale, bool mean, bool need_edge, int self_size, int threads) "
      "-> (Tensor, Tensor)");
  m.def(
      "aggregate_max_grads(Tensor grad, Tensor out, Tensor x, Tensor indptr, Tensor indices, "
      "Tensor source_ptr, Tensor targets, int threads) -> Tensor");
  m.def(
      "transpose(Tensor indptr, Tensor indices, int num_targets, int num_sources, int threads) "
      "-> (Tensor, Tensor, Tensor)");
  m.def("degree_scale(Tensor indptr, int num_nodes, int loops, bool root, ScalarType dtype) -> Tensor");
  m.def("count_self_loops(Tensor indptr, Tensor indices) -> int");
  m.def("drop_self_loops(Tensor indptr, Tensor indices) -> (Tensor, Tensor, Tensor)");
  m.def(
      "linear(Tensor[] inputs, Tensor?[] rows, Tensor[] weights, Tensor? bias, int num_rows, int groups, "
      "ScalarType out_dtype, bool relu, float drop, int key, Tensor? node, bool gated, int threads) "
      "-> (Tensor, Tensor)");
  m.def(
      "linear_moments(Tensor x, Tensor weight, Tensor? bias, ScalarType out_dtype, int threads) "
      "-> (Tensor, Tensor, Tensor)");
  m.def(
      "linear_grads(Tensor grad, Tensor mask, float scale, Tensor[] inputs, Tensor?[] rows, "
      "Tensor[] weights, Tensor? center, int groups, bool gated, bool[] need_input, bool need_weight, "
      "bool need_bias, int threads) -> (Tensor[], Tensor[], Tensor)");
  m.def(
      "linear_grads_normed(Tensor grad, Tensor normed, Tensor columns, bool relu, Tensor input, "
      "Tensor weight, bool gated, bool need_input, int threads) -> (Tensor, Tensor)");
  m.def(
      "linear_grads_before(Tensor grad, Tensor normed, Tensor columns, bool relu, Tensor hidden, "
      "Tensor weight, Tensor x, Tensor center, int threads) -> (Tensor, Tensor, Tensor)");
  m.def(
      "fold_norm(Tensor x, Tensor weight, Tensor? scale, Tensor? shift, float eps, ScalarType compute, "
      "int threads) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "fold_norm_grads(Tensor d_folded, Tensor weight, Tensor? scale, Tensor variance, Tensor spread, "
      "float eps) -> (Tensor, Tensor)");
  m.def("empty_cache() -> ()");
  m.def("memory_stats() -> int[]");
  m.def("reset_memory_peak() -> ()");
  m.def("advise_huge_pages(Tensor tensor) -> ()");
  m.def("empty_bytes(int bytes) -> Tensor");
  m.def("simd_level() -> int");
  m.def(
      "attention(Tensor x, Tensor? row, Tensor indptr, Tensor indices, Tensor source_weight, "
      "Tensor? target_weight, Tensor? target_logits, Tensor? edge_logits, Tensor? node, Tensor[] by_source, "
      "int num_targets, int num_loops, float negative_slope, float drop, int key, ScalarType out_dtype, int "
      "threads) -> "
      "(Tensor, Tensor)");
  m.def(
      "attention_grads(Tensor grad, Tensor? grad_coefficient, Tensor coefficient, Tensor x, Tensor? row, "
      "Tensor indptr, Tensor indices, Tensor source_weight, Tensor? target_weight, Tensor? node, "
      "Tensor[] by_source, int num_targets, "
      "int num_loops, float negative_slope, float drop, int key, bool need_edge_logits, int threads) -> "
      "(Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "attention_keep(Tensor indptr, Tensor? node, int num_targets, int num_loops, int heads, float drop, "
      "int key) -> Tensor");
  m.def("group_by_owner(Tensor owner, int groups) -> (Tensor, Tensor)");
  m.def("group_by_range(Tensor values, Tensor bounds) -> (Tensor, Tensor)");
  m.def("count_values_(Tensor values, int first, Tensor(a!) counts) -> bool");
  m.def(
      "place_edges_(Tensor edges, int first, Tensor(a!) cursor, Tensor(b!) indices, Tensor(c!) edge_ids) "
      "-> bool");
  m.def(
      "assign_nodes_(Tensor indptr, Tensor indices, int first, Tensor train, Tensor(a!) owner, Tensor found, "
      "int begin, int end, Tensor(b!) load, Tensor limit, bool fennel, float alpha, int step, int key) -> "
      "()");
}

STABLE_TORCH_LIBRARY_IMPL(pyg_batchgnn, CPU, m) {
  m.impl("build_csc", TORCH_BOX(&build_csc));
  m.impl("extent", TORCH_BOX(&extent_of));
  m.impl("is_ascending", TORCH_BOX(&is_ascending_tensor));
  m.impl("gather_rows", TORCH_BOX(&gather_table));
  m.impl("put_rows", TORCH_BOX(&put_table));
  m.impl("sample", TORCH_BOX(&sample));
  m.impl("relay_begin", TORCH_BOX(&relay_begin));
  m.impl("relay_ask", TORCH_BOX(&relay_ask));
  m.impl("relay_answer", TORCH_BOX(&relay_answer));
  m.impl("relay_merge", TORCH_BOX(&relay_merge));
  m.impl("relay_take", TORCH_BOX(&relay_take));
  m.impl("minibatch_key", TORCH_BOX(&key_of));
  m.impl("batch_norm", TORCH_BOX(&batch_norm_rows));
  m.impl("batch_norm_grads", TORCH_BOX(&batch_norm_gradients));
  m.impl("batch_norm_grad_columns", TORCH_BOX(&batch_norm_gradient_columns));
  m.impl("batch_norm_columns", TORCH_BOX(&batch_norm_columns));
  m.impl("activate_", TORCH_BOX(&activate_rows));
  m.impl("mask_grad", TORCH_BOX(&masked_gradient));
  m.impl("aggregate", TORCH_BOX(&aggregate_rows));
  m.impl("aggregate_normed", TORCH_BOX(&aggregate_normed));
  m.impl("aggregate_normed_grads", TORCH_BOX(&aggregate_normed_grads));
  m.impl("aggregate_weight_grads", TORCH_BOX(&aggregate_weight_grads));
  m.impl("aggregate_max_grads", TORCH_BOX(&aggregate_max_grads));
  m.impl("transpose", TORCH_BOX(&transpose_graph));
  m.impl("degree_scale", TORCH_BOX(&scale_by_degree));
  m.impl("count_self_loops", TORCH_BOX(&count_self_loops));
  m.impl("drop_self_loops", TORCH_BOX(&drop_self_loops));
  m.impl("linear", TORCH_BOX(&linear_forward));
  m.impl("linear_moments", TORCH_BOX(&linear_forward_moments));
  m.impl("linear_grads", TORCH_BOX(&linear_backward));
  m.impl("linear_grads_normed", TORCH_BOX(&linear_backward_normed));
  m.impl("linear_grads_before", TORCH_BOX(&linear_backward_before));
  m.impl("fold_norm", TORCH_BOX(&fold_norm_columns));
  m.impl("fold_norm_grads", TORCH_BOX(&fold_norm_gradients));
  m.impl("advise_huge_pages", TORCH_BOX(&advise_huge));
  m.impl("attention", TORCH_BOX(&attention));
  m.impl("attention_grads", TORCH_BOX(&attention_grads));
  m.impl("attention_keep", TORCH_BOX(&attention_kept));
  m.impl("group_by_owner", TORCH_BOX(&group_by_owner));
  m.impl("group_by_range", TORCH_BOX(&group_by_range));
  m.impl("count_values_", TORCH_BOX(&count_values_in));
  m.impl("place_edges_", TORCH_BOX(&place_edge_rows));
  m.impl("assign_nodes_", TORCH_BOX(&assign_rows));
}

// Without a tensor among the arguments (a list may be empty) there is nothing to dispatch on.
STABLE_TORCH_LIBRARY_IMPL(pyg_batchgnn, CompositeExplicitAutograd, m) {
  m.impl("unique_nodes", TORCH_BOX(&unique_nodes));
  m.impl("count_unique_nodes", TORCH_BOX(&count_unique_nodes));
  m.impl("keyed_permutation", TORCH_BOX(&permutation));
  m.impl("empty_cache", TORCH_BOX(&empty_memory_cache));
  m.impl("memory_stats", TORCH_BOX(&memory_stats));
  m.impl("reset_memory_peak", TORCH_BOX(&reset_memory_peak));
  m.impl("empty_bytes", TORCH_BOX(&empty_bytes));
  m.impl("simd_level", TORCH_BOX(&simd_bits));
}

}  // namespace pyg_batchgnn
