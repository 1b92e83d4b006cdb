// The edges of a target that may be picked.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sample/exclusion.h"
#include "kernels/sample/graph.h"
#include "kernels/sample/naming.h"
#include "kernels/sample/pick.h"
#include "kernels/sample/temporal.h"

namespace pyg_batchgnn {

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
    for (int64_t place = places.begin; place < places.end; ++place) {
      const auto source = static_cast<int64_t>(edges.indices[position(place)]);
      if (!own.contains(source) && !any.contains(source)) listed_.push_back(place);
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
