// Both gradients are sums of few rows. A row of a weight's gradient is a sum of input rows, those
// with a non-zero gradient in that column. A row of an input's gradient is a sum of rows of the
// weight. The rows are listed once per block and added two at a time.

#include <algorithm>
#include <numeric>

#include "kernels/allocation.h"
#include "kernels/nn/linear.h"
#include "kernels/nn/linear_blocks.h"
#include "kernels/nn/linear_operands.h"
#include "kernels/simd/level.h"
#include "kernels/simd/sparse_pairs.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kWidth = 16;  // sums of a vector
static_assert(kGradBlockRows == kListTerms);

// Lists of the non-zeros of bfloat16 rows, and their products.

constexpr int64_t kBlockTerms = kListTerms + 1;  // rows of x per block of lists, the last one zero

struct Lists {
  Buffer<int32_t> starts;
  Buffer<uint8_t> terms;
  Buffer<uint16_t> values;

  PairLists room(int64_t rows) {
    const int64_t most = (rows + 1) * kListTerms;
    return {starts.reserve(rows + 1), terms.reserve(most), values.reserve(most)};
  }
};

// Computes a product in pieces, so that the block of x stays in the first cache.
void multiply_lists(const ListProduct& p) {
  constexpr int64_t kCacheVectors = 14;  // of a block of kBlockTerms rows
  const int64_t vectors = (p.columns + kWidth - 1) / kWidth;
  const int64_t pieces = (vectors + kCacheVectors - 1) / kCacheVectors;
  int64_t first = 0;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    // Two vectors are folded together.
    const int64_t last = std::min(vectors, round_up(vectors * (piece + 1) / pieces, 2));
    if (first != last) {
      ListProduct part = p;
      part.columns = std::min(p.columns, last * kWidth) - first * kWidth;
      part.x += first * kWidth;
      part.out += first * kWidth;
      sparse_pair_kernels()->multiply(part);
    }
    first = last;
  }
}

class PairBackward {
 public:
  explicit PairBackward(const LinearGrads& job)
      : pairs_(*sparse_pair_kernels()),
        kernels_(product_kernels<float>()),
        job_(job),
        grad_stride_(block_stride<uint16_t>(job.shape.outputs)),
        folded_(job.inputs.size()) {
    for (size_t t = 0; t < job.inputs.size(); ++t) columns_ += job.group_columns(t);
    for (size_t t = 0; t < job.inputs.size(); ++t) {
      if (job.wanted.inputs[t] != nullptr) fold_weight(job.weights[t], t);
    }
  }

  // The number of sums of one part: [outputs, columns of all inputs], then one vector per bias.
  int64_t part_elements() const { return job_.shape.outputs * sum_stride() + grad_stride_ * kWidth; }

  struct Scratch {
    Buffer<uint16_t> grad, transposed,
        x;  // [kListTerms, grad_stride], its transpose, [kBlockTerms, x stride]
    Lists lists;
    Buffer<float> product;
    BlockPrefetch next;
  };

  // Allocates all memory in advance: what is in use does not depend on the timing of threads.
  void prepare(Scratch& scratch) const {
    scratch.grad.reserve(kListTerms * grad_stride_);
    scratch.transposed.reserve(kListTerms * grad_stride_);
    scratch.lists.room(std::max(job_.shape.outputs, kListTerms));
    const int64_t elements = kBlockTerms * x_stride(columns_);
    std::fill_n(scratch.x.reserve(elements), elements, uint16_t{0});
    int64_t most_stride = 0;
    for (size_t t = 0; t < job_.inputs.size(); ++t) {
      if (job_.wanted.inputs[t] != nullptr) most_stride = std::max(most_stride, product_stride(t));
    }
    scratch.product.reserve(kListTerms * most_stride + 1);
  }

  void part(int64_t begin, int64_t end, float* sums, Scratch& scratch) const {
    if (begin == end) std::fill_n(sums, part_elements(), 0.0f);
    for (int64_t row = begin; row < end; row += kGradBlockRows) {
      const int64_t rows = std::min(kGradBlockRows, end - row);
      read_grad(job_, row, rows, scratch.grad.data(), grad_stride_);
      prefetch_block(job_, row + kGradBlockRows, std::min(end, row + 2 * kGradBlockRows), scratch.next);
      if (!job_.wanted.weights.empty() || job_.wanted.bias != nullptr) {
        add_weight_grads(row, rows, {sums, sum_stride(), row != begin}, scratch);
      }
      write_input_grads(row, rows, scratch);
    }
  }

  void write(const float* sums) const {
    write_scaled(job_, sums, sum_stride(), [&](int64_t o) {
      const float* const from = sums + job_.shape.outputs * sum_stride() + o * kWidth;
      return std::accumulate(from, from + kWidth, 0.0f);
    });
  }

 private:
  int64_t sum_stride() const { return block_stride<float>(columns_); }
  int64_t product_stride(size_t t) const { return block_stride<float>(job_.group_columns(t)); }
  // The place of sums; `add` keeps the sums that are there.
  struct Sums {
    float* at;
    int64_t stride;
    bool add;
  };

  static int64_t x_stride(int64_t columns) { return block_stride<uint16_t>(columns); }
  float scale() const { return static_cast<float>(job_.gradient.scale); }

