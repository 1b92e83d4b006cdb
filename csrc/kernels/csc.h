// Conversion of an edge list to a graph by destination.
#pragma once

#include <cstdint>

#include "kernels/operand.h"
#include "kernels/simd/scan.h"

namespace pyg_batchgnn {

// Runs on at most `threads` threads. Returns {0, -1} without entries.
template <class T>
Extent extent(const T* values, int64_t count, int64_t threads);

// Sets indptr [num_nodes + 1]: indptr[v + 1] - indptr[v] is the number of v among `destinations`.
template <class T>
void count_destinations(const T* destinations, int64_t count, int64_t num_nodes, int64_t* indptr);

// Writes the sources by destination and, unless `edge_ids` is null, the input edge of each. The
// sort is stable: an adjacency list is in ascending order of input edge ids.
template <class In, class Index, class EdgeId>
void fill_csc(const In* sources, const In* destinations, int64_t count, int64_t num_nodes,
              const int64_t* indptr, Index* indices, EdgeId* edge_ids);

// Writes inclusive sums of the values, added one by one from the begin of each list.
void sum_lists(const int64_t* indptr, int64_t lists, const double* values, double* sums);

// Sorts the edges of a graph by target, in a stable order, by source: ptr [sources + 1]; the target
// (int32) of each edge and its position in the order by target. Gradients flow along them. The
// result does not depend on the number of threads.
template <class EdgeId>
void transpose(const int64_t* indptr, Integers indices, int64_t targets, int64_t sources, int64_t* ptr,
               int32_t* target, EdgeId* edge, int64_t threads);

}  // namespace pyg_batchgnn
