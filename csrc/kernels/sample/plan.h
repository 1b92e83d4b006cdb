// The plan by which minibatches are sampled, and the seeds of one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/sample/choose.h"

namespace pyg_batchgnn {

enum class Subgraph { kDirectional, kInduced };
enum class Temporal { kUniform, kLast };

// The number of neighbours to pick for a node: a count, or a share of the allowed ones.
struct Fanout {
  int64_t count = 0;   // kAllNeighbours for all
  double share = 0.0;  // in (0, 1]; 0: the count holds

  bool none() const { return count == 0 && share == 0.0; }
  int64_t of(int64_t allowed) const {
    if (share == 0.0 || allowed == 0) return count;
    // A product such as 0.1 * 30 may come out a little too large.
    return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share * static_cast<double>(allowed) - 1e-9)));
  }
};

struct Plan {
  std::vector<int64_t> fanouts;  // by hop, from the seeds on, hops of relation 0 first
  Replacement replacement;
  bool edge_ids;  // returns input edge ids
  uint64_t seed;
  uint64_t epoch;
  int64_t hops = static_cast<int64_t>(fanouts.size());
  std::vector<double> shares = {};  // as fanouts; empty: counts only
  Temporal temporal = Temporal::kUniform;
  int64_t window = -1;  // allowed times go back this far from the seed's; -1: without end
  Subgraph subgraph = Subgraph::kDirectional;

  Fanout fanout(int64_t relation, int64_t hop) const {
    const auto at = static_cast<size_t>(relation * hops + hop);
    return {fanouts[at], shares.empty() ? 0.0 : shares[at]};
  }
};

// The seeds of one minibatch. Types follow the order of the graph.
struct Seeds {
  const int64_t* node;               // [ptr[types]] valid ids within their types
  const int64_t* ptr;                // [types + 1] the begin of each type's seeds, from 0
  uint64_t key;                      // the digest of the seeds
  const int64_t* example = nullptr;  // as node, numbers of examples; null: nothing is disjoint
  const int64_t* time = nullptr;     // as node, the time of each seed's example
  // [5, excluded_stride] minibatch, relation, example, target and source of each excluded pair, in
  // ascending order; those of this minibatch are the columns `excluded_begin` to `excluded_end`.
  const int64_t* excluded = nullptr;
  int64_t excluded_stride = 0, excluded_begin = 0, excluded_end = 0;
};

}  // namespace pyg_batchgnn
