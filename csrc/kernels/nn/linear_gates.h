// The gradient of an input that a ReLU made: wanted only where that passed, element by element.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/nn/linear_blocks.h"
#include "kernels/nn/row_block.h"

namespace pyg_batchgnn {

// The weight of one input, transposed: [columns, outputs].
template <class T>
class GatedWeight {
 public:
  // Whether a layer's gradients can be summed element by element.
  static bool fits(const LinearShape& shape) {
    return shape.groups == 1 && shape.outputs > 0 && shape.outputs <= kMostDotTerms<T>;
  }

  GatedWeight(int64_t outputs, int64_t columns, const T* weight, int64_t weight_stride)
      : columns_(columns), terms_(round_up(outputs, kWordBits)), stride_(block_stride<T>(terms_)) {
    T* to = turned_.reserve(columns * stride_ + 1);
    for (int64_t k = 0; k < columns; ++k, to += stride_) {
      for (int64_t o = 0; o < outputs; ++o) to[o] = weight[o * weight_stride + k];
      std::fill(to + outputs, to + stride_, T{0});
    }
  }

  // out[i, k] = grad[i, :] . weight[:, k] where the input's element (i, k) is not zero, else 0.
  void multiply(const RowBlock<T>& grad, const RowBlock<T>& input, T* out, int64_t out_stride,
                Ahead& ahead) const {
    std::fill_n(out, grad.rows * out_stride, T{0});
    const int64_t row_bytes = stride_ * static_cast<int64_t>(sizeof(T));
    const int64_t step = std::clamp<int64_t>(kCacheBytes / row_bytes, 1, kWordBits);
    uint64_t words[kWordBits];
    for (int64_t first = 0; first < columns_; first += step) {
      const int64_t count = std::min(step, columns_ - first);
      for (int64_t i = 0; i < grad.rows; ++i) words[i] = input.row_bits(i, first, count);
      product_kernels<T>().dots({words, grad.values.data(), grad.stride, grad.rows, terms_,
                                 turned_.data() + first * stride_, stride_, out + first, out_stride, &ahead});
    }
  }

 private:
  int64_t columns_, terms_, stride_;
  Buffer<T> turned_;
};

}  // namespace pyg_batchgnn
