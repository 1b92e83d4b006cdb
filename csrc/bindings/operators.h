// The operators, each under the name that operators.cpp registers. The wrappers in
// pyg_batchgnn/ops/ check the arguments.
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/tensors.h"

namespace pyg_batchgnn {

// Free the memory that operators keep between calls.
void drop_sampling_scratch();
void drop_hgt_scratch();
void drop_graph_scratch();

namespace operators {

// graph_ops.cpp
std::tuple<Tensor, Tensor, Tensor> build_csc(const Tensor& edge_index, int64_t num_nodes);
std::tuple<int64_t, int64_t> extent(const Tensor& values, int64_t threads);
bool is_ascending(const Tensor& values);
Tensor sum_lists(const Tensor& indptr, const Tensor& values);
Tensor gather_rows(const Tensor& table, const Tensor& index, int64_t threads);
void put_rows(const Tensor& table, const std::optional<Tensor>& index, const Tensor& out, int64_t threads);
std::tuple<Tensor, std::vector<Tensor>> unique_nodes(const std::vector<Tensor>& nodes, int64_t num_nodes);
int64_t count_unique_nodes(const std::vector<Tensor>& nodes, int64_t num_nodes);

// partition_ops.cpp
std::tuple<Tensor, Tensor> group_by_owner(const Tensor& owner, int64_t groups);
std::tuple<Tensor, Tensor> group_by_range(const Tensor& values, const Tensor& bounds);
bool count_values_(const Tensor& values, int64_t first, const Tensor& counts);
bool place_edges_(const Tensor& edges, int64_t first, const Tensor& cursor, const Tensor& indices,
                  const Tensor& edge_ids);
void assign_nodes_(const Tensor& indptr, const Tensor& indices, int64_t first, const Tensor& weight,
                   const Tensor& owner, const Tensor& found, int64_t begin, int64_t end, const Tensor& load,
                   const Tensor& limit, bool fennel, bool mend, double alpha, int64_t step, int64_t key);

// multilevel_ops.cpp
bool append_neighbours_(const Tensor& rows, int64_t first, const Tensor& cursor, const Tensor& ids,
                        const std::optional<Tensor>& weights);
std::tuple<Tensor, Tensor, Tensor, int64_t> merge_neighbours(const Tensor& indptr, const Tensor& ids,
                                                             const std::optional<Tensor>& weights,
                                                             int64_t first);
Tensor number_ghosts_(const Tensor& ids, int64_t first, int64_t nodes, int64_t total, const Tensor& local);
int64_t cluster_nodes_(const Tensor& indptr, const Tensor& indices, const std::optional<Tensor>& edge_weight,
                       const Tensor& node_weight, const Tensor& label, const Tensor& room, int64_t key,
                       int64_t first, bool together);
Tensor contract_clusters(const Tensor& indptr, const Tensor& indices,
                         const std::optional<Tensor>& edge_weight, const Tensor& node_weight,
                         const Tensor& label, const Tensor& start, const std::optional<Tensor>& member,
                         int64_t begin, int64_t end);
void improve_parts_(const Tensor& indptr, const Tensor& indices, const std::optional<Tensor>& edge_weight,
                    const Tensor& node_weight, const Tensor& part, const Tensor& room, const Tensor& unit,
                    int64_t key);
std::tuple<Tensor, int64_t, double> solve_partition(const Tensor& indptr, const Tensor& indices,
                                                    const std::optional<Tensor>& edge_weight,
                                                    const Tensor& node_weight, int64_t parts,
                                                    const Tensor& limit, int64_t key);

// sample_ops.cpp
Tensor sampled_graph(std::vector<int64_t> num_nodes, std::vector<Tensor> indptr, std::vector<Tensor> indices,
                     std::vector<Tensor> edge_ids, std::vector<int64_t> source, std::vector<int64_t> target,
                     std::vector<int64_t> digest, std::vector<Tensor> order, std::vector<Tensor> weights);
std::tuple<std::vector<Tensor>, Tensor> sample(
    const Tensor& graph, const Tensor& seeds, const Tensor& seed_ptr, const Tensor& keys,
    const std::optional<Tensor>& example, const std::optional<Tensor>& time,
    const std::optional<Tensor>& excluded, int64_t hops, std::vector<int64_t> fanouts,
    const std::optional<Tensor>& shares, bool replace, bool return_edge, bool last, int64_t window,
    bool induced, bool coo, int64_t seed, int64_t epoch, int64_t threads);
Tensor keyed_permutation(int64_t n, int64_t seed, int64_t epoch);
int64_t minibatch_key(const Tensor& seeds);

// hgt_ops.cpp
std::tuple<std::vector<Tensor>, Tensor> sample_hgt(const Tensor& graph, const Tensor& seeds,
                                                   const Tensor& seed_ptr, const Tensor& keys, int64_t hops,
                                                   std::vector<int64_t> samples,
                                                   std::vector<int64_t> type_digest, int64_t cap,
                                                   bool return_edge, bool coo, int64_t seed, int64_t epoch,
                                                   int64_t threads);

// relay_ops.cpp
Tensor relay_begin(const Tensor& seeds, const Tensor& seed_ptr, const Tensor& keys,
                   const std::optional<Tensor>& example, const std::optional<Tensor>& time,
                   const std::optional<Tensor>& excluded, std::vector<int64_t> offsets, int64_t types,
                   int64_t rank, std::vector<int64_t> source, std::vector<int64_t> target,
                   std::vector<int64_t> num_edges, bool wide, bool disjoint, bool timed, bool excluding,
                   int64_t hops, std::vector<int64_t> fanouts, const std::optional<Tensor>& shares,
                   bool replace, bool return_edge, bool last, int64_t window, bool induced, bool coo,
                   int64_t seed, int64_t epoch);
std::tuple<Tensor, std::vector<int64_t>, std::vector<int64_t>, Tensor> relay_ask(const Tensor& state,
                                                                                 int64_t threads);
std::tuple<Tensor, std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>> relay_answer(
    const Tensor& graph, const Tensor& node, int64_t first, int64_t all_nodes, std::vector<int64_t> num_edges,
    const Tensor& requests, std::vector<int64_t> words_of, bool disjoint, bool timed, bool excluding,
    int64_t hop, int64_t hops, std::vector<int64_t> fanouts, const std::optional<Tensor>& shares,
    bool replace, bool return_edge, bool last, int64_t window, bool induced, int64_t threads);
std::tuple<int64_t, int64_t, int64_t> relay_merge(const Tensor& state, const Tensor& own,
                                                  const Tensor& answers, std::vector<int64_t> words_of,
                                                  int64_t threads);
std::tuple<std::vector<Tensor>, Tensor> relay_take(const Tensor& state);

// history_ops.cpp
Tensor history_search(const Tensor& slot, const Tensor& named, const Tensor& links, const Tensor& ends,
                      const Tensor& node, int64_t since, int64_t threads);
Tensor history_store_(const Tensor& slot, const Tensor& named, const Tensor& links, const Tensor& ends,
                      const Tensor& node, const Tensor& step);
Tensor history_lines(const Tensor& slot, const Tensor& named, const Tensor& links, const Tensor& ends);
void history_put_(const Tensor& table, const Tensor& line, const Tensor& rows, int64_t threads);
std::tuple<Tensor, Tensor, Tensor> history_layer(const Tensor& indptr, const Tensor& source,
                                                 const Tensor& cached, int64_t targets, int64_t own_nodes,
                                                 int64_t own_rows, int64_t threads);
std::tuple<Tensor, std::vector<int64_t>, std::vector<int64_t>> history_choose(
    const Tensor& ptr, const Tensor& peer, const Tensor& degree, const Tensor& row, const Tensor& name,
    int64_t peers, int64_t most, int64_t key, int64_t threads);

// norm_ops.cpp
std::tuple<Tensor, Tensor, Tensor> batch_norm(const Tensor& x, const std::optional<Tensor>& weight,
                                              const std::optional<Tensor>& bias,
                                              const std::optional<Tensor>& mean,
                                              const std::optional<Tensor>& variance, double eps, bool relu,
                                              int64_t threads);
std::tuple<Tensor, Tensor, Tensor> batch_norm_grads(const Tensor& grad, const Tensor& x,
                                                    const std::optional<Tensor>& weight,
                                                    const std::optional<Tensor>& bias, const Tensor& mean,
                                                    const Tensor& variance, double eps, bool relu,
                                                    bool own_statistics, int64_t threads);
std::tuple<Tensor, Tensor, Tensor> batch_norm_grad_columns(const Tensor& grad, const Tensor& x,
                                                           const std::optional<Tensor>& weight,
                                                           const std::optional<Tensor>& bias,
                                                           const Tensor& mean, const Tensor& variance,
                                                           const std::optional<Tensor>& sums, double eps,
                                                           bool relu, int64_t threads);
Tensor batch_norm_columns(const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
                          const Tensor& mean, const Tensor& variance, double eps);
Tensor activate_(const Tensor& x, bool relu, double drop, int64_t key, const std::optional<Tensor>& node,
                 int64_t threads);
Tensor mask_grad(const Tensor& grad, const Tensor& mask, double scale, int64_t threads);
// aggregate_ops.cpp
Tensor aggregate(const Tensor& x, const Tensor& indptr, const Tensor& indices,
                 const std::optional<Tensor>& row, const std::optional<Tensor>& edge_weight,
                 const std::optional<Tensor>& edge, const std::optional<Tensor>& source_scale,
                 const std::optional<Tensor>& target_scale, const std::optional<Tensor>& self_input,
                 const std::optional<Tensor>& self_scale, std::vector<Tensor> by_source, int64_t num_targets,
                 std::string reduce, ScalarType out_dtype, int64_t threads);
Tensor aggregate_normed(const Tensor& x, const Tensor& columns, const Tensor& indptr, const Tensor& indices,
                        const Tensor& self_scale, int64_t num_targets, ScalarType out_dtype, int64_t threads);
std::tuple<Tensor, Tensor> aggregate_normed_grads(const Tensor& grad, const Tensor& source_ptr,
                                                  const Tensor& targets, const Tensor& self_scale,
                                                  const Tensor& x, const Tensor& columns, int64_t threads);
std::tuple<Tensor, Tensor> aggregate_weight_grads(const Tensor& grad, const Tensor& x, const Tensor& indptr,
                                                  const Tensor& indices, const std::optional<Tensor>& row,
                                                  const std::optional<Tensor>& source_scale,
                                                  const std::optional<Tensor>& target_scale, bool mean,
                                                  bool need_edge, int64_t self_size, int64_t threads);
Tensor aggregate_max_grads(const Tensor& grad, const Tensor& out, const Tensor& x, const Tensor& indptr,
                           const Tensor& indices, const Tensor& source_ptr, const Tensor& targets,
                           int64_t threads);
std::tuple<Tensor, Tensor, Tensor> transpose(const Tensor& indptr, const Tensor& indices, int64_t num_targets,
                                             int64_t num_sources, int64_t threads);
Tensor degree_scale(const Tensor& indptr, int64_t num_nodes, int64_t loops, bool root, ScalarType dtype);
int64_t count_self_loops(const Tensor& indptr, const Tensor& indices);
std::tuple<Tensor, Tensor, Tensor> drop_self_loops(const Tensor& indptr, const Tensor& indices);

// linear_ops.cpp
std::tuple<Tensor, Tensor> linear(const std::vector<Tensor>& inputs,
                                  const std::vector<std::optional<Tensor>>& rows,
                                  const std::vector<Tensor>& weights, const std::optional<Tensor>& bias,
                                  int64_t num_rows, int64_t groups, ScalarType out_dtype, bool relu,
                                  double drop, int64_t key, const std::optional<Tensor>& node,
                                  bool after_relu, int64_t threads);
std::tuple<Tensor, Tensor, Tensor> linear_moments(const Tensor& x, const Tensor& weight,
                                                  const std::optional<Tensor>& bias, ScalarType out_dtype,
                                                  int64_t threads);
std::tuple<std::vector<Tensor>, std::vector<Tensor>, Tensor> linear_grads(
    const Tensor& grad, const Tensor& mask, double scale, const std::vector<Tensor>& inputs,
    const std::vector<std::optional<Tensor>>& rows, const std::vector<Tensor>& weights,
    const std::optional<Tensor>& center, int64_t groups, bool after_relu, std::vector<bool> need_input,
    bool need_weight, bool need_bias, int64_t threads);
std::tuple<Tensor, Tensor> linear_grads_normed(const Tensor& grad, const Tensor& normed,
                                               const Tensor& columns, bool relu, const Tensor& input,
                                               const Tensor& weight, bool after_relu, bool need_input,
                                               int64_t threads);
std::tuple<Tensor, Tensor, Tensor> linear_grads_before(const Tensor& grad, const Tensor& normed,
                                                       const Tensor& columns, bool relu, const Tensor& hidden,
                                                       const Tensor& weight, const Tensor& x,
                                                       const Tensor& center, int64_t threads);
// folded_norm_ops.cpp
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> fold_norm(const Tensor& x, const Tensor& weight,
                                                                     const std::optional<Tensor>& scale,
                                                                     const std::optional<Tensor>& shift,
                                                                     double eps, ScalarType compute,
                                                                     int64_t threads);
std::tuple<Tensor, Tensor> fold_norm_grads(const Tensor& d_folded, const Tensor& weight,
                                           const std::optional<Tensor>& scale, const Tensor& variance,
                                           const Tensor& spread, double eps);

// embedding_ops.cpp
void fill_uniform_(const Tensor& rows, const Tensor& node, int64_t key, double bound, int64_t threads);
void gather_either(const Tensor& near, const Tensor& far, const Tensor& source, const Tensor& out,
                   int64_t threads);
void update_rows_(const Tensor& weight, const Tensor& first, const Tensor& second,
                  const std::optional<Tensor>& frozen, const Tensor& row, const Tensor& ptr,
                  const Tensor& source, const Tensor& near, const std::vector<Tensor>& far,
                  const Tensor& far_ptr, const Tensor& share, int64_t rank, int64_t rule,
                  const Tensor& numbers, int64_t threads);

// memory_ops.cpp
void empty_cache();
std::tuple<int64_t, int64_t, int64_t, int64_t> memory_stats();
void reset_memory_peak();
void advise_huge_pages(const Tensor& tensor);
Tensor empty_bytes(int64_t bytes);
int64_t simd_level();

// turn_ops.cpp
void announce_turn_(const Tensor& word, int64_t turn);
bool wait_for_turns(const std::vector<Tensor>& words, int64_t turn, double seconds);

// attention_ops.cpp
std::tuple<Tensor, Tensor> attention(const Tensor& x, const std::optional<Tensor>& row, const Tensor& indptr,
                                     const Tensor& indices, const Tensor& source_weight,
                                     const std::optional<Tensor>& target_weight,
                                     const std::optional<Tensor>& target_logits,
                                     const std::optional<Tensor>& edge_logits,
                                     const std::optional<Tensor>& node, const std::vector<Tensor>& by_source,
                                     int64_t num_targets, int64_t num_loops, double negative_slope,
                                     double drop, int64_t key, ScalarType out_dtype, int64_t threads);
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> attention_grads(
    const Tensor& grad, const std::optional<Tensor>& grad_coefficient, const Tensor& coefficient,
    const Tensor& x, const std::optional<Tensor>& row, const Tensor& indptr, const Tensor& indices,
    const Tensor& source_weight, const std::optional<Tensor>& target_weight,
    const std::optional<Tensor>& node, const std::vector<Tensor>& by_source, int64_t num_targets,
    int64_t num_loops, double negative_slope, double drop, int64_t key, bool need_edge_logits,
    int64_t threads);
Tensor attention_keep(const Tensor& indptr, const std::optional<Tensor>& node, int64_t num_targets,
                      int64_t num_loops, int64_t heads, double drop, int64_t key);

}  // namespace operators
}  // namespace pyg_batchgnn
