// Refinement in a level: first the excess of parts is lowered, then the cut.
#pragma once

#include "kernels/partition/multilevel/assignment.h"

namespace pyg_batchgnn {

// Moves own nodes. Ghosts stay in their parts.
void improve(const WeightedGraph& graph, const Assignment& assignment, uint64_t key);

}  // namespace pyg_batchgnn
