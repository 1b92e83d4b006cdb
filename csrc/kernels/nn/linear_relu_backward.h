// The gradients of a weight and of an input that a ReLU made. The latter is wanted only where the
// ReLU passed.
#pragma once

#include <algorithm>

#include "kernels/allocation.h"
#include "kernels/nn/linear_blocks.h"
#include "kernels/nn/row_block.h"

namespace pyg_batchgnn {

// The weight of one input, transposed: [columns, outputs].
template <class T>
class ReluBackwardWeight {
 public:
  ReluBackwardWeight(int64_t outputs, int64_t columns, const T* weight, int64_t weight_stride)
      : outputs_(outputs), columns_(columns), stride_(block_stride<T>(outputs)) {
    T* to = transposed_.reserve(columns * stride_ + 1);
    for (int64_t k = 0; k < columns; ++k, to += stride_) {
      for (int64_t o = 0; o < outputs; ++o) to[o] = weight[o * weight_stride + k];
      std::fill(to + outputs, to + stride_, T{0});
    }
  }

  int64_t dot_elements() const { return columns_ * kWordBits; }

  // For each element (i, k) of the input that is not zero,
  // sums[k, :] += input[i, k] * grad[i, :] and dots[k, i] = grad[i, :] . weight[:, k]; otherwise
  // dots[k, i] = 0.
  void add_grads(const RowBlock<T>& grad, const RowBlock<T>& input, T* sums, int64_t sums_stride, T* dots,
                 PrefetchQueue& prefetch) const {
    const ProductKernels<T>& kernels = product_kernels<T>();
    kernels.relu_backward({input.by_column.data(), input.values.data(), input.stride, columns_,
                           round_up(outputs_, kernels.width) / kernels.width, grad.values.data(), grad.stride,
                           transposed_.data(), stride_, sums, sums_stride, dots, &prefetch});
  }

  // out[i, k] = dots[k, i].
  void transpose(const T* dots, int64_t rows, T* out, int64_t out_stride) const {
    constexpr int64_t kSquare = 16;
    for (int64_t column = 0; column < columns_; column += kSquare) {
      const int64_t end = std::min(columns_, column + kSquare);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t k = column; k < end; ++k) out[i * out_stride + k] = dots[k * kWordBits + i];
      }
    }
  }

 private:
  int64_t outputs_, columns_, stride_;
  Buffer<T> transposed_;
};

}  // namespace pyg_batchgnn
