// The edges of a target that may be picked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/sample/graph.h"
#include "kernels/sample/nodes.h"
#include "kernels/sample/pick.h"
#include "kernels/sample/plan.h"
#include "kernels/sample/temporal.h"

namespace pyg_batchgnn {

constexpr int64_t kAnyExample = -1;

// The pairs of nodes of one relation between which a minibatch must not use edges, in ascending
// order of (example, target, source). In the place of its source ~e stands for edge e alone.
class ExcludedPairs {
 public:
  ExcludedPairs() = default;
  ExcludedPairs(const int64_t* example, const int64_t* target, const int64_t* source, int64_t count)
      : example_(example), target_(target), source_(source), count_(count) {}

  // The sources and edges that are excluded for one target.
  struct Sources {
    const int64_t *begin, *end;
    bool empty() const { return begin == end; }
    bool names_edges() const { return begin != end && *begin < 0; }
    bool contains(int64_t node) const { return std::binary_search(begin, end, node); }
  };

  bool empty() const { return count_ == 0; }

  Sources of(int64_t example, int64_t target) const {
    return {source_ + bound<false>(example, target), source_ + bound<true>(example, target)};
  }

 private:
  // Returns the first pair that does not lie before (example, target) or, with kAfter, lies behind.
  template <bool kAfter>
  int64_t bound(int64_t example, int64_t target) const {
    int64_t low = 0, high = count_;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      const bool before = example_[middle] != example ? example_[middle] < example
                          : target_[middle] != target ? target_[middle] < target
                                                      : kAfter;
      (before ? low : high) = before ? middle + 1 : middle;
    }
    return low;
  }

  const int64_t *example_ = nullptr, *target_ = nullptr, *source_ = nullptr;
  int64_t count_ = 0;
};

// Returns the pairs of one relation among those of a minibatch.
inline ExcludedPairs excluded_pairs(const Seeds& seeds, int64_t relation) {
  if (seeds.excluded_begin == seeds.excluded_end) return {};
  const int64_t *relations = seeds.excluded + seeds.excluded_stride,
                *examples = relations + seeds.excluded_stride;
  const auto [begin, end] =
      std::equal_range(relations + seeds.excluded_begin, relations + seeds.excluded_end, relation);
  const int64_t* example = examples + (begin - relations);
  return {example, example + seeds.excluded_stride, example + 2 * seeds.excluded_stride, end - begin};
}

// Finds what is allowed: by time, then without the excluded pairs.
template <class Index>
class AllowedEdges {
 public:
  AllowedEdges(const Relation<Index>& relation, int64_t window, const int64_t* latest, ExcludedPairs excluded,
               std::vector<int64_t>& listed)
      : relation_(relation), window_(window), latest_(latest), excluded_(excluded), listed_(listed) {}

  void clear() { listed_.clear(); }
  const int64_t* listed() const { return listed_.data(); }

  // Returns a search for the places that a target's time allows.
  TimeRange search(Target target) const {
    return {relation_.time.time, list(target), latest_[target.example], window_};
  }

  Allowed of(Target target) {
    if (relation_.time.time == nullptr) return of(target, list(target));
    TimeRange range = search(target);
    range.guess();
    range.improve();
    return of(target, range.places());
  }

  // The same where it is known what the time allows.
  Allowed of(Target target, Places places) {
    const Csc<Index>& edges = relation_.edges;
    const int64_t list = edges.indptr[target.node];
    if (excluded_.empty()) return {list, places, false};
    const auto own = excluded_.of(target.example, target.node), any = excluded_.of(kAnyExample, target.node);
    if (own.empty() && any.empty()) return {list, places, false};
    const auto first = static_cast<int64_t>(listed_.size());
    const auto hides = [&](int64_t code) { return own.contains(code) || any.contains(code); };
    const bool names_edges = own.names_edges() || any.names_edges();
    for (int64_t place = places.begin; place < places.end; ++place) {
      const int64_t at = position(place);
      if (hides(static_cast<int64_t>(edges.indices[at]))) continue;
      if (names_edges && hides(~(edges.edge_ids ? edges.edge_ids[at] : at))) continue;
      listed_.push_back(place);
    }
    return {list, {first, static_cast<int64_t>(listed_.size())}, true};
  }

  // Returns the position in `indices` of a place.
  int64_t position(int64_t place) const { return relation_.time[place]; }

 private:
  Places list(Target target) const {
    const int64_t* ends = relation_.edges.indptr + target.node;
    return {ends[0], ends[1]};
  }

  const Relation<Index>& relation_;
  const int64_t window_;
  const int64_t* latest_;  // by example
  const ExcludedPairs excluded_;
  std::vector<int64_t>& listed_;
};

}  // namespace pyg_batchgnn
