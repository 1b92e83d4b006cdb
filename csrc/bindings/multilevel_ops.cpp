#include <vector>

#include "bindings/operators.h"
#include "kernels/partition/multilevel/cluster.h"
#include "kernels/partition/multilevel/contract.h"
#include "kernels/partition/multilevel/ghosts.h"
#include "kernels/partition/multilevel/improve.h"
#include "kernels/partition/multilevel/lists.h"
#include "kernels/partition/multilevel/solve.h"

namespace pyg_batchgnn {
namespace {

template <class T>
T* writable(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

template <class T>
const T* data_or_null(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? data<T>(*tensor) : nullptr;
}

template <class T>
T* writable_or_null(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? writable<T>(*tensor) : nullptr;
}

template <class T>
Tensor copied(const T* from, int64_t count, const std::vector<int64_t>& sizes) {
  Buffer<T> buffer;
  std::copy(from, from + count, buffer.reserve(count + 1));
  return adopt(std::move(buffer), sizes);
}

// Returns the graph of the nodes that `all` [nodes + ghosts] has an entry for.
WeightedGraph graph_of(const Tensor& indptr, const Tensor& indices, const std::optional<Tensor>& edge_weight,
                       const Tensor& node_weight, int64_t all) {
  const int64_t nodes = indptr.numel() - 1;
  return {nodes,
          all - nodes,
          node_weight.size(1),
          data<int64_t>(indptr),
          data<int32_t>(indices),
          data_or_null<int32_t>(edge_weight),
          data<int32_t>(node_weight)};
}

}  // namespace

namespace operators {

bool append_neighbours_(const Tensor& rows, int64_t first, const Tensor& cursor, const Tensor& ids,
                        const std::optional<Tensor>& weights) {
  return with_integer(rows, [&](auto word) {
    return with_integer(ids, [&](auto id) {
      return append_neighbours(data<decltype(word)>(rows), rows.size(0), rows.size(1), first, cursor.numel(),
                               ids.numel(), writable<int64_t>(cursor), writable<decltype(id)>(ids),
                               writable_or_null<int32_t>(weights));
    });
  });
}

std::tuple<Tensor, Tensor, Tensor, int64_t> merge_neighbours(const Tensor& indptr, const Tensor& ids,
                                                             const std::optional<Tensor>& weights,
                                                             int64_t first) {
  return with_integer(ids, [&](auto type) {
    using Id = decltype(type);
    const int64_t lists = indptr.numel() - 1;
    auto* const old_weights = writable_or_null<int32_t>(weights);
    Buffer<int64_t> begin;
    Buffer<Id> merged_ids;
    Buffer<int32_t> merged_weights;
    const Merged merged = sort_lists(first, lists, data<int64_t>(indptr), writable<Id>(ids), old_weights,
                                     begin.reserve(lists + 1));
    const bool uniform = merged.uniform != 0;
    merge_lists(first, lists, data<int64_t>(indptr), data<Id>(ids), old_weights, begin.data(),
                merged_ids.reserve(merged.edges + 1),
                uniform ? nullptr : merged_weights.reserve(merged.edges + 1));
    return std::tuple(adopt(std::move(begin), {lists + 1}), adopt(std::move(merged_ids), {merged.edges}),
                      adopt(std::move(merged_weights), {uniform ? 0 : merged.edges}),
                      static_cast<int64_t>(merged.uniform));
  });
}

Tensor number_ghosts_(const Tensor& ids, int64_t first, int64_t nodes, int64_t total, const Tensor& local) {
  return with_integer(ids, [&](auto type) {
    const auto ghosts =
        number_ghosts(data<decltype(type)>(ids), ids.numel(), first, nodes, total, writable<int32_t>(local));
    const auto count = static_cast<int64_t>(ghosts.size());
    return copied(ghosts.data(), count, {count});
  });
}

int64_t cluster_nodes_(const Tensor& indptr, const Tensor& indices, const std::optional<Tensor>& edge_weight,
                       const Tensor& node_weight, const Tensor& label, const Tensor& room, int64_t key,
                       int64_t first, bool together) {
  const WeightedGraph graph = graph_of(indptr, indices, edge_weight, node_weight, label.numel());
  const Rooms rooms(graph.constraints, writable<int64_t>(room));
  const NodeWords words{static_cast<uint64_t>(key), first};
  return cluster_nodes(graph, room.size(0), writable<int32_t>(label), rooms, words,
                       together ? Leftover::kTogether : Leftover::kAlone);
}

Tensor contract_clusters(const Tensor& indptr, const Tensor& indices,
                         const std::optional<Tensor>& edge_weight, const Tensor& node_weight,
                         const Tensor& label, const Tensor& start, const std::optional<Tensor>& member,
                         int64_t begin, int64_t end) {
  const WeightedGraph graph = graph_of(indptr, indices, edge_weight, node_weight, label.numel());
  std::vector<ClusterEdge> edges;
  contract_clusters(graph, {data<int64_t>(start), data_or_null<int32_t>(member)}, data<int32_t>(label),
                    start.numel() - 1, begin, end, edges);
  const auto count = static_cast<int64_t>(edges.size());
  return copied(&edges.data()->cluster, 3 * count, {count, 3});
}

void improve_parts_(const Tensor& indptr, const Tensor& indices, const std::optional<Tensor>& edge_weight,
                    const Tensor& node_weight, const Tensor& part, const Tensor& room, const Tensor& unit,
                    int64_t key) {
  const WeightedGraph graph = graph_of(indptr, indices, edge_weight, node_weight, part.numel());
  const Assignment assignment{room.size(0), writable<int32_t>(part),
                              Rooms(graph.constraints, writable<int64_t>(room)), Excess{data<double>(unit)}};
  improve(graph, assignment, static_cast<uint64_t>(key));
}

std::tuple<Tensor, int64_t, double> solve_partition(const Tensor& indptr, const Tensor& indices,
                                                    const std::optional<Tensor>& edge_weight,
                                                    const Tensor& node_weight, int64_t parts,
                                                    const Tensor& limit, int64_t key) {
  const int64_t nodes = indptr.numel() - 1;
  const WeightedGraph graph = graph_of(indptr, indices, edge_weight, node_weight, nodes);
  Buffer<int32_t> part;
  const Solution found =
      solve(graph, {parts, data<int64_t>(limit), static_cast<uint64_t>(key)}, part.reserve(nodes + 1));
  return {adopt(std::move(part), {nodes}), found.cut, found.excess};
}

}  // namespace operators
}  // namespace pyg_batchgnn
