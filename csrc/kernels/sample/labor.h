// Layer-neighbour sampling (LABOR, Balin and Catalyurek 2023): the destinations of a minibatch
// share one random word for each source, and take the in-edges with the smallest words.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/allocation.h"
#include "kernels/random.h"
#include "kernels/sample/graph.h"
#include "kernels/sample/temporal.h"
#include "kernels/simd/scan.h"

namespace pyg_batchgnn {

// Returns -log(u) for u = ((word >> 11) + 1/2) / 2^53, rounded to float64. The arithmetic is
// written down to the last rounding, so that all processors agree. With u = f 2^e, f around 1 and
// s = (f - 1) / (f + 1), log(f) = 2 (s + s^3 / 3 + ... + s^21 / 21).
inline double exponential(uint64_t word) {
  constexpr double kLog2 = 0x1.62e42fefa39efp-1, kRoot = 0x1.6a09e667f3bcdp-1;  // log(2), sqrt(1/2)
  int e = 0;
  double f = std::frexp((static_cast<double>(word >> 11) + 0.5) * 0x1p-53, &e);
  if (f < kRoot) {
    f *= 2.0;
    e -= 1;
  }
  const double s = (f - 1.0) / (f + 1.0), z = s * s;
  double sum = 1.0 / 21.0;
  for (int odd = 19; odd >= 1; odd -= 2) sum = std::fma(z, sum, 1.0 / static_cast<double>(odd));
  return std::fma(static_cast<double>(-e), kLog2, -2.0 * s * sum);
}

// The memory of a LaborChooser, kept between minibatches.
struct LaborScratch {
  Buffer<int64_t> entry;
  Buffer<uint64_t> word, word_left;
  Buffer<double> value, value_left;
};

// Picks from lists of places by the words of their sources. Parallel edges share a word; of equal
// ones the first edges are taken. Picks come in the order of the list.
template <class Index>
class LaborChooser {
 public:
  LaborChooser(const Relation<Index>& relation, uint64_t key, LaborScratch& scratch)
      : source_(relation.source_ids == nullptr ? relation.edges.indices : relation.source_ids),
        weight_(relation.weights.weight),
        key_(key),
        scratch_(scratch) {}

  // Prefetches the sources of a list, of a long one the first.
  void touch(int64_t begin, int64_t count) const {
    constexpr int64_t kEach = 64 / sizeof(Index), kLines = 16;
    for (int64_t i = 0; i < std::min(count, kLines * kEach); i += kEach) prefetch_line(&source_[begin + i]);
  }

  // Writes those of the `count` places from `begin` on that have the `picks` smallest words.
  void operator()(int64_t begin, int64_t count, int64_t picks, int64_t* out) {
    // Of words below this limit there are about three standard deviations more than picks.
    const double share = (static_cast<double>(picks) + 3 * std::sqrt(static_cast<double>(picks)) + 4) /
                         static_cast<double>(count);
    const uint64_t limit = share < 1 ? static_cast<uint64_t>(share * 0x1p64) : kMost;
    uint64_t* word = scratch_.word.reserve(count + kWordGroup);
    int64_t* entry = scratch_.entry.reserve(count + kWordGroup);
    int64_t found = words_below(source_ + begin, count, key_, limit, word, entry);
    if (found < picks) found = words_below(source_ + begin, count, key_, kMost, word, entry);
    if (found > kFewWords || !least_words(word, found, picks, entry, out)) {
      smallest(word, scratch_.word_left.reserve(found), found, picks, out);
    }
    for (int64_t p = 0; p < picks; ++p) out[p] += begin;
  }

  // Writes those of places that are listed. Where there are weights, those of zero are left out,
  // and the smallest -log(u) / weight are taken: successive draws in proportion to weights.
  void listed(const int64_t* place, int64_t count, int64_t picks, int64_t* out) {
    int64_t* entry = scratch_.entry.reserve(count);
    uint64_t* word = scratch_.word.reserve(count);
    double* value = scratch_.value.reserve(count);
    int64_t found = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (weight_ != nullptr && !(weight_[place[i]] > 0)) continue;
      entry[found] = place[i];
      word[found] = source_word(key_, static_cast<int64_t>(source_[place[i]]));
      if (weight_ != nullptr) value[found] = exponential(word[found]) / weight_[place[i]];
      ++found;
    }
    if (weight_ == nullptr) return smallest(word, scratch_.word_left.reserve(found), found, picks, out);
    smallest(value, scratch_.value_left.reserve(found), found, picks, out);
  }

 private:
  static constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

  // Writes the entries of the `picks` smallest of `count` values in their order; of equal ones the
  // first.
  template <class T>
  void smallest(const T* value, T* left, int64_t count, int64_t picks, int64_t* out) const {
    std::copy_n(value, count, left);
    T* last = left + (picks - 1);
    std::nth_element(left, last, left + count);
    int64_t equal = picks - std::count_if(left, last, [&](T one) { return one < *last; });
    const int64_t* entry = scratch_.entry.data();
    for (int64_t i = 0; picks > 0; ++i) {
      if (value[i] > *last || (value[i] == *last && equal-- <= 0)) continue;
      *out++ = entry[i];
      --picks;
    }
  }

  const Index* source_;  // original ids
  const double* weight_;
  const uint64_t key_;
  LaborScratch& scratch_;
};

}  // namespace pyg_batchgnn
