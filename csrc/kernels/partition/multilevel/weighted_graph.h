// An undirected graph with weights, as the multilevel partitioner sees it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/random.h"

namespace pyg_batchgnn {

// The neighbours of a process's own nodes. Ghosts are nodes of other processes; they follow the own
// nodes in the numbering and have no lists.
struct WeightedGraph {
  int64_t nodes;
  int64_t ghosts;
  int64_t constraints;         // the weights of a node
  const int64_t* indptr;       // [nodes + 1]
  const int32_t* indices;      // [edges] own nodes and ghosts; every edge is in the lists of both ends
  const int32_t* edge_weight;  // [edges], positive; null if every edge weighs 1
  const int32_t* node_weight;  // [nodes, constraints], not negative

  int64_t edges() const { return indptr[nodes]; }
  int64_t weight_of(int64_t edge) const { return edge_weight == nullptr ? 1 : edge_weight[edge]; }
  const int32_t* weights_of(int64_t node) const { return node_weight + node * constraints; }
};

// A graph that owns its arrays. It has no ghosts.
struct OwnedGraph {
  int64_t constraints = 0;
  std::vector<int64_t> indptr{0};
  std::vector<int32_t> indices, edge_weight, node_weight;

  WeightedGraph view() const {
    return {static_cast<int64_t>(indptr.size()) - 1,
            0,
            constraints,
            indptr.data(),
            indices.data(),
            edge_weight.data(),
            node_weight.data()};
  }
};

}  // namespace pyg_batchgnn
