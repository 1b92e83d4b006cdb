#include "kernels/simd/scan.h"

#include <algorithm>
#include <bit>

#include "kernels/simd/dispatch.h"

namespace pyg_batchgnn {
namespace {

#define PYG_BATCHGNN_BODY __attribute__((always_inline)) inline

template <class T>
PYG_BATCHGNN_BODY Extent extent_body(const T* values, int64_t count) {
  if (count == 0) return {0, -1};
  T low = values[0], high = values[0];
  for (int64_t i = 1; i < count; ++i) {
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
  }
  return {low, high};
}

// In blocks without a way out of the middle, which the compiler can turn into vector instructions.
template <class T>
PYG_BATCHGNN_BODY bool ascending_body(const T* values, int64_t count) {
  constexpr int64_t kBlock = 1024;
  for (int64_t begin = 1; begin < count; begin += kBlock) {
    int64_t falls = 0;
    for (int64_t i = begin; i < std::min(begin + kBlock, count); ++i) falls += values[i] < values[i - 1];
    if (falls != 0) return false;
  }
  return true;
}

PYG_BATCHGNN_BODY int64_t set_bits_body(const uint64_t* words, int64_t count) {
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) total += std::popcount(words[i]);
  return total;
}

PYG_BATCHGNN_VARIANTS(Extent, extent_32, extent_body, (const int32_t* v, int64_t n), (v, n))
PYG_BATCHGNN_VARIANTS(Extent, extent_64, extent_body, (const int64_t* v, int64_t n), (v, n))
PYG_BATCHGNN_VARIANTS(bool, ascending_32, ascending_body, (const int32_t* v, int64_t n), (v, n))
PYG_BATCHGNN_VARIANTS(bool, ascending_64, ascending_body, (const int64_t* v, int64_t n), (v, n))
PYG_BATCHGNN_VARIANTS(int64_t, set_bits, set_bits_body, (const uint64_t* w, int64_t n), (w, n))

}  // namespace

Extent scan_extent(const int32_t* values, int64_t count) { return extent_32(values, count); }
Extent scan_extent(const int64_t* values, int64_t count) { return extent_64(values, count); }
bool scan_ascending(const int32_t* values, int64_t count) { return ascending_32(values, count); }
bool scan_ascending(const int64_t* values, int64_t count) { return ascending_64(values, count); }
int64_t scan_set_bits(const uint64_t* words, int64_t count) { return set_bits(words, count); }

}  // namespace pyg_batchgnn
