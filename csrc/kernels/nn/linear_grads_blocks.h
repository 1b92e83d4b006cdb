// Blocks of rows for the products of gradients: converted, masked or centred, with their zeros
// known.
#pragma once

#include <algorithm>

#include "kernels/allocation.h"
#include "kernels/nn/linear_normed.h"
#include "kernels/nn/row_block.h"

namespace pyg_batchgnn {

// The rows of the gradient of the output.
template <class T>
class GradientRows {
 public:
  GradientRows(int64_t outputs, const LinearGradient& gradient) : outputs_(outputs), gradient_(gradient) {}

  // Reads rows [begin, end).
  void read(int64_t begin, int64_t end, RowBlock<T>& block) const {
    block.resize(end - begin, outputs_);
    if (gradient_.norm != nullptr) return read_normed(begin, end, block);
    const int64_t mask_bytes = (outputs_ + 7) / 8;
    const char* const grad = static_cast<const char*>(gradient_.grad);
    product_kernels<T>().masked_grad(
        {grad + begin * outputs_ * element_bytes(gradient_.element), gradient_.element, outputs_,
         gradient_.mask == nullptr ? nullptr : gradient_.mask + begin * mask_bytes, mask_bytes,
         static_cast<T>(gradient_.scale), block.rows, outputs_, block.values.data(), block.stride,
         block.by_row.data()});
    block.count_zeros();
    if (block.sparse) block.find_columns();
  }

  // Returns the share of non-zeros in a sample.
  double density(int64_t rows) const {
    if (gradient_.norm != nullptr) return 1.0;
    return sampled_density<T>(
        rows, [&](int64_t begin, int64_t end, RowBlock<T>& block) { read(begin, end, block); });
  }

 private:
  // A gradient behind a normalisation has no zeros.
  void read_normed(int64_t begin, int64_t end, RowBlock<T>& block) const {
    Buffer<Bfloat16> rounded;
    const bool narrow = gradient_.element == Element::kBFloat16;
    if (narrow) rounded.reserve(outputs_ + 1);
    for (int64_t i = begin; i < end; ++i) {
      T* const to = block.values.data() + (i - begin) * block.stride;
      if (narrow) {
        normed_row(gradient_, i, outputs_, rounded.data());
        product_kernels<T>().read(rounded.data(), Element::kBFloat16, outputs_, to);
      } else {
        normed_row(gradient_, i, outputs_, to);
      }
      std::fill(to + outputs_, to + block.words * kWordBits, T{0});
    }
    block.sparse = false;
  }

  int64_t outputs_;
  const LinearGradient& gradient_;
};

// The rows of an input.
template <class T>
class InputRows {
 public:
  InputRows(const LinearInput& input, Element compute) : input_(input), compute_(compute) {
    if (input.center == nullptr) return;
    std::transform(input.center, input.center + input.columns, to_center_.reserve(input.columns + 1),
                   [](double value) { return static_cast<T>(-value); });
  }

  // Returns the share of non-zeros in a sample.
  double density(int64_t rows) const {
    if (centred()) return 1.0;
    return sampled_density<T>(rows, [&](int64_t begin, int64_t end, RowBlock<T>& block) {
      read_block(input_, compute_, begin, end, block);
    });
  }

  // Reads rows [begin, end) with their zeros, or centred if there is a center.
  void read_with_zeros(int64_t begin, int64_t end, RowBlock<T>& block) const {
    if (centred()) return read(begin, end, block);
    read_block(input_, compute_, begin, end, block);
  }

  // Reads rows [begin, end) without finding zeros.
  void read(int64_t begin, int64_t end, RowBlock<T>& block) const {
    read_values(input_, compute_, begin, end, block);
    if (!centred()) return;
    for (int64_t i = 0; i < block.rows; ++i) {
      product_kernels<T>().add(to_center_.data(), block.columns, block.values.data() + i * block.stride);
    }
  }

 private:
  bool centred() const { return input_.center != nullptr; }

  const LinearInput& input_;
  Element compute_;
  Buffer<T> to_center_;  // the center of rows
};

}  // namespace pyg_batchgnn
