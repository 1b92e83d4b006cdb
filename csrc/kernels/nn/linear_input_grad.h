// The gradient of one input of a dense layer, one block of rows at a time.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/nn/block_product.h"
#include "kernels/nn/linear.h"
#include "kernels/nn/linear_parts.h"

namespace pyg_batchgnn {

template <class T>
class InputGrad {
 public:
  // `out` may be null if nothing is written.
  InputGrad(const LinearShape& shape, const LinearInput& input, const LinearWeight& weight, void* out)
      : kernels_(product_kernels<T>()),
        shape_(shape),
        input_(input),
        columns_(input.columns / shape.groups),
        stride_(block_stride<T>(columns_)),
        out_(static_cast<char*>(out)) {
    const int64_t count = shape.outputs * columns_;
    Buffer<T> rounded;
    read_rounded(weight, shape.compute, count, rounded.reserve(count + 1));
    T* const to = weight_.reserve(shape.outputs * stride_ + 1);
    for (int64_t o = 0; o < shape.outputs; ++o) {
      std::copy_n(rounded.data() + o * columns_, columns_, to + o * stride_);
      std::fill_n(to + o * stride_ + columns_, stride_ - columns_, T{0});
    }
  }

  int64_t stride() const { return stride_; }          // between rows of a group's columns
  const T* weight() const { return weight_.data(); }  // [outputs, stride], rounded

  // d_input[i, :] = sum over o of grad[i, o] * weight[o, :], for the rows from `begin`. `product`
  // and `pointers` are scratch memory.
  void write(int64_t begin, const RowBlock<T>& grad, T* product, std::vector<const T*>& pointers,
             PrefetchQueue& prefetch) const {
    const int64_t outputs = shape_.group_outputs();
    const bool sparse = grad.sparse;
    const int64_t step_outputs = sparse ? kWordBits : outputs;
    uint64_t words[kGradBlockRows];
    for (int64_t group = 0; group < shape_.groups; ++group) {
      std::fill_n(product, grad.rows * stride_, T{0});
      for (int64_t first = 0; first < outputs; first += step_outputs) {
        const int64_t count = std::min(step_outputs, outputs - first), column = group * outputs + first;
        for (int64_t i = 0; sparse && i < grad.rows; ++i) words[i] = grad.row_bits(i, column, count);
        multiply_block<T>({sparse ? words : nullptr, grad.values.data() + column, grad.stride, 1, grad.rows,
                           count, columns_, weight() + column * stride_, stride_, product, stride_},
                          pointers, prefetch);
      }
      store(begin, group, grad.rows, product);
    }
  }

  // Writes rows from `begin` of the columns of one group, in the type of the input.
  void store(int64_t begin, int64_t group, int64_t rows, const T* product) const {
    const int64_t item = element_bytes(input_.element), step = input_.columns * item;
    char* const to = out_ + begin * step + group * columns_ * item;
    const bool lines = columns_ * item % PrefetchQueue::kLine == 0 && step % PrefetchQueue::kLine == 0 &&
                       reinterpret_cast<uintptr_t>(to) % PrefetchQueue::kLine == 0;
    const bool streamed = lines && input_.element == kElement<T> && shape_.rows * step >= kStreamedBytes;
    for (int64_t i = 0; i < rows; ++i) {
      if (streamed) {
        kernels_.stream(product + i * stride_, columns_ * item, to + i * step);
      } else {
        kernels_.write(product + i * stride_, columns_, input_.element, to + i * step);
      }
    }
  }

 private:
  const ProductKernels<T>& kernels_;
  const LinearShape& shape_;
  const LinearInput& input_;
  int64_t columns_, stride_;
  Buffer<T> weight_;
  char* out_;
};

}  // namespace pyg_batchgnn
