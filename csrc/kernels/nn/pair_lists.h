// Lists of the non-zeros of bfloat16 rows, and their products.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/allocation.h"
#include "kernels/nn/linear_blocks.h"
#include "kernels/simd/sparse_pairs.h"

namespace pyg_batchgnn {

constexpr int64_t kBlockTerms = kListTerms + 1;  // rows of x per block of lists; the last one is
                                                 // zero

struct Lists {
  Buffer<int32_t> starts;
  Buffer<uint8_t> terms;
  Buffer<uint16_t> values;

  PairLists room(int64_t rows) {
    const int64_t most = (rows + 1) * kListTerms;
    return {starts.reserve(rows + 1), terms.reserve(most), values.reserve(most)};
  }
};

// Computes a product in pieces, so that the block of x stays in the first cache.
inline void multiply_lists(const ListProduct& p) {
  constexpr int64_t kWidth = 16;         // sums of a vector
  constexpr int64_t kCacheVectors = 14;  // of a block of kBlockTerms rows
  const int64_t vectors = (p.columns + kWidth - 1) / kWidth;
  const int64_t pieces = (vectors + kCacheVectors - 1) / kCacheVectors;
  int64_t first = 0;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    // Two vectors are folded together.
    const int64_t last = std::min(vectors, round_up(vectors * (piece + 1) / pieces, 2));
    if (first != last) {
      ListProduct part = p;
      part.columns = std::min(p.columns, last * kWidth) - first * kWidth;
      part.x += first * kWidth;
      part.out += first * kWidth;
      sparse_pair_kernels()->multiply(part);
    }
    first = last;
  }
}

}  // namespace pyg_batchgnn
