// Scratch memory and results of the sampling operators.
#pragma once

#include <tuple>
#include <utility>
#include <vector>

#include "bindings/tensors.h"
#include "kernels/object_pool.h"
#include "kernels/sample.h"

namespace pyg_batchgnn {

template <class Index>
ObjectPool<Scratch<Index>>& scratches() {
  static auto* const pool = new ObjectPool<Scratch<Index>>();
  return *pool;
}

// Returns node, indptr, edges and edge of each minibatch, and the counts [minibatches, 2 * hops +
// 1]: the nodes of each hop and then the edges of each hop.
template <class Local>
std::tuple<std::vector<Tensor>, Tensor> to_tensors(std::vector<Sampled<Local>> sampled, size_t hops,
                                                   Layout layout, bool return_edge) {
  std::vector<Tensor> arrays;
  arrays.reserve(4 * sampled.size());
  Buffer<int64_t> counts;
  int64_t* count = counts.reserve(static_cast<int64_t>(sampled.size() * (2 * hops + 1)) + 1);
  for (Sampled<Local>& one : sampled) {
    for (int64_t nodes : one.nodes_per_hop) *count++ = nodes;
    for (int64_t edges : one.edges_per_hop) *count++ = edges;
    arrays.push_back(adopt(std::move(one.node), {one.nodes}));
    arrays.push_back(adopt(std::move(one.indptr), {one.destinations + 1}));
    arrays.push_back(layout == Layout::kCoo ? adopt(std::move(one.edges), {2, one.edge_count})
                                            : adopt(std::move(one.edges), {one.edge_count}));
    arrays.push_back(adopt(std::move(one.edge), {return_edge ? one.edge_count : 0}));
  }
  const std::vector<int64_t> sizes{static_cast<int64_t>(sampled.size()), static_cast<int64_t>(2 * hops + 1)};
  return {std::move(arrays), adopt(std::move(counts), sizes)};
}

}  // namespace pyg_batchgnn
