// What sampling operators share: arguments as the kernels take them, scratch memory, results.
#pragma once

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/process_pool.h"
#include "bindings/tensors.h"
#include "kernels/parallel.h"
#include "kernels/sample/graph.h"
#include "kernels/sample/minibatch.h"
#include "kernels/sample/pick.h"
#include "kernels/sample/plan.h"

namespace pyg_batchgnn {

// Returns the seeds of all minibatches, as in ops/sample.py.
inline SeedLists seeds_of(const Tensor& seeds, const Tensor& seed_ptr, const Tensor& keys, size_t num_types,
                          const OptionalTensor& example = {}, const OptionalTensor& time = {},
                          const OptionalTensor& excluded = {}) {
  SeedLists lists{data<int64_t>(seeds), data<int64_t>(seed_ptr),
                  reinterpret_cast<const uint64_t*>(data<int64_t>(keys)), keys.numel(),
                  static_cast<int64_t>(num_types)};
  if (example) lists.example = data<int64_t>(*example);
  if (time) lists.time = data<int64_t>(*time);
  if (excluded) lists.excluded = data<int64_t>(*excluded);
  if (excluded) lists.excluded_count = excluded->size(1);
  return lists;
}

// Returns a plan that an operator holds (`Plan` or `HgtPlan`), for one seed and epoch.
template <class PlanT>
PlanT plan_of(const Tensor& rules, int64_t seed, int64_t epoch) {
  PlanT plan = held<PlanT>(rules);
  plan.seed = static_cast<uint64_t>(seed);
  plan.epoch = static_cast<uint64_t>(epoch);
  return plan;
}

// Returns the tensor's data, null if it is empty.
template <class T>
const T* data_or_null(const Tensor& tensor) {
  return tensor.numel() == 0 ? nullptr : data<T>(tensor);
}

inline Integers integers_or_none(const Tensor& tensor) {
  return tensor.numel() == 0 ? Integers{} : integers(tensor);
}

// The arrays of the relations, each one per relation; the last three may be empty.
struct RelationArrays {
  std::vector<Tensor> indptr, indices, edge_ids;
  std::vector<int64_t> source, target, digest, source_digest;
  std::vector<Tensor> order;       // time and position of each relation
  std::vector<Tensor> weights;     // sum, weight and positive of each relation
  std::vector<Tensor> source_ids;  // original ids; empty where `indices` holds them

  template <class Index>
  Relation<Index> relation(size_t number) const {
    Relation<Index> out;
    out.edges = {data<int64_t>(indptr[number]), data<Index>(indices[number]),
                 integers_or_none(edge_ids[number]), indptr[number].numel() - 1};
    out.source = source[number];
    out.target = target[number];
    out.digest = static_cast<uint64_t>(digest[number]);
    out.source_digest = static_cast<uint64_t>(source_digest[number]);
    if (!source_ids.empty()) out.source_ids = data<Index>(source_ids[number]);
    if (!order.empty()) {
      out.time = {data_or_null<int64_t>(order[2 * number]), integers_or_none(order[2 * number + 1])};
    }
    if (!weights.empty()) {
      out.weights = {data_or_null<double>(weights[3 * number]), data_or_null<double>(weights[3 * number + 1]),
                     data_or_null<int64_t>(weights[3 * number + 2])};
    }
    return out;
  }
};

// A graph in the type of its indices, as operators hold it from one call to the next.
class HeldGraph {
 public:
  HeldGraph(std::vector<int64_t> num_nodes, const RelationArrays& arrays) : num_types_(num_nodes.size()) {
    for (const auto* list : {&arrays.indptr, &arrays.indices, &arrays.edge_ids, &arrays.order,
                             &arrays.weights, &arrays.source_ids}) {
      for (const Tensor& array : *list) arrays_.push_back({array, array.const_data_ptr(), array.numel()});
    }
    const auto fill = [&](auto type) {
      using Index = decltype(type);
      TypedGraph<Index> graph{std::move(num_nodes), {}};
      for (size_t number = 0; number < arrays.indptr.size(); ++number) {
        graph.relations.push_back(arrays.template relation<Index>(number));
        find_zeros(&graph.relations.back());
      }
      graph_ = std::move(graph);
    };
    arrays.indices.empty() ? fill(int64_t{}) : with_integer(arrays.indices.front(), fill);
  }

