// What normalisations ask of a graph's degrees and self loops.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// scale[v] = d^power for power -1 or -1/2 (`root`), d = in-edges of v plus `loops`; 0 where d is 0. Nodes
// behind the `targets` that have in-edges have none.
template <class A>
void degree_scale(const int64_t* indptr, int64_t targets, int64_t nodes, int64_t loops, bool root, A* scale);

// How many edges go from a node to itself.
int64_t count_loops(const int64_t* indptr, Integers indices, int64_t targets);

// The graph without them: kept[k] is the place that edge k had before.
void drop_loops(const int64_t* indptr, Integers indices, int64_t targets, int64_t* new_indptr,
                int32_t* new_indices, int64_t* kept);

}  // namespace pyg_batchgnn
