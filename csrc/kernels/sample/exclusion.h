// The pairs of nodes of one relation between which a minibatch must not use edges.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/sample/plan.h"

namespace pyg_batchgnn {

constexpr int64_t kAnyExample = -1;

// Pairs in ascending order of (example, target, source).
class ExcludedPairs {
 public:
  ExcludedPairs() = default;
  ExcludedPairs(const int64_t* example, const int64_t* target, const int64_t* source, int64_t count)
      : example_(example), target_(target), source_(source), count_(count) {}

  // The sources that are excluded for one target.
  struct Sources {
    const int64_t *begin, *end;
    bool empty() const { return begin == end; }
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

}  // namespace pyg_batchgnn
