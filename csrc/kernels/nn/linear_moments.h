// The moments of the columns of a product, taken block by block while a block lies in the cache.
#pragma once

#include <algorithm>

#include "kernels/allocation.h"
#include "kernels/nn/moments.h"
#include "kernels/simd/covariance.h"

namespace pyg_batchgnn {

// The cut into blocks depends only on the number of rows, and blocks are joined in order. So the
// bits do not depend on the number of threads.
class BlockMoments {
 public:
  // Makes room for the moments of all blocks.
  BlockMoments(int64_t rows, int64_t block_rows, int64_t columns)
      : rows_(rows), block_rows_(block_rows), columns_(columns) {
    parts_.reserve(2 * columns * blocks() + 1);
  }

  // Takes the moments of columns [first, first + block.columns) of the block that begins at `row`,
  // with `bias` added. The center is the mean of a few rows. If it is far from the mean of the
  // block, the deviation is as large as the rounding error.
  template <class T>
  void take(int64_t row, int64_t first, const StridedRows<T>& block, const T* bias) const {
    const ColumnMoments all = part(row / block_rows_);
    T center[kColumns], sum[kColumns], square[kColumns];
    for (int64_t at = 0; at < block.columns; at += kColumns) {
      const int64_t count = std::min(kColumns, block.columns - at);
      const StridedRows<T> some{block.data + at, block.stride, block.rows, count};
      row_mean({some.data, some.stride, std::min(kFirstRows, some.rows), count}, center);
      for (int64_t c = 0; c < count; ++c) center[c] += bias[at + c];
      shifted_sums(some, bias + at, center, sum, square);
      to_moments(center, sum, square, some.rows, count, {all.mean + first + at, all.deviation + first + at});
    }
  }

  void join_all(ColumnMoments out) const {
    std::fill_n(out.mean, columns_, 0.0);
    std::fill_n(out.deviation, columns_, 0.0);
    for (int64_t block = 0; block < blocks(); ++block) {
      const int64_t before = block * block_rows_;
      join(out, before, part(block), std::min(block_rows_, rows_ - before), columns_);
    }
  }

 private:
  static constexpr int64_t kColumns = 64;  // rows of a block that stay in the first cache
  static constexpr int64_t kFirstRows = 8;

  int64_t blocks() const { return (rows_ + block_rows_ - 1) / block_rows_; }
  ColumnMoments part(int64_t block) const {
    double* const begin = parts_.data() + 2 * columns_ * block;
    return {begin, begin + columns_};
  }

  int64_t rows_, block_rows_, columns_;
  Buffer<double> parts_;  // [blocks][mean, deviation][columns]
};

}  // namespace pyg_batchgnn
