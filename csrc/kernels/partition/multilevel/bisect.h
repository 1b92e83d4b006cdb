// The first partition, of the coarsest graph: recursive bisection.
#pragma once

#include "kernels/partition/multilevel/weighted_graph.h"

namespace pyg_batchgnn {

// Cuts the graph into parts, each within the limits where that is found.
//   limit: [constraints], the largest weight of a part.
//   part: [nodes], written.
void bisect_recursively(const WeightedGraph& graph, int64_t parts, const int64_t* limit, uint64_t key,
                        int32_t* part);

}  // namespace pyg_batchgnn
