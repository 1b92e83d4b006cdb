// Layer-neighbour sampling (LABOR, Balin and Catalyurek 2023): the destinations of a minibatch share
// one random word for each source, and take the in-edges with the smallest words.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/random.h"
#include "kernels/sample/graph.h"
#include "kernels/sample/temporal.h"
#include "kernels/simd/scan.h"

namespace pyg_batchgnn {

// Returns -log(u) for u = ((word >> 11) + 1/2) / 2^53, rounded to float64. The arithmetic is written
// down to the last rounding, so that all processors agree. With u = f 2^e, f around 1 and
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
  std::vector<uint64_t> word, word_left;
  std::vector<double> value, value_left;
  std::vector<int64_t> entry;
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

  // Writes the `picks` smallest words of the places from `begin` on, fewer than `count`.
  void operator()(int64_t begin, int64_t count, int64_t picks, int64_t* out) {
    // Of words below this limit there are about four standard deviations more than picks.
    const auto wanted = static_cast<double>(picks);
    const double share = (wanted + 4 * std::sqrt(wanted) + 8) / static_cast<double>(count);
    const uint64_t limit = share >= 1 ? kMost : static_cast<uint64_t>(share * 0x1p64);
    if (below(begin, count, limit) < picks) below(begin, count, kMost);
    smallest(scratch_.word, scratch_.word_left, picks, out);
    for (int64_t p = 0; p < picks; ++p) out[p] += begin;
  }

  // Writes those of places that are listed. Where there are weights, those of zero are left out, and
  // the smallest -log(u) / weight are taken: successive draws in proportion to weights.
  void listed(const int64_t* place, int64_t count, int64_t picks, int64_t* out) {
    scratch_.entry.clear();
    scratch_.value.clear();
    scratch_.word.clear();
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t word = source_word(key_, static_cast<int64_t>(source_[place[i]]));
      if (weight_ == nullptr) {
        scratch_.word.push_back(word);
      } else if (weight_[place[i]] > 0) {
        scratch_.value.push_back(exponential(word) / weight_[place[i]]);
      } else {
        continue;
      }
      scratch_.entry.push_back(place[i]);
    }
    if (weight_ == nullptr) return smallest(scratch_.word, scratch_.word_left, picks, out);
    smallest(scratch_.value, scratch_.value_left, picks, out);
  }

 private:
  static constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

  // Finds the words up to a limit, and returns how many there are.
  int64_t below(int64_t begin, int64_t count, uint64_t limit) {
    constexpr int64_t kWords = 512;
    uint64_t block[kWords];
    int64_t found = 0;
    for (int64_t first = 0; first < count; first += kWords) {
      const int64_t words = std::min(kWords, count - first);
      const auto room = static_cast<size_t>(found + words);
      if (scratch_.entry.size() < room) scratch_.entry.resize(2 * room);
      if (scratch_.word.size() < room) scratch_.word.resize(2 * room);
      source_words(source_ + begin + first, words, key_, block);
      for (int64_t i = 0; i < words; ++i) {
        scratch_.entry[static_cast<size_t>(found)] = first + i;
        scratch_.word[static_cast<size_t>(found)] = block[i];
        found += block[i] <= limit ? 1 : 0;
      }
    }
    scratch_.entry.resize(static_cast<size_t>(found));
    scratch_.word.resize(static_cast<size_t>(found));
    return found;
  }

  // Writes the entries of the `picks` smallest values in their order; of equal ones the first.
  template <class T>
  void smallest(const std::vector<T>& value, std::vector<T>& left, int64_t picks, int64_t* out) const {
    left = value;
    const auto last = left.begin() + (picks - 1);
    std::nth_element(left.begin(), last, left.end());
    const T largest = *last;
    int64_t equal = picks - std::count_if(left.begin(), last, [&](T one) { return one < largest; });
    for (size_t i = 0; picks > 0; ++i) {
      if (value[i] > largest || (value[i] == largest && equal-- <= 0)) continue;
      *out++ = scratch_.entry[i];
      --picks;
    }
  }

  const Index* source_;  // original ids
  const double* weight_;
  const uint64_t key_;
  LaborScratch& scratch_;
};

}  // namespace pyg_batchgnn
