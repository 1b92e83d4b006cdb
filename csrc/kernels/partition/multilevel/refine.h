// Refinement of a partition by moves of single nodes.
#pragma once

#include "kernels/partition/multilevel/assignment.h"

namespace pyg_batchgnn {

// Moves each own node to the part with room that most of its edges lead to, where that lowers the
// cut (size-constrained label propagation). Returns by how much the cut fell.
int64_t move_greedily(const WeightedGraph& graph, const Assignment& assignment);

// Moves nodes out of parts that exceed a limit, those first that add the least to the cut for what
// they relieve, as long as the sum of the excess falls.
void balance_parts(const WeightedGraph& graph, const Assignment& assignment);

}  // namespace pyg_batchgnn
