// Products of bfloat16 that skip the zeros of an input, as ReLU and dropout leave them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/nn/linear_operands.h"
#include "kernels/nn/pair_lists.h"
#include "kernels/nn/row_block.h"

namespace pyg_batchgnn {

// The weight of one input, transposed and folded, in blocks of kBlockTerms of the input's columns.
// Worthwhile if few elements of a sample of the input are not zero and the weight is finite, so
// that a zero adds nothing.
class SkippingPairs {
 public:
  // Rows in place, and room for the lists of their non-zeros.
  struct Block {
    int64_t rows = 0;
    const uint16_t* values = nullptr;
    Lists lists;

    void resize(int64_t most_rows, int64_t) { lists.room(most_rows); }
  };

  SkippingPairs(const LinearShape& shape, const LinearInput& input, const LinearWeight& weight)
      : outputs_(shape.outputs),
        columns_(input.columns),
        stride_(block_stride<uint16_t>(shape.outputs)),
        input_stride_(input.stride) {
    if (sparse_pair_kernels() == nullptr || input.element != Element::kBFloat16 || input.rows != nullptr ||
        shape.groups != 1 || shape.rows < kManyRows) {
      return;
    }
    const double density =
        sampled_density<float>(shape.rows, [&](int64_t begin, int64_t end, RowBlock<float>& block) {
          read_block(input, shape.compute, begin, end, block);
        });
    if (density < kSparse) transpose(shape, weight);
  }

  bool worthwhile() const { return worthwhile_; }

  bool read(const LinearInput& input, Element, int64_t begin, int64_t end, Block& block) const {
    block.rows = end - begin;
    block.values = reinterpret_cast<const uint16_t*>(input.row(begin));
    return true;
  }

  // sums[i, :] += sum over the non-zeros k of x[i, k] * weight[:, k].
  void add(int64_t, Block& x, float* sums, int64_t sums_stride, PrefetchQueue& prefetch) const {
    for (int64_t first = 0; first < columns_; first += kListTerms) {
      const PairLists lists = x.lists.room(x.rows);
      sparse_pair_kernels()->list(
          {x.values + first, input_stride_, x.rows, std::min(kListTerms, columns_ - first), nullptr, false},
          lists);
      multiply_lists({lists, x.rows, outputs_,
                      transposed_.data() + first / kListTerms * kBlockTerms * stride_, stride_, sums,
                      sums_stride, true, &prefetch});
    }
  }

 private:
  static constexpr double kSparse = 0.4;  // lists are faster up to this share of non-zeros

  void transpose(const LinearShape& shape, const LinearWeight& weight) {
    const int64_t count = outputs_ * columns_;
    Buffer<float> rounded;
    read_rounded(weight, shape.compute, count, rounded.reserve(count + 1));
    worthwhile_ =
        std::all_of(rounded.data(), rounded.data() + count, [](float w) { return std::isfinite(w); });
    if (!worthwhile_) return;
    const int64_t elements = round_up(columns_, kListTerms) / kListTerms * kBlockTerms * stride_;
    uint16_t* const to = transposed_.reserve(elements + 1);
    std::fill_n(to, elements, uint16_t{0});
    for (int64_t o = 0; o < outputs_; ++o) {
      for (int64_t k = 0; k < columns_; ++k) {
        const auto bits = std::bit_cast<uint32_t>(rounded.data()[o * columns_ + k]);
        to[(k / kListTerms * kBlockTerms + k % kListTerms) * stride_ + o] = static_cast<uint16_t>(bits >> 16);
      }
    }
    sparse_pair_kernels()->fold(to, elements);
  }

  int64_t outputs_, columns_, stride_, input_stride_;
  bool worthwhile_ = false;
  Buffer<uint16_t> transposed_;
};

}  // namespace pyg_batchgnn
