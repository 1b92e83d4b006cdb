// The graph that is sampled: adjacency lists by relation, with their times and weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/operand.h"
#include "kernels/prefetch.h"
#include "kernels/random.h"

namespace pyg_batchgnn {

// The edges of one relation by target, or of some of its targets. The in-neighbours of row v are
// indices[indptr[v] .. indptr[v + 1]), in ascending order of input edge ids.
template <class Index>
struct Csc {
  const int64_t* indptr;  // [num_nodes + 1]
  const Index* indices;   // [num_edges] source nodes
  Integers edge_ids;      // [num_edges] input edge ids; false: the position is the id
  int64_t num_nodes;      // rows
};

// The edges of each adjacency list in ascending order of (time, input edge id).
struct TimeOrder {
  const int64_t* time = nullptr;  // [num_edges] ascending in each list; null: no times
  Integers position{};            // [num_edges] of each edge in `indices`; false: the order is the same

  int64_t operator[](int64_t place) const { return position ? position[place] : place; }
  void prefetch(int64_t place) const {
    prefetch_line(static_cast<const char*>(position.data) + place * (position.wide ? 8 : 4));
  }
};

// The weights of the edges, in the time order if there is one, else as in `indices`.
struct EdgeWeights {
  const double* sum = nullptr;        // [num_edges] inclusive sums from the begin of each list; null: uniform
  const double* weight = nullptr;     // [num_edges] not negative
  const int64_t* positive = nullptr;  // [num_edges + 1] positive weights before; null: all are positive
  const uint64_t* zeros = nullptr;    // a bit per target, set if its list has weights of zero; may be null

  bool may_have_zeros(int64_t target) const {
    if (positive == nullptr || zeros == nullptr) return positive != nullptr;
    const auto at = static_cast<uint64_t>(target);
    return ((zeros[at / 64] >> (at % 64)) & 1) != 0;
  }
};

template <class Index>
struct Relation {
  Csc<Index> edges;
  int64_t source = 0, target = 0;     // numbers of the node types
  uint64_t digest = 0;                // of its names
  uint64_t source_digest = 0;         // of the name of its source type
  const Index* source_ids = nullptr;  // [num_edges] original ids of sources; null: `indices` holds them
  TimeOrder time;
  EdgeWeights weights;
};

// Returns EdgeWeights::zeros for all targets of a relation.
template <class Index>
std::vector<uint64_t> lists_with_zeros(const Csc<Index>& edges, const int64_t* positive) {
  std::vector<uint64_t> bits(static_cast<size_t>(edges.num_nodes / 64 + 1));
  for (int64_t target = 0; target < edges.num_nodes; ++target) {
    const int64_t begin = edges.indptr[target], end = edges.indptr[target + 1];
    const uint64_t has = positive[end] - positive[begin] < end - begin ? 1 : 0;
    bits[static_cast<size_t>(target / 64)] |= has << (target % 64);
  }
  return bits;
}

template <class Index>
struct TypedGraph {
  using Id = Index;
  std::vector<int64_t> num_nodes;  // by type
  std::vector<Relation<Index>> relations;

  // A graph of one type and one relation folds no names into its keys.
  bool plain() const { return num_nodes.size() == 1 && relations.size() == 1; }

  // Returns the key of a relation's choices; words by source are shared by a type's relations.
  uint64_t key(const Relation<Index>& relation, bool by_source, uint64_t key_of_hop) const {
    if (plain()) return key_of_hop;
    return fold(key_of_hop, by_source ? relation.source_digest : relation.digest);
  }
};

}  // namespace pyg_batchgnn
