// The degrees and self loops of a graph, for normalisations.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// Sets scale[v] = 1 / d, or 1 / sqrt(d) with `root`, where d is the number of in-edges of v plus
// `loops`; 0 where d is 0. Only the first `targets` nodes have in-edges.
template <class A>
void degree_scale(const int64_t* indptr, int64_t targets, int64_t nodes, int64_t loops, bool root, A* scale);

// Returns the number of edges from a node to itself.
int64_t count_loops(const int64_t* indptr, Integers indices, int64_t targets);

// Writes the graph without these edges. kept[k] is the former position of edge k.
void drop_loops(const int64_t* indptr, Integers indices, int64_t targets, int64_t* new_indptr,
                int32_t* new_indices, int64_t* kept);

}  // namespace pyg_batchgnn
