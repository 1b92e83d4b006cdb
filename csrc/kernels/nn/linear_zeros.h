// Products that skip the zeros of an input, as ReLU and dropout leave them.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/nn/linear_blocks.h"
#include "kernels/nn/row_block.h"

namespace pyg_batchgnn {

// The weight of one input, transposed: [columns of all groups, outputs of a group]. Worthwhile if a
// sample of the input has many zeros and the weight is finite, so that a zero adds nothing.
template <class T>
class SkippingWeight {
 public:
  using Block = RowBlock<T>;

  SkippingWeight(const LinearShape& shape, const LinearInput& input, const LinearWeight& weight)
      : outputs_(shape.group_outputs()),
        columns_(input.columns / shape.groups),
        stride_(block_stride<T>(outputs_)),
        many_rows_(shape.rows >= kManyRows) {
    const double density =
        sampled_density<T>(shape.rows, [&](int64_t begin, int64_t end, RowBlock<T>& block) {
          read_block(input, shape.compute, begin, end, block);
        });
    if (density >= kDense) return;
    const int64_t count = shape.outputs * columns_;
    Buffer<T> rounded;
    read_rounded(weight, shape.compute, count, rounded.reserve(count + 1));
    worthwhile_ = std::all_of(rounded.data(), rounded.data() + count, [](T w) { return std::isfinite(w); });
    if (!worthwhile_) return;
    T* const to = transposed_.reserve(input.columns * stride_ + 1);
    std::fill_n(to, input.columns * stride_, T{0});
    for (int64_t o = 0; o < shape.outputs; ++o) {
      T* const column = to + o / outputs_ * columns_ * stride_ + o % outputs_;
      for (int64_t k = 0; k < columns_; ++k) column[k * stride_] = rounded.data()[o * columns_ + k];
    }
  }

  bool worthwhile() const { return worthwhile_; }

  // Reads rows and returns whether their zeros are skipped.
  bool read(const LinearInput& input, Element compute, int64_t begin, int64_t end, Block& block) const {
    read_block(input, compute, begin, end, block);
    return block.sparse;
  }

  // sums[i, :] += sum over the non-zeros k of x[i, k] * weight[:, k].
  void add(int64_t group, const RowBlock<T>& x, T* sums, int64_t sums_stride, PrefetchQueue& prefetch) const {
    const int64_t width = product_kernels<T>().width;
    const SparseRows rows_at_once = many_rows_ ? x.rows_at_once : SparseRows::kOne;
    std::vector<uint64_t> words(static_cast<size_t>(x.rows));
    for (int64_t first = 0; first < columns_; first += kWordBits) {
      const int64_t count = std::min(kWordBits, columns_ - first), column = group * columns_ + first;
      for (int64_t i = 0; i < x.rows; ++i) words[static_cast<size_t>(i)] = x.row_bits(i, column, count);
      multiply_sparse<T>(
          {words.data(), 1, x.row(0) + column, x.stride, 1, x.rows, round_up(outputs_, width) / width,
           transposed_.data() + column * stride_, stride_, sums, sums_stride, &prefetch, rows_at_once},
          count);
    }
  }

 private:
  int64_t outputs_, columns_, stride_;
  bool many_rows_;
  bool worthwhile_ = false;
  Buffer<T> transposed_;
};

}  // namespace pyg_batchgnn
