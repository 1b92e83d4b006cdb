// The gradients of a dense layer by the matrix unit. Blocks of kGradBlockRows rows of the gradient
// are one operand of both: transposed for the weights, whose other operand are the inputs with a
// column of ones for the bias, and as they are for the inputs.

#include <algorithm>

#include "kernels/allocation.h"
#include "kernels/nn/linear.h"
#include "kernels/nn/linear_blocks.h"
#include "kernels/nn/linear_operands.h"
#include "kernels/simd/level.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kPairs = kGradBlockRows / 2;  // of rows of a block
constexpr uint16_t kOne = 0x3F80;               // in bfloat16

class TileBackward {
 public:
  explicit TileBackward(const LinearGrads& job)
      : tiles_(*tile_kernels()),
        kernels_(product_kernels<float>()),
        job_(job),
        outputs_(round_up(job.shape.outputs, 2 * kTileSide)),
        packed_(job.inputs.size()) {
    for (const LinearInput& input : job.inputs) columns_ += input.columns;
    sum_stride_ = round_up(columns_ + 1, kTileSide);
    for (size_t t = 0; t < job.inputs.size(); ++t) {
      if (job.wanted.inputs[t] != nullptr) pack_weight(job.weights[t], t);
    }
  }

  // The number of sums of one part: [outputs, columns of all inputs, then the bias].
  int64_t part_elements() const { return outputs_ * sum_stride_; }

  struct Scratch {
    Buffer<uint16_t> grad, rows;        // [kGradBlockRows, outputs], [2, sum stride]
    Buffer<uint32_t> pairs, turned, x;  // [kPairs, outputs], its transpose, [kPairs, sum stride]
    Buffer<float> product;
    BlockPrefetch next;
  };

  // Allocates all memory in advance: what is in use does not depend on the timing of threads.
  void prepare(Scratch& scratch) const {
    scratch.grad.reserve(kGradBlockRows * outputs_ + 1);
    scratch.pairs.reserve(kPairs * outputs_ + 1);
    scratch.turned.reserve(kPairs * outputs_ + 1);
    std::fill_n(scratch.rows.reserve(2 * sum_stride_), 2 * sum_stride_, uint16_t{0});
    scratch.x.reserve(kPairs * sum_stride_);
    int64_t most_stride = 0;
    for (const LinearInput& input : job_.inputs) most_stride = std::max(most_stride, product_stride(input));
    scratch.product.reserve(kGradBlockRows * most_stride + 1);
  }

  void part(int64_t begin, int64_t end, float* sums, Scratch& scratch) const {
    if (begin == end) std::fill_n(sums, part_elements(), 0.0f);
    for (int64_t row = begin; row < end; row += kGradBlockRows) {
      const int64_t rows = std::min(kGradBlockRows, end - row);
      read_grad(job_, row, rows, scratch.grad.data(), outputs_);
      prefetch_block(job_, row + kGradBlockRows, std::min(end, row + 2 * kGradBlockRows), scratch.next);
      if (!job_.wanted.weights.empty() || job_.wanted.bias != nullptr) {
        add_weight_grads(row, rows, sums, row != begin, scratch);
      }
      scratch.next.queue.fetch(kGradBlockRows * kLinesPerRow);
      write_input_grads(row, rows, scratch);
    }
  }

  void write(const float* sums) const {
    write_scaled(job_, sums, sum_stride_, [&](int64_t o) { return sums[o * sum_stride_ + columns_]; });
  }

 private:
  static constexpr int64_t kLinesPerRow = 16;

  static int64_t product_stride(const LinearInput& input) { return round_up(input.columns, kTileSide); }
  float scale() const { return static_cast<float>(job_.gradient.scale); }

  // Pairs outputs of a weight, [outputs / 2, columns].
  void pack_weight(const LinearWeight& weight, size_t t) {
    const int64_t columns = job_.inputs[t].columns, stride = product_stride(job_.inputs[t]);
    Buffer<uint16_t> rows;
    uint16_t* const first = rows.reserve(2 * stride + 1);
    uint32_t* const to = packed_[t].reserve(outputs_ / 2 * stride + 1);
    const char* from = static_cast<const char*>(weight.data);
    for (int64_t o = 0; o < outputs_; ++o) {
      uint16_t* const row = first + o % 2 * stride;
      std::fill_n(row, stride, uint16_t{0});
      if (o < job_.shape.outputs) round_row(from, weight.element, columns, row);
      from += columns * element_bytes(weight.element);
      if (o % 2 == 1) tiles_.interleave(first, first + stride, stride, to + o / 2 * stride);
    }
  }

