// Sampling one minibatch: FastSample's fused kernel (section 3.2), which writes the compressed graph
// directly.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/choose.h"
#include "kernels/node_map.h"

namespace pyg_batchgnn {

// The graph by destination. In-neighbours of v: indices[indptr[v] .. indptr[v + 1]), in ascending input edge
// id.
template <class Index>
struct Csc {
  const int64_t* indptr;  // [num_nodes + 1]
  const Index* indices;   // [num_edges] source nodes
  const void* edge_ids;   // [num_edges] int32 or int64 input edge ids; null: the position is the id
  bool wide_edge_ids;     // edge_ids are int64
  int64_t num_nodes;
};

struct Plan {
  std::vector<int64_t> fanouts;  // by hop, nearest the seeds first; kAllNeighbours for all
  Replacement replacement;
  bool edge_ids;  // whether the user wants them
  uint64_t seed;
  uint64_t epoch;
};

// One sampled minibatch. The arrays are blocks (allocation.h) that the receiver releases.
template <class Local>
struct Sampled {
  Buffer<int64_t> node;    // [nodes] ids in order of discovery, seeds first
  Buffer<int64_t> indptr;  // [destinations + 1]
  Buffer<Local>
      edges;  // [edges] local sources; with destinations, [2, edges] sources then local destinations
  Buffer<int64_t> edge;  // [edges] input edge ids, empty where not wanted
  int64_t nodes = 0, destinations = 0, edge_count = 0;
  std::vector<int64_t> nodes_per_hop;  // [hops + 1]
  std::vector<int64_t> edges_per_hop;  // [hops]
};

// What a thread keeps from minibatch to minibatch. Bounded by the largest minibatch, not by the graph.
template <class Index>
struct Scratch {
  using Id = std::conditional_t<sizeof(Index) == 4, uint32_t, uint64_t>;
  NodeMap<Id> local;
  NodeMap<uint64_t> picked;
  Buffer<int64_t> first;     // of a hop's destinations: where their adjacency begins
  Buffer<int64_t> position;  // of a hop's picks in the graph's `indices`
};

enum class Layout { kCsc, kCoo };  // kCoo adds the destinations to `edges`, as PyG's edge_index has them

// `seeds` are valid node ids. Throws std::bad_alloc, or std::length_error where local ids would exceed 2^31.
template <class Index, class Local>
Sampled<Local> sample_minibatch(const Csc<Index>& graph, const Plan& plan, const int64_t* seeds,
                                int64_t count, Layout layout, Scratch<Index>& scratch);

}  // namespace pyg_batchgnn
