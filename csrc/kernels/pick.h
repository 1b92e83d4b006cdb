// Picking from adjacency lists, in groups whose cache misses overlap.
#pragma once

#include <cstdint>

#include "kernels/choose.h"
#include "kernels/growth.h"

namespace pyg_batchgnn {

// The graph by destination, or some of its destinations. In-neighbours of row v: indices[indptr[v] ..
// indptr[v + 1]), in ascending input edge id.
template <class Index>
struct Csc {
  const int64_t* indptr;  // [num_nodes + 1]
  const Index* indices;   // [num_edges] source nodes
  const void* edge_ids;   // [num_edges] int32 or int64 input edge ids; null: the position is the id
  bool wide_edge_ids;     // edge_ids are int64
  int64_t num_nodes;      // rows
};

// What a thread keeps from minibatch to minibatch. Bounded by the largest minibatch, not by the graph.
template <class Index>
struct Scratch {
  NodeMap<MapId<Index>> local;
  NodeMap<uint64_t> picked;
  Buffer<int64_t> first;     // of a hop's destinations: where their adjacency begins
  Buffer<int64_t> position;  // of a hop's picks in the graph's `indices`
};

// Writes the positions of `picks` picks of one list, and prefetches what stands there.
template <class Index>
void pick(const Chooser& choose, uint64_t node_key, int64_t first, int64_t degree, int64_t picks,
          const Index* indices, int64_t* position) {
  if (picks == 0) return;
  choose(node_key, first, degree, position);
  // What is prefetched for a long list would be gone again before it is read.
  if (picks > kBlock) return;
  for (int64_t p = 0; p < picks; ++p) __builtin_prefetch(&indices[position[p]]);
}

// From positions to input edge ids; may be in place.
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
