// Operands of forward and backward passes, read block by block and rounded to the type of the
// computation.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/nn/linear.h"

namespace pyg_batchgnn {

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Returns the distance between rows of a block, in elements: at least `columns` and an odd number
// of cache lines. So a column of a block is spread over many sets of the cache.
template <class T>
int64_t block_stride(int64_t columns) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const int64_t lines = (columns + kLine - 1) / kLine;
  return (lines | 1) * kLine;
}

// Reads `count` elements as T, rounded to bfloat16 if `compute` is.
template <class T>
void read_rounded(const void* from, Element element, Element compute, int64_t count, T* to) {
  const ProductKernels<T>& kernels = product_kernels<T>();
  kernels.read(from, element, count, to);
  if (compute != Element::kBFloat16 || element == Element::kBFloat16) return;
  uint16_t rounded[256];
  for (int64_t at = 0; at < count; at += 256) {
    const int64_t size = std::min<int64_t>(256, count - at);
    kernels.write(to + at, size, Element::kBFloat16, rounded);
    kernels.read(rounded, Element::kBFloat16, size, to + at);
  }
}

template <class T>
void read_rounded(const LinearWeight& weight, Element compute, int64_t count, T* to) {
  read_rounded(weight.data, weight.element, compute, count, to);
}

template <class T>
constexpr Element kElement = std::is_same_v<T, double> ? Element::kFloat64 : Element::kFloat32;

// Outputs of at least this size are written past the caches, because they would be evicted before
// they are read.
constexpr int64_t kStreamedBytes = 8 << 20;

// Products of fewer rows are computed quickly either way. They keep the bits of the dense product.
constexpr int64_t kManyRows = 1024;

// The rows of the next block, which are fetched while the current block is computed.
class BlockPrefetch {
 public:
  void clear() { rows_.clear(); }
  void add(const void* row, int64_t bytes) {
    const char* const first = static_cast<const char*>(row);
    if (bytes != 0) rows_.push_back({first, first + bytes});
  }
  void add(const LinearInput& input, int64_t begin, int64_t end) {
    const int64_t bytes = input.columns * element_bytes(input.element);
    for (int64_t i = begin; i < end && bytes != 0; ++i) add(input.row(i), bytes);
  }
  // Starts to fetch what was added since `clear`.
  void start() { queue = {rows_.data(), rows_.data() + rows_.size()}; }

  PrefetchQueue queue;

 private:
  std::vector<PrefetchQueue::Row> rows_;
};

}  // namespace pyg_batchgnn
