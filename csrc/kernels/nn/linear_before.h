// Gradients of the layer whose ReLU made a gated input, where its own input takes none: they are all that
// reads the gated input's gradient, which is then never written.
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

  // Of one part's sums: the weight's [outputs, stride], then the bias's [outputs, kLanes].
  int64_t elements() const { return outputs_ * (stride() + kLanes); }

  // For the block of rows from `begin`, whose gradient is dots[o, i] behind the bits of words[o].
  void add(int64_t begin, int64_t rows, const uint64_t* words, const T* dots, T* sums, RowBlock<T>& x,
           Ahead& ahead) const {
    rows_.read(begin, begin + rows, x);
    const int64_t width = product_kernels<T>().width;
    multiply_sparse<T>({words, 1, dots, kWordBits, 1, outputs_, round_up(x.columns, width) / width,
                        x.values.data(), x.stride, sums, stride(), &ahead},
                       kWordBits);
    for (int64_t o = 0; o < outputs_; ++o) {
      add_bias(dots + o * kWordBits, sums + outputs_ * stride() + o * kLanes);
    }
  }

  void write(const T* sums) const {
    const ProductKernels<T>& kernels = product_kernels<T>();
    const int64_t columns = before_.input.columns, item = element_bytes(before_.element);
    for (int64_t o = 0; o < outputs_; ++o) {
      kernels.write(sums + o * stride(), columns, before_.element,
                    static_cast<char*>(before_.weight) + o * columns * item);
    }
    Buffer<T> bias;
    std::fill_n(bias.reserve(outputs_ + 1), outputs_, T{0});
    const T* lanes = sums + outputs_ * stride();
    for (int64_t o = 0; o < outputs_; ++o, lanes += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) bias.data()[o] += lanes[lane];
    }
    kernels.write(bias.data(), outputs_, before_.element, before_.bias);
  }

 private:
  static constexpr int64_t kLanes = 16;  // partial sums, whatever the width of vectors

  // Of a local array the compiler knows that it is nobody else's, and keeps it in vectors.
  static void add_bias(const T* dots, T* lanes) {
    T total[kLanes];
    std::copy_n(lanes, kLanes, total);
    for (int64_t first = 0; first < kWordBits; first += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) total[lane] += dots[first + lane];
    }
    std::copy_n(total, kLanes, lanes);
  }

  int64_t stride() const { return block_stride<T>(before_.input.columns); }

  const LinearBefore& before_;
  InputRows<T> rows_;
  int64_t outputs_;
};

}  // namespace pyg_batchgnn