  // sums[o, :] (+)= grad[i, o] * [inputs[i, :], 1] for the rows of the block.
  void add_weight_grads(int64_t begin, int64_t rows, float* sums, bool add, Scratch& scratch) const {
    const uint16_t* const grad = scratch.grad.data();
    for (int64_t s = 0; s < kPairs; ++s) {
      const uint16_t* const first = grad + 2 * s * outputs_;
      tiles_.interleave(first, first + outputs_, outputs_, scratch.pairs.data() + s * outputs_);
    }
    for (int64_t s = 0; s < kPairs; s += kTileSide) {
      tiles_.transpose(scratch.pairs.data() + s * outputs_, outputs_, outputs_, scratch.turned.data() + s,
                       kPairs);
    }
    for (int64_t s = 0; s < kPairs; ++s) {
      for (int64_t i = 0; i < 2; ++i) {
        read_inputs(begin + 2 * s + i, 2 * s + i < rows, scratch.rows.data() + i * sum_stride_);
      }
      tiles_.interleave(scratch.rows.data(), scratch.rows.data() + sum_stride_, sum_stride_,
                        scratch.x.data() + s * sum_stride_);
    }
    tiles_.multiply({scratch.turned.data(), kPairs, scratch.x.data(), sum_stride_, outputs_, kPairs,
                     sum_stride_, sums, sum_stride_, add});
  }

  // Reads a row of all inputs, side by side, and a one; zeros if there is no such row.
  void read_inputs(int64_t row, bool is_there, uint16_t* to) const {
    if (!is_there) return std::fill_n(to, columns_ + 1, uint16_t{0}), void();
    for (const LinearInput& input : job_.inputs) {
      round_columns(input, input.row(row), 0, input.columns, to);
      to += input.columns;
    }
    *to = kOne;
  }

  // d_input[i, :] = sum over o of grad[i, o] * weight[o, :].
  void write_input_grads(int64_t begin, int64_t rows, Scratch& scratch) const {
    for (size_t t = 0; t < job_.inputs.size(); ++t) {
      if (job_.wanted.inputs[t] == nullptr) continue;
      const LinearInput& input = job_.inputs[t];
      const int64_t columns = input.columns, stride = product_stride(input);
      float* product = scratch.product.data();
      tiles_.multiply({reinterpret_cast<const uint32_t*>(scratch.grad.data()), outputs_ / 2,
                       packed_[t].data(), stride, round_up(rows, kTileSide), outputs_ / 2, stride, product,
                       stride, false});
      const int64_t row_bytes = columns * element_bytes(input.element);
      char* to = static_cast<char*>(job_.wanted.inputs[t]) + begin * row_bytes;
      for (int64_t i = 0; i < rows; ++i, product += stride, to += row_bytes) {
        for (int64_t c = 0; c < columns; ++c) product[c] *= scale();
        kernels_.write(product, columns, input.element, to);
      }
    }
  }

  const TileKernels& tiles_;
  const ProductKernels<float>& kernels_;
  const LinearGrads& job_;
  const int64_t outputs_;  // up to whole pairs of tiles
  int64_t columns_ = 0;    // of all inputs
  int64_t sum_stride_ = 0;
  std::vector<Buffer<uint32_t>> packed_;  // weights in pairs, if the gradient of the input is wanted
};

}  // namespace

bool linear_grads_tiles(const LinearGrads& job, int64_t threads) {
  if (job.shape.compute != Element::kBFloat16 || bfloat16_level() != Bfloat16Level::kTiles ||
      job.shape.groups != 1) {
    return false;
  }
  sum_parts<float>(TileBackward(job), job.shape.rows, threads);
  return true;
}

}  // namespace pyg_batchgnn
