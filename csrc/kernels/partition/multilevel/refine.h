// Refinement of a partition by moves of single nodes.
#pragma once

#include "kernels/partition/multilevel/weighted_graph.h"

namespace pyg_batchgnn {

// Refinement in a level: first the excess of parts is lowered, then the cut.

// Moves own nodes. Ghosts stay in their parts.
void improve(const WeightedGraph& graph, const Assignment& assignment, uint64_t key);

// Moves each own node to the part with room that most of its edges lead to, where that lowers the
// cut (size-constrained label propagation). Returns by how much the cut fell.
int64_t move_greedily(const WeightedGraph& graph, const Assignment& assignment);

// Moves nodes out of parts that exceed a limit, those first that add the least to the cut for what
// they relieve, as long as the sum of the excess falls.
void balance_parts(const WeightedGraph& graph, const Assignment& assignment);

// Refinement that leaves local minima (Fiduccia and Mattheyses 1982; Sanders and Schulz 2011).

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
