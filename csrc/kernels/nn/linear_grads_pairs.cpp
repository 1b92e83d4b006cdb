// Both gradients are sums of few rows. A row of a weight's gradient is a sum of input rows, those
// with a non-zero gradient in that column. A row of an input's gradient is a sum of rows of the
// weight. The rows are listed once per block and added two at a time.

#include <algorithm>

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

constexpr int64_t kBlockTerms = kListTerms + 1;  // rows of x per block of lists; the last one is
                                                 // zero

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
  PairBackward(const LinearShape& shape, const std::vector<LinearInput>& inputs,
               const std::vector<LinearWeight>& weights, const LinearGradient& gradient,
               const LinearWanted& wanted)
      : pairs_(*sparse_pair_kernels()),
        kernels_(product_kernels<float>()),
        shape_(shape),
        inputs_(inputs),
        gradient_(gradient),
        wanted_(wanted),
        grad_stride_(block_stride<uint16_t>(shape.outputs)),
        weights_(inputs.size()) {
    for (const LinearInput& input : inputs) columns_ += input.columns / shape.groups;
    for (size_t t = 0; t < inputs.size(); ++t) {
      if (wanted.inputs[t] != nullptr) fold_weight(weights[t], t);
    }
  }

  // The number of sums of one part: weights as [outputs, columns of all inputs], then one vector
  // per bias.
  int64_t part_elements() const { return shape_.outputs * sum_stride() + grad_stride_ * kWidth; }

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
    scratch.lists.room(std::max(shape_.outputs, kListTerms));
    const int64_t elements = kBlockTerms * x_stride(columns_);
    std::fill_n(scratch.x.reserve(elements), elements, uint16_t{0});
    int64_t most_stride = 0;
    for (size_t t = 0; t < inputs_.size(); ++t) {
      if (wanted_.inputs[t] != nullptr) most_stride = std::max(most_stride, product_stride(t));
    }
    scratch.product.reserve(kListTerms * most_stride + 1);
  }

  void part(int64_t begin, int64_t end, float* sums, Scratch& scratch) const {
    if (begin == end) std::fill_n(sums, part_elements(), 0.0f);
    for (int64_t row = begin; row < end; row += kGradBlockRows) {
      const int64_t rows = std::min(kGradBlockRows, end - row);
      read_grad(row, rows, scratch);
      prefetch_block(gradient_, shape_.outputs, wanted_.weights.empty() ? nullptr : &inputs_,
                     row + kGradBlockRows, std::min(end, row + 2 * kGradBlockRows), scratch.next);
      if (!wanted_.weights.empty() || wanted_.bias != nullptr) {
        add_weight_grads(row, rows, {sums, sum_stride(), row != begin}, scratch);
      }
      write_input_grads(row, rows, scratch);
    }
  }

  void write(const float* sums, const std::vector<LinearWeight>& weights) const {
    Buffer<float> scaled;
    scaled.reserve(std::max(columns_, shape_.outputs) + 1);
    int64_t first = 0;
    for (size_t t = 0; t < wanted_.weights.size(); first += group_columns(t), ++t) {
      const int64_t columns = group_columns(t), item = element_bytes(weights[t].element);
      for (int64_t o = 0; o < shape_.outputs; ++o) {
        const float* const from = sums + o * sum_stride() + first;
        for (int64_t c = 0; c < columns; ++c) scaled.data()[c] = from[c] * scale();
        kernels_.write(scaled.data(), columns, weights[t].element,
                       static_cast<char*>(wanted_.weights[t]) + o * columns * item);
      }
    }
    if (wanted_.bias == nullptr) return;
    const float* from = sums + shape_.outputs * sum_stride();
    for (int64_t o = 0; o < shape_.outputs; ++o, from += kWidth) {
      float total = 0;
      for (int64_t i = 0; i < kWidth; ++i) total += from[i];
      scaled.data()[o] = total * scale();
    }
    kernels_.write(scaled.data(), shape_.outputs, weights.front().element, wanted_.bias);
  }

 private:
  int64_t group_columns(size_t t) const { return inputs_[t].columns / shape_.groups; }
  int64_t sum_stride() const { return block_stride<float>(columns_); }
  int64_t product_stride(size_t t) const { return block_stride<float>(group_columns(t)); }
  // The place of sums; `add` keeps the sums that are there.
  struct Sums {
    float* at;
    int64_t stride;
    bool add;
  };

  static int64_t x_stride(int64_t columns) { return block_stride<uint16_t>(columns); }
  float scale() const { return static_cast<float>(gradient_.scale); }

  // Folds a weight in blocks of kBlockTerms rows, group by group.
  void fold_weight(const LinearWeight& weight, size_t t) {
    const int64_t columns = group_columns(t), stride = x_stride(columns), outputs = shape_.group_outputs();
    const int64_t elements = shape_.groups * group_blocks() * kBlockTerms * stride;
    uint16_t* const to = weights_[t].reserve(elements + 1);
    std::fill_n(to, elements, uint16_t{0});
    const char* from = static_cast<const char*>(weight.data);
    for (int64_t o = 0; o < shape_.outputs; ++o, from += columns * element_bytes(weight.element)) {
      const int64_t inside = o % outputs;
      uint16_t* const row =
          to +
          ((o / outputs * group_blocks() + inside / kListTerms) * kBlockTerms + inside % kListTerms) * stride;
      round_row(from, weight.element, columns, row);
      pairs_.fold(row, stride);
    }
  }

  int64_t group_blocks() const { return (shape_.group_outputs() + kListTerms - 1) / kListTerms; }

  void read_normed(int64_t begin, int64_t rows, uint16_t* to) const {
    for (int64_t i = 0; i < rows; ++i, to += grad_stride_) {
      normed_row(gradient_, begin + i, shape_.outputs, reinterpret_cast<Bfloat16*>(to));
      std::fill(to + shape_.outputs, to + grad_stride_, uint16_t{0});
    }
    std::fill_n(to, (kListTerms - rows) * grad_stride_, uint16_t{0});
  }

  void read_grad(int64_t begin, int64_t rows, Scratch& scratch) const {
    if (gradient_.norm != nullptr) return read_normed(begin, rows, scratch.grad.data());
    const int64_t mask_bytes = (shape_.outputs + 7) / 8;
    pairs_.mask({static_cast<const uint16_t*>(gradient_.grad) + begin * shape_.outputs, shape_.outputs,
                 gradient_.mask == nullptr ? nullptr : gradient_.mask + begin * mask_bytes, mask_bytes, rows,
                 shape_.outputs, scratch.grad.data(), grad_stride_});
  }

  // sums[o, :] = grad[i, o] * input[i, :] for the rows of the block, and the bias. With `add` it
  // adds to the sums.
  void add_weight_grads(int64_t begin, int64_t rows, const Sums& sums, Scratch& scratch) const {
    uint16_t* const transposed = scratch.transposed.data();
    pairs_.transpose(scratch.grad.data(), grad_stride_, shape_.outputs, transposed);
    const PairLists lists = scratch.lists.room(shape_.outputs);
    pairs_.list({transposed, kListTerms, shape_.outputs, kListTerms, sums.at + shape_.outputs * sums.stride,
                 sums.add},
                lists);
    if (wanted_.weights.empty()) return;
    const int64_t stride = x_stride(columns_), outputs = shape_.group_outputs();
    uint16_t* const x = scratch.x.data();
    for (int64_t group = 0; group < shape_.groups; ++group) {
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
    for (size_t t = 0; t < inputs_.size(); at += group_columns(t), ++t) {
      const LinearInput& input = inputs_[t];
      const int64_t columns = group_columns(t), first = group * columns;
      const char* const from = input.row(row);
      if (input.center != nullptr) {
        round_centered(input, from, first, columns, to + at);
      } else if (input.element == Element::kBFloat16) {
        pairs_.copy(reinterpret_cast<const uint16_t*>(from) + first, columns, to + at);
      } else {
        round_columns(input, from, first, columns, to + at);
      }
    }
  }

  void round_centered(const LinearInput& input, const char* from, int64_t first, int64_t columns,
                      uint16_t* to) const {
    float block[kWordBits];
    const double* const center = input.center + first;
    for (int64_t at = 0; at < columns; at += kWordBits) {
      const int64_t count = std::min(kWordBits, columns - at);
      read_columns(input, from, first + at, count, Element::kFloat32, block);
      for (int64_t c = 0; c < count; ++c) block[c] -= static_cast<float>(center[at + c]);
      kernels_.write(block, count, Element::kBFloat16, to + at);
    }
  }

  // d_input[i, :] = sum over o of grad[i, o] * weight[o, :].
  void write_input_grads(int64_t begin, int64_t rows, Scratch& scratch) const {
    const int64_t outputs = shape_.group_outputs();
    for (size_t t = 0; t < inputs_.size(); ++t) {
      if (wanted_.inputs[t] == nullptr) continue;
      const int64_t columns = group_columns(t), stride = product_stride(t);
      float* const product = scratch.product.data();
      for (int64_t group = 0; group < shape_.groups; ++group) {
        if (outputs == 0) std::fill_n(product, rows * stride, 0.0f);  // no block writes
        for (int64_t block = 0; block < group_blocks(); ++block) {
          const int64_t first = block * kListTerms, count = std::min(kListTerms, outputs - first);
          const PairLists lists = scratch.lists.room(rows);
          pairs_.list(
              {scratch.grad.data() + group * outputs + first, grad_stride_, rows, count, nullptr, false},
              lists);
          const uint16_t* const x =
              weights_[t].data() + (group * group_blocks() + block) * kBlockTerms * x_stride(columns);
          multiply_lists(
              {lists, rows, columns, x, x_stride(columns), product, stride, block != 0, &scratch.next.queue});
        }
        write_rows(product, stride, t, group, begin, rows);
      }
    }
  }

  void write_rows(float* product, int64_t stride, size_t t, int64_t group, int64_t begin,
                  int64_t rows) const {
    const int64_t columns = group_columns(t), item = element_bytes(inputs_[t].element);
    char* to = static_cast<char*>(wanted_.inputs[t]) + (begin * inputs_[t].columns + group * columns) * item;
    for (int64_t i = 0; i < rows; ++i, product += stride, to += inputs_[t].columns * item) {
      if (inputs_[t].element == Element::kBFloat16) {
        pairs_.round(product, columns, scale(), reinterpret_cast<uint16_t*>(to));
        continue;
      }
      for (int64_t c = 0; c < columns; ++c) product[c] *= scale();
      kernels_.write(product, columns, inputs_[t].element, to);
    }
  }

  const SparsePairKernels& pairs_;
  const ProductKernels<float>& kernels_;
  const LinearShape& shape_;
  const std::vector<LinearInput>& inputs_;
  const LinearGradient& gradient_;
  const LinearWanted& wanted_;
  const int64_t grad_stride_;
  int64_t columns_ = 0;                    // of one group of all inputs
  std::vector<Buffer<uint16_t>> weights_;  // folded, if the gradient of the input is wanted
};

}  // namespace

bool has_pair_grads(Element compute) {
  return compute == Element::kBFloat16 && bfloat16_level() >= Bfloat16Level::kPairs &&
         sparse_pair_kernels() != nullptr;
}

void linear_grads_pairs(const LinearShape& shape, const std::vector<LinearInput>& inputs,
                        const std::vector<LinearWeight>& weights, const LinearGradient& gradient,
                        const LinearWanted& wanted, int64_t threads) {
  const PairBackward backward(shape, inputs, weights, gradient, wanted);
  sum_parts<float>(backward, shape.rows, weights, threads);
}

}  // namespace pyg_batchgnn
