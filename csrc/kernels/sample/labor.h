// Layer-neighbour sampling (LABOR, Balin and Catalyurek 2023): the destinations of a minibatch
// share one random word for each source, and take the in-edges with the smallest words.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

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
    prefetch_line(&source_[begin + count - 1]);
  }

  // Writes those of the `count` places from `begin` on that have the `picks` smallest words.
  void operator()(int64_t begin, int64_t count, int64_t picks, int64_t* out) {
    // Of words below this limit there are about two standard deviations more than picks.
    const double share = (static_cast<double>(picks) + 2 * std::sqrt(static_cast<double>(picks)) + 2) /
                         static_cast<double>(count);
    uint64_t limit = share < 0.5 ? static_cast<uint64_t>(share * 0x1p64) | kPlaceOfWord : kMost;
    uint64_t* word = scratch_.word.reserve(count + kWordGroup);
    int64_t found = words_below(source_ + begin, count, key_, limit, word);
    while (found < picks && limit < kMost) {
      limit = limit < kMost / 2 ? 2 * limit + 1 : kMost;
      found = words_below(source_ + begin, count, key_, limit, word);
    }
    if (count > kLongest || found < picks || !least(word, found, picks, begin, out)) {
      listed(nullptr, begin, count, picks, out);
    }
  }

  // Writes those of places that are listed, or of those from `begin` on. Where there are weights,
  // those of zero are left out, and the smallest -log(u) / weight are taken: successive draws in
  // proportion to weights.
  void listed(const int64_t* place, int64_t begin, int64_t count, int64_t picks, int64_t* out) {
    int64_t* entry = scratch_.entry.reserve(count);
    uint64_t* word = scratch_.word.reserve(count);
    int64_t found = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = place == nullptr ? begin + i : place[i];
      if (weight_ != nullptr && !(weight_[at] > 0)) continue;
      entry[found] = at;
      word[found] = source_word(key_, static_cast<int64_t>(source_[at]));
      // Positive numbers have the order of their bits.
      if (weight_ != nullptr) word[found] = std::bit_cast<uint64_t>(exponential(word[found]) / weight_[at]);
      ++found;
    }
    smallest(word, found, picks, out);
  }

 private:
  // A place is below kLongest. The words above the largest limit are few.
  static constexpr uint64_t kMost = ~uint64_t{0} - kPlaceOfWord - 1;
  static constexpr auto kLongest = static_cast<int64_t>(kPlaceOfWord);

  // Picks by the upper bits of words and by places. Returns false if these do not decide between
  // two sources.
  bool least(uint64_t* word, int64_t found, int64_t picks, int64_t begin, int64_t* out) const {
    int64_t* place = scratch_.entry.reserve(found + kWordGroup);
    if (found <= kFewWords && least_words(word, found, picks, place)) {
      for (int64_t p = 0; p < picks; ++p) out[p] = begin + place[p];
      return true;
    }
    const auto place_of = [&](uint64_t one) { return begin + static_cast<int64_t>(one & kPlaceOfWord); };
    std::transform(word, word + found, place, place_of);
    const uint64_t last = smallest(word, found, picks, out), upper = last | kPlaceOfWord;
    return std::none_of(word, word + found, [&](uint64_t one) {
      return (one | kPlaceOfWord) == upper && source_[place_of(one)] != source_[place_of(last)];
    });
  }

  // Writes the entries of the `picks` smallest of `count` values in their order; of equal ones the
  // first. Returns the largest of them.
  uint64_t smallest(const uint64_t* value, int64_t count, int64_t picks, int64_t* out) const {
    uint64_t* left = scratch_.word_left.reserve(count);
    std::copy_n(value, count, left);
    const uint64_t* last = left + (picks - 1);
    std::nth_element(left, left + (picks - 1), left + count);
    int64_t equal =
        picks - std::count_if(left, left + (picks - 1), [&](uint64_t one) { return one < *last; });
    const int64_t* entry = scratch_.entry.data();
    for (int64_t i = 0; picks > 0; ++i) {
      if (value[i] > *last || (value[i] == *last && equal-- <= 0)) continue;
      *out++ = entry[i];
      --picks;
    }
    return *last;
  }

  const Index* source_;  // original ids
  const double* weight_;
  const uint64_t key_;
  LaborScratch& scratch_;
};

}  // namespace pyg_batchgnn
