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

// Draws positions. Keeps the table of Floyd's algorithm for long lists of picks.
class Chooser {
 public:
  Chooser(int64_t fanout, Replacement replacement, NodeMap<uint64_t>* picked)
      : fanout_(fanout), replacement_(replacement), picked_(picked) {}

  // Writes picks_of(degree, ...) positions, each offset by `first`, in the order of the draws.
  void operator()(uint64_t node_key, int64_t first, int64_t degree, int64_t* out) const {
    if (fanout_ == kAllNeighbours || (replacement_ == Replacement::kWithout && degree <= fanout_)) {
      for (int64_t i = 0; i < degree; ++i) out[i] = first + i;
    } else if (replacement_ == Replacement::kWith) {
      WordStream words(node_key);
      const int64_t picks = degree == 0 ? 0 : fanout_;
      for (int64_t i = 0; i < picks; ++i) out[i] = first + draw(words, degree);
    } else if (fanout_ <= kShortPicks) {
      floyd_short(node_key, first, degree, out);
    } else {
      floyd_long(node_key, first, degree, out);
    }
  }

 private:
  static int64_t draw(WordStream& words, int64_t n) {
    return static_cast<int64_t>(words.bounded(static_cast<uint64_t>(n)));
  }

  // Floyd's sampling without replacement (Bentley and Floyd 1987): the j-th draw is from [0, j]. If
  // it hits a taken position, j is picked, which cannot be taken yet.
  void floyd_short(uint64_t node_key, int64_t first, int64_t degree, int64_t* out) const {
    WordStream words(node_key);
    for (int64_t i = 0; i < fanout_; ++i) {
      const int64_t j = degree - fanout_ + i;
      const int64_t position = first + draw(words, j + 1);
      bool taken = false;
      for (int64_t earlier = 0; earlier < i; ++earlier) taken |= out[earlier] == position;
      out[i] = taken ? first + j : position;
    }
  }

  void floyd_long(uint64_t node_key, int64_t first, int64_t degree, int64_t* out) const {
    WordStream words(node_key);
    picked_->begin();
    picked_->reserve(fanout_, out, 0);
    for (int64_t i = 0; i < fanout_; ++i) {
      const int64_t j = degree - fanout_ + i;
      const int64_t position = first + draw(words, j + 1);
      const auto fresh = static_cast<uint32_t>(i);
      const bool taken = picked_->find_or_insert(static_cast<uint64_t>(position), fresh) != fresh;
      out[i] = taken ? first + j : position;
      if (taken) picked_->find_or_insert(static_cast<uint64_t>(first + j), fresh);
    }
  }

  int64_t fanout_;
  Replacement replacement_;
  NodeMap<uint64_t>* picked_;
};

}  // namespace pyg_batchgnn