  size_t num_types() const { return num_types_; }

  // Calls body with the graph. Throws if an array was resized or given other memory.
  template <class Body>
  auto with_graph(const Body& body) const {
    for (const Array& one : arrays_) {
      if (one.tensor.numel() != one.size || one.tensor.const_data_ptr() != one.data) {
        throw std::runtime_error("an array of the graph was resized or replaced; make a new sampler");
      }
    }
    return std::visit(body, graph_);
  }

 private:
  template <class Index>
  void find_zeros(Relation<Index>* relation) {
    if (relation->weights.positive == nullptr) return;
    zeros_.push_back(lists_with_zeros(relation->edges, relation->weights.positive));
    relation->weights.zeros = zeros_.back().data();
  }

  struct Array {
    Tensor tensor;
    const void* data;
    int64_t size;
  };
  size_t num_types_;
  std::vector<Array> arrays_;
  std::vector<std::vector<uint64_t>> zeros_;  // by relation that has weights of zero
  std::variant<TypedGraph<int32_t>, TypedGraph<int64_t>> graph_;
};

// The form of sampled edges: PyG's edge_index of int64, or the native form of half the memory.
struct EdgeForm {
  bool coo;
  bool edge_ids;

  void apply(SampledMinibatch* minibatch) const {
    if (!coo) return;
    for (SampledEdges& edges : minibatch->edges) edges.to_coo();
  }
};

// The arrays and the counts of minibatches of the same graph, as ops/sample.py describes them.
using Minibatches = std::tuple<std::vector<Tensor>, Tensor>;

// Takes minibatches after EdgeForm::apply.
inline Minibatches collect(std::vector<SampledMinibatch> sampled, EdgeForm form) {
  std::vector<Tensor> arrays;
  std::vector<int64_t> all_counts;
  const auto add = [&](Buffer<int64_t> ids, int64_t count) {
    arrays.push_back(adopt(std::move(ids), {count}));
  };
  for (SampledMinibatch& one : sampled) {
    for (const auto* counts : {&one.nodes_per_hop, &one.edges_per_hop}) {
      all_counts.insert(all_counts.end(), counts->begin(), counts->end());
    }
    for (SampledNodes& nodes : one.nodes) {
      if (nodes.count == 0) continue;
      add(std::move(nodes.node), nodes.count);
      if (nodes.example.data() != nullptr) add(std::move(nodes.example), nodes.count);
    }
    for (SampledEdges& edges : one.edges) {
      if (edges.targets == 0) continue;
      add(std::move(edges.indptr), edges.targets + 1);
      arrays.push_back(form.coo ? adopt(std::move(edges.coo), {2, edges.count})
                                : adopt(std::move(edges.source), {edges.count}));
      if (form.edge_ids) add(std::move(edges.edge), edges.count);
    }
  }
  const auto rows = static_cast<int64_t>(sampled.size()), count = static_cast<int64_t>(all_counts.size());
  const Tensor counts = new_array<int64_t>({rows, rows == 0 ? 0 : count / rows});
  std::copy(all_counts.begin(), all_counts.end(), mutable_data<int64_t>(counts));
  return {std::move(arrays), counts};
}

// Samples each minibatch with sample(seeds), several at a time (BatchGNN, appendix D.3).
template <class Sample>
Minibatches sample_each(const SeedLists& lists, EdgeForm form, int64_t threads, const Sample& sample) {
  std::vector<SampledMinibatch> sampled(static_cast<size_t>(lists.minibatches));
  run_tasks(lists.minibatches, threads, [&](int64_t task, int64_t) {
    std::vector<int64_t> begins;
    SampledMinibatch& own = sampled[static_cast<size_t>(task)];
    own = sample(lists.of(task, &begins));
    form.apply(&own);
  });
  return collect(std::move(sampled), form);
}

}  // namespace pyg_batchgnn
