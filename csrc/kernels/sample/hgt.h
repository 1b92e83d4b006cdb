// Samples one minibatch by budgets: HGSampling of the Heterogeneous Graph Transformer (Hu, Dong,
// Wang and Sun 2020, algorithm 1). docs/concepts/sampling-contract.md gives the law.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sample/graph.h"
#include "kernels/sample/hgt_candidates.h"
#include "kernels/sample/plan.h"
#include "kernels/sample/sample.h"

namespace pyg_batchgnn {

struct HgtPlan {
  std::vector<int64_t> samples;  // [types, hops] nodes to sample in each hop; kAllNeighbours: all
  int64_t hops;
  int64_t cap;                         // neighbours that count for a node and relation; kAllNeighbours: all
  std::vector<uint64_t> type_digest;   // by type, of its name
  std::vector<size_t> relation_order;  // numbers of the relations, as budgets are summed
  bool edge_ids;                       // returns input edge ids
  uint64_t seed;
  uint64_t epoch;
};

// Returns the numbers of the relations by ascending digest of their names. No sum depends on the
// order in which a graph has its relations.
template <class Index>
std::vector<size_t> by_digest(const std::vector<Relation<Index>>& relations);

// The memory that a thread keeps between minibatches.
template <class Index>
struct HgtScratch {
  std::vector<Candidates<MapId<Index>>> types;
  BudgetDraw draw;
  NodeMap<uint64_t> picked;
  RowLists lists;
};

// Edges have no hops: edges_per_hop is zero. Throws as sample_minibatch does.
template <class Index, class Local>
SampledMinibatch<Local> sample_hgt(const TypedGraph<Index>& graph, const HgtPlan& plan, const Seeds& seeds,
                                   Layout layout, HgtScratch<Index>& scratch);

}  // namespace pyg_batchgnn
