// From an edge list to the graph by destination.
#pragma once

#include <cstdint>

#include "kernels/simd/scan.h"

namespace pyg_batchgnn {

// On at most `threads` threads; {0, -1} where there is no entry.
template <class T>
Extent extent(const T* values, int64_t count, int64_t threads);

// indptr[v + 1] - indptr[v] = how often v occurs among `destinations`; indptr has num_nodes + 1 entries.
template <class T>
void count_destinations(const T* destinations, int64_t count, int64_t num_nodes, int64_t* indptr);

// Sources by destination and, where `edge_ids` is not null, the input edge each came from: stable, so that an
// adjacency list is in ascending input edge id.
template <class In, class Index, class EdgeId>
void fill_csc(const In* sources, const In* destinations, int64_t count, int64_t num_nodes,
              const int64_t* indptr, Index* indices, EdgeId* edge_ids);

}  // namespace pyg_batchgnn
