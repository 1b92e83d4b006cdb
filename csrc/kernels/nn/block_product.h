// Products of blocks in the caches with any number of rows, by the loop for many or for few zeros.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/nn/row_block.h"

namespace pyg_batchgnn {

// out[r, :] += sum over s of values[r * row_step + s * value_step] * x[s, :], with `words` only
// over the terms in bits(words[r]), at most kWordBits.
template <class T>
struct BlockProduct {
  const uint64_t* words;  // [rows] or null
  const T* values;
  int64_t row_step, value_step;
  int64_t rows, terms, columns;
  const T* x;
  int64_t x_stride;
  T* out;
  int64_t out_stride;
};

// For fewer rows than a tile has. The other rows of the tile are computed and discarded.
template <class T>
void multiply_last_rows(const BlockProduct<T>& p, int64_t vectors) {
  constexpr int64_t kMostWidth = 64;
  const ProductKernels<T>& kernels = product_kernels<T>();
  PrefetchQueue nothing;
  const T* starts[kTileRows];
  T tile[kTileRows * kMostWidth];
  for (int64_t r = 0; r < kTileRows; ++r) starts[r] = p.values + std::min(r, p.rows - 1) * p.row_step;
  const int64_t step = kernels.panel / kernels.width;
  for (int64_t first = 0; first < vectors; first += step) {
    const int64_t count = std::min(step, vectors - first), width = count * kernels.width;
    const int64_t at = first * kernels.width;
    for (int64_t r = 0; r < kTileRows; ++r) {
      std::copy_n(p.out + std::min(r, p.rows - 1) * p.out_stride + at, width, tile + r * width);
    }
    kernels.dense(
        {starts, p.value_step, kTileRows, p.terms, count, p.x + at, p.x_stride, tile, width, true, &nothing});
    for (int64_t r = 0; r < p.rows; ++r) std::copy_n(tile + r * width, width, p.out + r * p.out_stride + at);
  }
}

// `pointers` is scratch memory.
template <class T>
void multiply_block(const BlockProduct<T>& p, std::vector<const T*>& pointers, PrefetchQueue& prefetch) {
  const ProductKernels<T>& kernels = product_kernels<T>();
  const int64_t vectors = round_up(p.columns, kernels.width) / kernels.width;
  if (p.words != nullptr) {
    return multiply_sparse<T>({p.words, 1, p.values, p.row_step, p.value_step, p.rows, vectors, p.x,
                               p.x_stride, p.out, p.out_stride, &prefetch},
                              p.terms);
  }
  const int64_t whole = p.rows / kTileRows * kTileRows;
  pointers.resize(static_cast<size_t>(whole));
  for (int64_t r = 0; r < whole; ++r) pointers[static_cast<size_t>(r)] = p.values + r * p.row_step;
  if (whole != 0) {
    kernels.dense({pointers.data(), p.value_step, whole, p.terms, vectors, p.x, p.x_stride, p.out,
                   p.out_stride, true, &prefetch});
  }
  if (whole == p.rows) return;
  BlockProduct<T> last = p;
  last.values += whole * p.row_step;
  last.out += whole * p.out_stride;
  last.rows -= whole;
  multiply_last_rows(last, vectors);
}

}  // namespace pyg_batchgnn