  // Folds a weight in blocks of kBlockTerms rows, group by group.
  void fold_weight(const LinearWeight& weight, size_t t) {
    const int64_t columns = job_.group_columns(t), stride = x_stride(columns),
                  outputs = job_.shape.group_outputs();
    const int64_t elements = job_.shape.groups * group_blocks() * kBlockTerms * stride;
    uint16_t* const to = folded_[t].reserve(elements + 1);
    std::fill_n(to, elements, uint16_t{0});
    const char* from = static_cast<const char*>(weight.data);
    for (int64_t o = 0; o < job_.shape.outputs; ++o, from += columns * element_bytes(weight.element)) {
      const int64_t inside = o % outputs;
      uint16_t* const row =
          to +
          ((o / outputs * group_blocks() + inside / kListTerms) * kBlockTerms + inside % kListTerms) * stride;
      round_row(from, weight.element, columns, row);
      pairs_.fold(row, stride);
    }
  }

  int64_t group_blocks() const { return (job_.shape.group_outputs() + kListTerms - 1) / kListTerms; }

  // sums[o, :] (+)= grad[i, o] * input[i, :] for the rows of the block, and the bias.
  void add_weight_grads(int64_t begin, int64_t rows, const Sums& sums, Scratch& scratch) const {
    uint16_t* const transposed = scratch.transposed.data();
    pairs_.transpose(scratch.grad.data(), grad_stride_, job_.shape.outputs, transposed);
    const PairLists lists = scratch.lists.room(job_.shape.outputs);
    pairs_.list({transposed, kListTerms, job_.shape.outputs, kListTerms,
                 sums.at + job_.shape.outputs * sums.stride, sums.add},
                lists);
    if (job_.wanted.weights.empty()) return;
    const int64_t stride = x_stride(columns_), outputs = job_.shape.group_outputs();
    uint16_t* const x = scratch.x.data();
    for (int64_t group = 0; group < job_.shape.groups; ++group) {
      for (int64_t i = 0; i < rows; ++i) read_inputs(begin + i, group, x + i * stride);
      pairs_.fold(x, rows * stride);
      const PairLists own = {lists.starts + group * outputs, lists.terms, lists.values};
      multiply_lists({own, outputs, columns_, x, stride, sums.at + group * outputs * sums.stride, sums.stride,
                      sums.add, &scratch.next.queue});
    }
  }

  // Reads a row of all inputs, side by side.
  void read_inputs(int64_t row, int64_t group, uint16_t* to) const {
    int64_t at = 0;
    for (size_t t = 0; t < job_.inputs.size(); at += job_.group_columns(t), ++t) {
      const LinearInput& input = job_.inputs[t];
      const int64_t columns = job_.group_columns(t), first = group * columns;
      const char* const from = input.row(row);
      if (input.element == Element::kBFloat16) {
        pairs_.copy(reinterpret_cast<const uint16_t*>(from) + first, columns, to + at);
      } else {
        round_columns(input, from, first, columns, to + at);
      }
    }
  }

  // d_input[i, :] = sum over o of grad[i, o] * weight[o, :].
  void write_input_grads(int64_t begin, int64_t rows, Scratch& scratch) const {
    const int64_t outputs = job_.shape.group_outputs();
    for (size_t t = 0; t < job_.inputs.size(); ++t) {
      if (job_.wanted.inputs[t] == nullptr) continue;
      const int64_t columns = job_.group_columns(t), stride = product_stride(t);
      float* const product = scratch.product.data();
      for (int64_t group = 0; group < job_.shape.groups; ++group) {
        if (outputs == 0) std::fill_n(product, rows * stride, 0.0f);  // no block writes
        for (int64_t block = 0; block < group_blocks(); ++block) {
          const int64_t first = block * kListTerms, count = std::min(kListTerms, outputs - first);
          const PairLists lists = scratch.lists.room(rows);
          pairs_.list(
              {scratch.grad.data() + group * outputs + first, grad_stride_, rows, count, nullptr, false},
              lists);
          const uint16_t* const x =
              folded_[t].data() + (group * group_blocks() + block) * kBlockTerms * x_stride(columns);
          multiply_lists(
              {lists, rows, columns, x, x_stride(columns), product, stride, block != 0, &scratch.next.queue});
        }
        write_rows(product, stride, t, group, begin, rows);
      }
    }
  }

  void write_rows(float* product, int64_t stride, size_t t, int64_t group, int64_t begin,
                  int64_t rows) const {
    const int64_t columns = job_.group_columns(t), item = element_bytes(job_.inputs[t].element);
    char* to =
        static_cast<char*>(job_.wanted.inputs[t]) + (begin * job_.inputs[t].columns + group * columns) * item;
    for (int64_t i = 0; i < rows; ++i, product += stride, to += job_.inputs[t].columns * item) {
      if (job_.inputs[t].element == Element::kBFloat16) {
        pairs_.round(product, columns, scale(), reinterpret_cast<uint16_t*>(to));
        continue;
      }
      for (int64_t c = 0; c < columns; ++c) product[c] *= scale();
      kernels_.write(product, columns, job_.inputs[t].element, to);
    }
  }

  const SparsePairKernels& pairs_;
  const ProductKernels<float>& kernels_;
  const LinearGrads& job_;
  const int64_t grad_stride_;
  int64_t columns_ = 0;                   // of one group of all inputs
  std::vector<Buffer<uint16_t>> folded_;  // weights, if the gradient of the input is wanted
};

}  // namespace

bool linear_grads_pairs(const LinearGrads& job, int64_t threads) {
  if (job.shape.compute != Element::kBFloat16 || bfloat16_level() < Bfloat16Level::kPairs ||
      sparse_pair_kernels() == nullptr) {
    return false;
  }
  sum_parts<float>(PairBackward(job), job.shape.rows, threads);
  return true;
}

}  // namespace pyg_batchgnn
