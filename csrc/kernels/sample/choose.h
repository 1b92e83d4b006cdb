// The choice of the positions of one adjacency list.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/allocation.h"
#include "kernels/random.h"
#include "kernels/sample/nodes.h"

namespace pyg_batchgnn {

constexpr int64_t kAllNeighbours = -1;

constexpr int64_t kShortPicks = 40;  // up to here comparisons with earlier picks beat a table

enum class Replacement { kWithout, kWith };

// Returns how many of `degree` neighbours a fanout picks.
inline int64_t picks_of(int64_t degree, int64_t fanout, Replacement replacement) {
  if (fanout == kAllNeighbours) return degree;
  if (degree == 0) return 0;
  return replacement == Replacement::kWith ? fanout : std::min(degree, fanout);
}

// The places that are picked already, of `picks` in all. A long list of picks has a table.
class TakenPlaces {
 public:
  explicit TakenPlaces(NodeMap<uint64_t>& table) : table_(table) {}

  void begin(int64_t picks) {
    is_long_ = picks > kShortPicks;
    if (!is_long_) return;
    table_.begin();
    table_.reserve(picks + 1, static_cast<const int64_t*>(nullptr), 0);
  }

  // Returns whether `place` is among the first `got` entries of `out`; a long list remembers it.
  bool contains(const int64_t* out, int64_t got, int64_t place) {
    if (is_long_) {
      const auto fresh = static_cast<uint32_t>(got);
      return table_.find_or_insert(static_cast<uint64_t>(place), fresh) != fresh;
    }
    bool taken = false;
    for (int64_t i = 0; i < got; ++i) taken |= out[i] == place;
    return taken;
  }

 private:
  NodeMap<uint64_t>& table_;
  bool is_long_ = false;
};

// Draws positions.
class Chooser {
 public:
  Chooser(int64_t fanout, Replacement replacement, NodeMap<uint64_t>* picked)
      : fanout_(fanout), replacement_(replacement), taken_(*picked) {}

  // Writes picks_of(degree, ...) positions, each offset by `first`, in the order of the draws.
  void operator()(uint64_t node_key, int64_t first, int64_t degree, int64_t* out) const {
    if (fanout_ == kAllNeighbours || (replacement_ == Replacement::kWithout && degree <= fanout_)) {
      for (int64_t i = 0; i < degree; ++i) out[i] = first + i;
    } else if (replacement_ == Replacement::kWith) {
      WordStream words(node_key);
      const int64_t picks = degree == 0 ? 0 : fanout_;
      for (int64_t i = 0; i < picks; ++i) out[i] = first + draw(words, degree);
    } else {
      floyd(node_key, first, degree, out);
    }
  }

 private:
  static int64_t draw(WordStream& words, int64_t n) {
    return static_cast<int64_t>(words.bounded(static_cast<uint64_t>(n)));
  }

  // Floyd's sampling without replacement (Bentley and Floyd 1987): the j-th draw is from [0, j]. If
  // it hits a taken position, j is picked, which cannot be taken yet.
  void floyd(uint64_t node_key, int64_t first, int64_t degree, int64_t* out) const {
    WordStream words(node_key);
    TakenPlaces taken = taken_;
    taken.begin(fanout_);
    for (int64_t i = 0; i < fanout_; ++i) {
      const int64_t j = degree - fanout_ + i;
      const int64_t position = first + draw(words, j + 1);
      out[i] = taken.contains(out, i, position) ? first + j : position;
      if (fanout_ > kShortPicks) taken.contains(out, i, out[i]);  // remembers it
    }
  }

  int64_t fanout_;
  Replacement replacement_;
  TakenPlaces taken_;
};

}  // namespace pyg_batchgnn
