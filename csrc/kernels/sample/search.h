// Searches in ascending values, near a guess or from the ends.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/prefetch.h"

namespace pyg_batchgnn {

// Returns the first entry above x among the entries low to high - 1, high - 1 if no other is. A
// binary search without branches, which no processor could predict here.
template <class T>
int64_t first_above(const T* value, int64_t low, int64_t high, T x) {
  const T* first = value + low;
  for (int64_t left = high - low; left > 1;) {
    const int64_t half = left / 2;
    first += half & -static_cast<int64_t>(first[half - 1] <= x);
    left -= half;
  }
  return first - value;
}

// Returns the first of `count` entries above x. The last one is above x. Searches the cache line of
// the guess, then the lines around it in steps that double. The entries of one line are counted:
// that is fewer steps behind each other.
template <class T>
int64_t first_above_near(const T* value, int64_t count, T x, int64_t guess) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const auto in_line = static_cast<int64_t>(reinterpret_cast<uintptr_t>(value + guess) / sizeof(T)) % kLine;
  int64_t low = std::max<int64_t>(0, guess - in_line), high = std::min(count, guess - in_line + kLine);
  int64_t step = kLine;
  if (value[low] > x) {
    for (high = low + 1; low > 0 && value[low] > x; step *= 2) {
      high = low + 1;
      low = std::max<int64_t>(0, low - step);
    }
  } else {
    for (; value[high - 1] <= x; step *= 2) {
      low = high;
      high = std::min(count, high + step);
    }
  }
  if (high - low != kLine) return first_above(value, low, high, x);
  int64_t found = low;
  for (int64_t i = 0; i < kLine; ++i) found += value[low + i] <= x ? 1 : 0;
  return found;
}

// Prefetches what a search near a guess most likely reads.
template <class T>
void prefetch_near(const T* value, int64_t guess) {
  constexpr int64_t kAround = 16 / sizeof(T);
  prefetch_line(value + guess - kAround);
  prefetch_line(value + guess + kAround);
}

}  // namespace pyg_batchgnn
