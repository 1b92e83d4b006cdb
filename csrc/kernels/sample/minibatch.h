// A sampled minibatch, by node type and by relation.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/sample/edges.h"

namespace pyg_batchgnn {

// The sampled nodes of one type. The arrays are blocks (allocation.h) that the receiver releases.
struct SampledNodes {
  Buffer<int64_t> node;     // [count] ids in order of discovery, seeds first
  Buffer<int64_t> example;  // [count] in disjoint sampling, else empty
  int64_t count = 0;
};

// One sampled minibatch. A type that is not reached has no arrays, nor have the relations into a
// type without expanded nodes.
template <class Local>
struct SampledMinibatch {
  std::vector<SampledNodes> nodes;
  std::vector<SampledEdges<Local>> edges;
  std::vector<int64_t> nodes_per_hop;  // [types, hops + 1]
  std::vector<int64_t> edges_per_hop;  // [relations, hops]
};

}  // namespace pyg_batchgnn
