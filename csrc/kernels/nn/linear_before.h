// The gradients of the layer before, whose ReLU made the input and whose own input takes no
// gradient. Nothing else reads the gradient of the input, so it is never written.
#pragma once

#include <algorithm>

#include "kernels/allocation.h"
#include "kernels/nn/linear_grads_blocks.h"

namespace pyg_batchgnn {

template <class T>
class BeforeGrads {
 public:
  BeforeGrads(const LinearBefore& before, int64_t outputs, Element compute)
      : before_(before), rows_(before.input, compute), outputs_(outputs) {}

  // The number of sums of one part: weight and bias side by side, [outputs, stride].
  int64_t elements() const { return outputs_ * stride(); }

  // Adds the block of rows from `begin`. Their gradient is dots[o, i] for the bits of words[o].
  void add(int64_t begin, int64_t rows, const uint64_t* words, SparseRows rows_at_once, const T* dots,
           T* sums, RowBlock<T>& x, PrefetchQueue& prefetch) const {
    rows_.read(begin, begin + rows, x);
    // A column of ones gives the sums of the bias. There is room between columns and stride.
    for (int64_t i = 0; i < rows; ++i) x.values.data()[i * x.stride + x.columns] = T{1};
    const int64_t width = product_kernels<T>().width;
    multiply_sparse<T>({words, 1, dots, kWordBits, 1, outputs_, round_up(x.columns + 1, width) / width,
                        x.values.data(), x.stride, sums, stride(), &prefetch, rows_at_once},
                       kWordBits);
  }

  void write(const T* sums) const {
    const ProductKernels<T>& kernels = product_kernels<T>();
    const int64_t columns = before_.input.columns, item = element_bytes(before_.element);
    Buffer<T> bias;
    bias.reserve(outputs_ + 1);
    for (int64_t o = 0; o < outputs_; ++o, sums += stride()) {
      kernels.write(sums, columns, before_.element, static_cast<char*>(before_.weight) + o * columns * item);
      bias.data()[o] = sums[columns];
    }
    kernels.write(bias.data(), outputs_, before_.element, before_.bias);
  }

 private:
  int64_t stride() const { return block_stride<T>(before_.input.columns + 1); }

  const LinearBefore& before_;
  InputRows<T> rows_;
  int64_t outputs_;
};

}  // namespace pyg_batchgnn
