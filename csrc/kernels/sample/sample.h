// Samples one minibatch with a fused kernel as in FastSample (section 3.2), which writes the
// compressed graph of each relation directly.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sample/edges.h"
#include "kernels/sample/graph.h"
#include "kernels/sample/pick.h"
#include "kernels/sample/plan.h"

namespace pyg_batchgnn {

// The sampled nodes of one type. The arrays are blocks (allocation.h) that the receiver releases.
struct SampledNodes {
  Buffer<int64_t> node;     // [count] ids in order of discovery, seeds first
  Buffer<int64_t> example;  // [count] in disjoint sampling, else empty
  int64_t count = 0;
};

// One sampled minibatch, by type and by relation. A type that is not reached has no arrays, nor
// have the relations into a type without expanded nodes.
template <class Local>
struct SampledMinibatch {
  std::vector<SampledNodes> nodes;
  std::vector<SampledEdges<Local>> edges;
  std::vector<int64_t> nodes_per_hop;  // [types, hops + 1]
  std::vector<int64_t> edges_per_hop;  // [relations, hops]
};

// Throws std::bad_alloc, or std::length_error if local ids would exceed 2^31 or the examples have
// more nodes than 2^63.
template <class Index, class Local>
SampledMinibatch<Local> sample_minibatch(const TypedGraph<Index>& graph, const Plan& plan, const Seeds& seeds,
                                         Layout layout, Scratch<Index>& scratch);

}  // namespace pyg_batchgnn
