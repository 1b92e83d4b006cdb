// Samples one minibatch by budgets: HGSampling of the Heterogeneous Graph Transformer (Hu, Dong,
// Wang and Sun 2020, algorithm 1). docs/concepts/sampling-contract.md gives the law.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/sample/between.h"
#include "kernels/sample/graph.h"
#include "kernels/sample/plan.h"
#include "kernels/sample/sample.h"
#include "kernels/sample/weighted.h"

namespace pyg_batchgnn {

// The nodes of one type in sampling by budgets: those that are sampled, and the candidates.

// Draws different candidates in proportion to their squared budgets.
class BudgetDraw {
 public:
  // Returns `wanted` positions in `budget`, fewer than there are, valid until the next draw.
  const std::vector<int64_t>& operator()(uint64_t key, const std::vector<double>& budget, int64_t wanted) {
    weight_.clear();
    for (const double one : budget) weight_.push_back(one * one);
    sum_.resize(weight_.size());
    std::partial_sum(weight_.begin(), weight_.end(), sum_.begin());
    picks_.resize(static_cast<size_t>(wanted));
    WeightedChooser choose({sum_.data(), weight_.data(), nullptr}, scratch_);
    const Places all{0, static_cast<int64_t>(budget.size())};
    drawn_.resize(static_cast<size_t>(wanted));
    choose.guess(key, 0, all, wanted, drawn_.data(), picks_.data());  // draws from a range begin at guesses
    choose.improve(0, all, wanted, drawn_.data(), picks_.data());
    choose.without_replacement(key, 0, all, wanted, drawn_.data(), picks_.data());
    return picks_;
  }

 private:
  std::vector<double> weight_, sum_, drawn_;
  std::vector<int64_t> picks_;
  WeightedScratch scratch_;
};

// Every node that is seen has a slot: first the seeds, then the candidates in the order in which
// they were found. Sampled nodes have rows, the local ids.
template <class Id>
class Candidates {
 public:
  // Starts a minibatch. A seed that occurs twice has two rows; as a source the first stands for it.
  void begin(const int64_t* seeds, int64_t count, int64_t num_nodes) {
    seen_ = Nodes<Id>();
    seen_.take_seeds(seeds, count, num_nodes);
    seen_.enter(slots_);
    row_.resize(static_cast<size_t>(count));
    std::iota(row_.begin(), row_.end(), 0);
    sampled_ = row_;
    budget_.assign(static_cast<size_t>(count), 0.0);
    open_.clear();
    first_ = 0;
  }

  // The rows that the latest hop found are first() to rows().
  int64_t first() const { return first_; }
  int64_t rows() const { return static_cast<int64_t>(sampled_.size()); }
  int64_t node(int64_t row) const { return seen_.code()[sampled_[static_cast<size_t>(row)]]; }

  // Returns whether a row is the first of its node.
  bool is_first(int64_t row) const { return find(static_cast<Id>(node(row))) == row; }

  void prefetch(Id node) const { slots_.prefetch(node); }

  // Returns the row of a node, -1 if it is not sampled.
  int64_t find(Id node) const {
    const int64_t slot = slots_.find(node);
    return slot < 0 ? -1 : row_[static_cast<size_t>(slot)];
  }

  // Makes room for `count` more nodes, at most kBlock. Called before prefetching.
  void prepare(int64_t count) {
    seen_.make_room(count);
    seen_.prepare(slots_, count);
  }

  // Adds to the budget of each node that is not sampled. The nodes are prefetched.
  void add(const Id* node, const double* share, int64_t count) {
    uint32_t slot[kBlock];
    seen_.relabel(slots_, node, count, slot);
    for (auto fresh = static_cast<int64_t>(row_.size()); fresh < seen_.count(); ++fresh) {
      open_.push_back(fresh);
      row_.push_back(-1);
      budget_.push_back(0.0);
    }
    for (int64_t e = 0; e < count; ++e) {
      if (row_[slot[e]] < 0) budget_[slot[e]] += share[e];
    }
  }

  // Samples `wanted` candidates, all for kAllNeighbours. Returns their number.
  int64_t sample(uint64_t key, int64_t wanted, BudgetDraw& draw) {
    first_ = rows();
    if (wanted == 0) return 0;
    if (wanted == kAllNeighbours || static_cast<int64_t>(open_.size()) <= wanted) {
      for (const int64_t slot : open_) take(slot);
    } else {
      offered_.clear();
      for (const int64_t slot : open_) offered_.push_back(budget_[static_cast<size_t>(slot)]);
      for (const int64_t pick : draw(key, offered_, wanted)) take(open_[static_cast<size_t>(pick)]);
    }
    std::erase_if(open_, [this](int64_t slot) { return row_[static_cast<size_t>(slot)] >= 0; });
    return rows() - first_;
  }

 private:
  void take(int64_t slot) {
    row_[static_cast<size_t>(slot)] = rows();
    sampled_.push_back(slot);
  }

  Nodes<Id> seen_;
  NodeMap<Id> slots_;
  std::vector<int64_t> row_;      // by slot; -1: not sampled
  std::vector<double> budget_;    // by slot
  std::vector<int64_t> sampled_;  // the slot of each row
  std::vector<int64_t> open_;     // slots of the candidates, in order
  std::vector<double> offered_;   // the budgets of the candidates
  int64_t first_ = 0;
};

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
std::vector<size_t> by_digest(const std::vector<Relation<Index>>& relations) {
  std::vector<size_t> order(relations.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return relations[a].digest < relations[b].digest; });
  return order;
}

// The memory that a thread keeps between minibatches.
template <class Index>
struct HgtScratch {
  std::vector<Candidates<MapId<Index>>> types;
  BudgetDraw draw;
  NodeMap<uint64_t> picked;
  RowLists lists;
};

// Edges have no hops: edges_per_hop is zero. Throws as sample_minibatch does.
template <class Index>
SampledMinibatch sample_hgt(const TypedGraph<Index>& graph, const HgtPlan& plan, const Seeds& seeds,
                            HgtScratch<Index>& scratch);

}  // namespace pyg_batchgnn
