// Refinement that leaves local minima (Fiduccia and Mattheyses 1982; Sanders and Schulz 2011 for
// more than two parts).
#pragma once

#include "kernels/partition/multilevel/assignment.h"

namespace pyg_batchgnn {

struct FmRules {
  uint64_t key;
  int64_t passes;
  int64_t patience;  // the most moves of a pass behind its best cut
};

// Returns the bytes that `refine_by_fm` takes beside the graph.
int64_t fm_bytes(int64_t nodes, int64_t parts);

// In each pass own nodes move to other parts with room in order of gain, each at most once, gains
// below zero among them. Then the moves behind the best cut are undone. Ghosts stay in their parts.
void refine_by_fm(const WeightedGraph& graph, const Assignment& assignment, const FmRules& rules);

}  // namespace pyg_batchgnn
