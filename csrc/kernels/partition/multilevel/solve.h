// The multilevel partitioner for a graph in one process: coarsen, cut, refine on the way back
// (Hendrickson and Leland 1995; Karypis and Kumar 1998).
#pragma once

#include "kernels/partition/multilevel/weighted_graph.h"

namespace pyg_batchgnn {

struct Problem {
  int64_t parts;
  const int64_t* limit;  // [constraints], the largest weight of a part
  uint64_t key;
};

struct Solution {
  int64_t cut;    // the weight of the edges between different parts
  double excess;  // the sum over parts and constraints of the excess, in limits
};

// Cuts a graph without ghosts. Sets part, [nodes].
Solution solve(const WeightedGraph& graph, const Problem& problem, int32_t* part);

// The first partition, of the coarsest graph: recursive bisection.

// Cuts the graph into parts, each within the limits where that is found.
//   limit: [constraints], the largest weight of a part.
//   part: [nodes], written.
void bisect_recursively(const WeightedGraph& graph, int64_t parts, const int64_t* limit, uint64_t key,
                        int32_t* part);

}  // namespace pyg_batchgnn
