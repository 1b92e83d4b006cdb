// Picks from adjacency lists, in groups with overlapping cache misses.
#pragma once

#include <cstdint>

#include "kernels/choose.h"
#include "kernels/growth.h"

namespace pyg_batchgnn {

// The graph by destination, or some of its destinations. The in-neighbours of row v are
// indices[indptr[v] .. indptr[v + 1]), in ascending order of input edge ids.
template <class Index>
struct Csc {
  const int64_t* indptr;  // [num_nodes + 1]
  const Index* indices;   // [num_edges] source nodes
  const void* edge_ids;   // [num_edges] int32 or int64 input edge ids; null: the position is the id
  bool wide_edge_ids;     // edge_ids are int64
  int64_t num_nodes;      // rows
};

// The memory that a thread keeps between minibatches. Its size is bounded by the largest minibatch.
template <class Index>
struct Scratch {
  NodeMap<MapId<Index>> local;
  NodeMap<uint64_t> picked;
  Buffer<int64_t> first;     // the begin of the adjacency of each destination of a hop
  Buffer<int64_t> position;  // the positions of the picks of a hop in `indices`
};

// Writes the positions of `picks` picks of one list and prefetches their entries.
template <class Index>
void pick(const Chooser& choose, uint64_t node_key, int64_t first, int64_t degree, int64_t picks,
          const Index* indices, int64_t* position) {
  if (picks == 0) return;
  choose(node_key, first, degree, position);
  // For a long list prefetched lines would be evicted before they are read.
  if (picks > kBlock) return;
  for (int64_t p = 0; p < picks; ++p) __builtin_prefetch(&indices[position[p]]);
}

// Converts positions to input edge ids; may work in place.
template <class EdgeId, class Out>
void translate(const EdgeId* ids, const int64_t* position, int64_t count, Out* edge) {
  constexpr int64_t kAhead = 64;
  for (int64_t e = 0; e < count; ++e) {
    if (e + kAhead < count) __builtin_prefetch(&ids[position[e + kAhead]]);
    edge[e] = static_cast<Out>(ids[position[e]]);
  }
}

template <class Index, class Out>
void translate_edge_ids(const Csc<Index>& graph, const int64_t* position, int64_t count, Out* edge) {
  if (graph.wide_edge_ids) {
    translate(static_cast<const int64_t*>(graph.edge_ids), position, count, edge);
  } else {
    translate(static_cast<const int32_t*>(graph.edge_ids), position, count, edge);
  }
}

}  // namespace pyg_batchgnn
