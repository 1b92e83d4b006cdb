// Scratch memory and results of the sampling operators.
#pragma once

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/process_pool.h"
#include "bindings/sampled_graph.h"
#include "bindings/tensors.h"
#include "kernels/parallel.h"
#include "kernels/sample/minibatch.h"
#include "kernels/sample/pick.h"

namespace pyg_batchgnn {

template <class Index>
ObjectPool<Scratch<Index>>& scratches() {
  return process_pool<Scratch<Index>>();
}

// Collects the arrays of minibatches: for each type that has nodes, `node` and in disjoint sampling
// `example`; then for each relation into a type with expanded nodes, `indptr`, `edges` and, if they
// are wanted, `edge`.
class ArrayList {
 public:
  ArrayList(Layout layout, bool edge_ids) : layout_(layout), edge_ids_(edge_ids) {}

  void add(Buffer<int64_t> ids, int64_t count) { arrays_.push_back(adopt(std::move(ids), {count})); }

  template <class Local>
  void add(SampledEdges<Local> edges) {
    if (edges.targets == 0) return;
    add(std::move(edges.indptr), edges.targets + 1);
    arrays_.push_back(layout_ == Layout::kCoo ? adopt(std::move(edges.edges), {2, edges.count})
                                              : adopt(std::move(edges.edges), {edges.count}));
    if (edge_ids_) add(std::move(edges.edge), edges.count);
  }

  std::vector<Tensor> take() { return std::move(arrays_); }

 private:
  Layout layout_;
  bool edge_ids_;
  std::vector<Tensor> arrays_;
};

// Collects the counts of minibatches: the nodes of each type by hop, then the edges of each
// relation by hop.
class CountTable {
 public:
  CountTable(size_t minibatches, size_t columns)
      : sizes_{static_cast<int64_t>(minibatches), static_cast<int64_t>(columns)},
        next_(counts_.reserve(static_cast<int64_t>(minibatches * columns) + 1)) {}

  void add(const std::vector<int64_t>& counts) { next_ = std::copy(counts.begin(), counts.end(), next_); }
  Tensor take() { return adopt(std::move(counts_), sizes_); }

 private:
  std::vector<int64_t> sizes_;
  Buffer<int64_t> counts_;
  int64_t* next_;
};

// The form of sampled edges.
struct EdgeForm {
  Layout layout;
  bool edge_ids;
};

// Returns the arrays and the counts of minibatches of the same graph.
template <class Local>
std::tuple<std::vector<Tensor>, Tensor> collect(std::vector<SampledMinibatch<Local>> sampled, EdgeForm form) {
  ArrayList arrays(form.layout, form.edge_ids);
  const size_t columns =
      sampled.empty() ? 0 : sampled[0].nodes_per_hop.size() + sampled[0].edges_per_hop.size();
  CountTable counts(sampled.size(), columns);
  for (SampledMinibatch<Local>& one : sampled) {
    counts.add(one.nodes_per_hop);
    counts.add(one.edges_per_hop);
    for (SampledNodes& nodes : one.nodes) {
      if (nodes.count == 0) continue;
      arrays.add(std::move(nodes.node), nodes.count);
      if (nodes.example.data() != nullptr) arrays.add(std::move(nodes.example), nodes.count);
    }
    for (SampledEdges<Local>& edges : one.edges) arrays.add(std::move(edges));
  }
  return {arrays.take(), counts.take()};
}

// Samples each minibatch with sample(seeds). Threads work on different minibatches (BatchGNN,
// appendix D.3).
template <class Local, class Sample>
std::tuple<std::vector<Tensor>, Tensor> sample_each(const SeedLists& lists, EdgeForm form, int64_t threads,
                                                    const Sample& sample) {
  std::vector<SampledMinibatch<Local>> sampled(static_cast<size_t>(lists.minibatches));
  run_tasks(lists.minibatches, threads, [&](int64_t task, int64_t) {
    std::vector<int64_t> begins;
    sampled[static_cast<size_t>(task)] = sample(lists.of(task, &begins));
  });
  return collect(std::move(sampled), form);
}

}  // namespace pyg_batchgnn
