// The graph that is sampled: adjacency lists by relation, with their times and weights.
#pragma once

#include <cstdint>
#include <vector>

namespace pyg_batchgnn {

// The edges of one relation by target, or of some of its targets. The in-neighbours of row v are
// indices[indptr[v] .. indptr[v + 1]), in ascending order of input edge ids.
template <class Index>
struct Csc {
  const int64_t* indptr;  // [num_nodes + 1]
  const Index* indices;   // [num_edges] source nodes
  const void* edge_ids;   // [num_edges] int32 or int64 input edge ids; null: the position is the id
  bool wide_edge_ids;     // edge_ids are int64
  int64_t num_nodes;      // rows
};

// The edges of each adjacency list in ascending order of (time, input edge id).
struct TimeOrder {
  const int64_t* time = nullptr;   // [num_edges] ascending in each list; null: no times
  const void* position = nullptr;  // [num_edges] int32 or int64, the position of each edge in `indices`
  bool wide = false;               // positions are int64

  int64_t operator[](int64_t place) const {
    return wide ? static_cast<const int64_t*>(position)[place] : static_cast<const int32_t*>(position)[place];
  }
};

// The weights of the edges, in the time order if there is one, else as in `indices`.
struct EdgeWeights {
  const double* sum = nullptr;        // [num_edges] inclusive sums from the begin of each list; null: uniform
  const double* weight = nullptr;     // [num_edges] not negative
  const int64_t* positive = nullptr;  // [num_edges + 1] positive weights before; null: all are positive
};

template <class Index>
struct Relation {
  Csc<Index> edges;
  int64_t source = 0, target = 0;  // numbers of the node types
  uint64_t digest = 0;             // of its names
  TimeOrder time;
  EdgeWeights weights;
};

template <class Index>
struct TypedGraph {
  using Id = Index;
  std::vector<int64_t> num_nodes;  // by type
  std::vector<Relation<Index>> relations;

  // A graph of one type and one relation folds no names into its keys.
  bool plain() const { return num_nodes.size() == 1 && relations.size() == 1; }
};

}  // namespace pyg_batchgnn
