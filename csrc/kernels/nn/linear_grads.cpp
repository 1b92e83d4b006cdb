// The gradients of a dense layer, in one pass over the gradient of its output.
//
// After ReLU and dropout most of that gradient is zero. Bits tell which elements are not. If at
// most kDense of a block is not zero, products skip the zeros. The gradient of the weight of an
// input that a ReLU made skips the zeros of the input instead; it is computed transposed.

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/nn/linear.h"
#include "kernels/nn/linear_blocks.h"

namespace pyg_batchgnn {
namespace {

// Products of blocks in the caches with any number of rows, by the loop for many or for few zeros.

// out[r, :] += sum over s of values[r * row_step + s * value_step] * x[s, :], with `words` only
// over the terms in bits(words[r]), at most kWordBits.
template <class T>
struct BlockProduct {
  const uint64_t* words;  // [rows] or null
  const T* values;
  int64_t row_step, value_step;
  int64_t rows, terms, columns;
  const T* x;
  int64_t x_stride;
  T* out;
  int64_t out_stride;
};

// For fewer rows than a tile has. The other rows of the tile are computed and discarded.
template <class T>
void multiply_last_rows(const BlockProduct<T>& p, int64_t vectors) {
  constexpr int64_t kMostWidth = 64;
  const ProductKernels<T>& kernels = product_kernels<T>();
  PrefetchQueue nothing;
  const T* starts[kTileRows];
  T tile[kTileRows * kMostWidth];
  for (int64_t r = 0; r < kTileRows; ++r) starts[r] = p.values + std::min(r, p.rows - 1) * p.row_step;
  const int64_t step = kernels.panel / kernels.width;
  for (int64_t first = 0; first < vectors; first += step) {
    const int64_t count = std::min(step, vectors - first), width = count * kernels.width;
    const int64_t at = first * kernels.width;
    for (int64_t r = 0; r < kTileRows; ++r) {
      std::copy_n(p.out + std::min(r, p.rows - 1) * p.out_stride + at, width, tile + r * width);
    }
    kernels.dense(
        {starts, p.value_step, kTileRows, p.terms, count, p.x + at, p.x_stride, tile, width, true, &nothing});
    for (int64_t r = 0; r < p.rows; ++r) std::copy_n(tile + r * width, width, p.out + r * p.out_stride + at);
  }
}

// `pointers` is scratch memory.
template <class T>
void multiply_block(const BlockProduct<T>& p, std::vector<const T*>& pointers, PrefetchQueue& prefetch) {
  const ProductKernels<T>& kernels = product_kernels<T>();
  const int64_t vectors = round_up(p.columns, kernels.width) / kernels.width;
  if (p.words != nullptr) {
    return multiply_sparse<T>({p.words, p.values, p.row_step, p.value_step, p.rows, vectors, p.x, p.x_stride,
                               p.out, p.out_stride, &prefetch},
                              p.terms);
  }
  const int64_t whole = p.rows / kTileRows * kTileRows;
  pointers.resize(static_cast<size_t>(whole));
  for (int64_t r = 0; r < whole; ++r) pointers[static_cast<size_t>(r)] = p.values + r * p.row_step;
  if (whole != 0) {
    kernels.dense({pointers.data(), p.value_step, whole, p.terms, vectors, p.x, p.x_stride, p.out,
                   p.out_stride, true, &prefetch});
  }
  if (whole == p.rows) return;
  BlockProduct<T> last = p;
  last.values += whole * p.row_step;
  last.out += whole * p.out_stride;
  last.rows -= whole;
  multiply_last_rows(last, vectors);
}

// Blocks of rows for the products of gradients: converted, masked or centred, zeros known.

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

// The gradient of one input of a dense layer, one block of rows at a time.

template <class T>
class InputGrad {
 public:
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

// The gradients of a weight and, only where the ReLU passed, of an input that a ReLU made.

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

// Fewer rows than bits in a word: then two operands, those of the next block, and weights and sums
// of 256 columns fit into the second cache.
constexpr int64_t kBlockRows = 48;
static_assert(kBlockRows <= kGradBlockRows);

template <class T>
class Backward {
 public:
  explicit Backward(const LinearGrads& job)
      : kernels_(product_kernels<T>()),
        job_(job),
        grad_rows_(job.shape.outputs, job.gradient),
        input_grads_(job.inputs.size()),
        relu_backward_(job.inputs.size()) {
    for (size_t t = 0; t < job.inputs.size(); ++t) {
      const LinearInput& input = job.inputs[t];
      if (job.wanted.inputs[t] == nullptr) continue;
      input_grads_[t].emplace(job.shape, input, job.weights[t], job.wanted.inputs[t]);
      const bool rectified = input.after_relu && job.shape.groups == 1;
      if (!rectified || job.wanted.weights.empty()) continue;
      relu_backward_[t].emplace(job.shape.outputs, input.columns, input_grads_[t]->weight(),
                                input_grads_[t]->stride());
    }
  }

  // The number of sums of one part: of each weight, maybe transposed, and of the bias.
  int64_t part_elements() const {
    int64_t total = job_.shape.outputs;
    for (size_t t = 0; t < job_.inputs.size(); ++t) total += sum_elements(t);
    return total;
  }

  struct Scratch {
    RowBlock<T> grad;
    RowBlock<T> input;
    Buffer<T> dots;  // of an input that a ReLU made
    Buffer<T> product;
    std::vector<const T*> values;
    BlockPrefetch next;
  };

  // Allocates all memory in advance: what is in use does not depend on the timing of threads.
  void prepare(Scratch& scratch) const {
    int64_t most_columns = 0, most_stride = 0, most_dots = 0;
    for (size_t t = 0; t < job_.inputs.size(); ++t) {
      most_columns = std::max(most_columns, job_.inputs[t].columns);
      if (relu_backward_[t]) most_dots = std::max(most_dots, relu_backward_[t]->dot_elements());
      if (input_grads_[t]) most_stride = std::max(most_stride, input_grads_[t]->stride());
    }
    const int64_t rows = std::min(kBlockRows, job_.shape.rows);
    scratch.grad.resize(rows, job_.shape.outputs);
    if (!job_.wanted.weights.empty()) scratch.input.resize(rows, most_columns);
    scratch.product.reserve(rows * most_stride + 1);
    scratch.dots.reserve(most_dots + 1);
  }

  void part(int64_t begin, int64_t end, T* sums, Scratch& scratch) const {
    std::fill_n(sums, part_elements(), T{0});
    for (int64_t row = begin; row < end; row += kBlockRows) {
      grad_rows_.read(row, std::min(end, row + kBlockRows), scratch.grad);
      prefetch_block(job_, row + kBlockRows, std::min(end, row + 2 * kBlockRows), scratch.next);
      T* to = sums;
      for (size_t t = 0; t < job_.inputs.size(); ++t) {
        add_grads(t, row, to, scratch);
        to += sum_elements(t);
      }
      if (job_.wanted.bias != nullptr) {
        for (int64_t i = 0; i < scratch.grad.rows; ++i) {
          kernels_.add(scratch.grad.row(i), job_.shape.outputs, to);
        }
      }
    }
    kernels_.fence();
  }

  void write(const T* sums) const {
    for (size_t t = 0; t < job_.wanted.weights.size(); ++t) {
      write_weight_grad(t, sums, job_.weights[t].element);
      sums += sum_elements(t);
    }
    if (job_.wanted.bias == nullptr) return;
    kernels_.write(sums, job_.shape.outputs, job_.weights.front().element, job_.wanted.bias);
  }

 private:
  // The shape of the sums of an input: transposed if a ReLU made it. Otherwise group g has the rows
  // [g, g + 1) * rows of a group.
  int64_t sum_rows(size_t t) const { return relu_backward_[t] ? job_.inputs[t].columns : job_.shape.outputs; }
  int64_t sum_stride(size_t t) const {
    return block_stride<T>(relu_backward_[t] ? job_.shape.outputs : job_.group_columns(t));
  }
  int64_t sum_elements(size_t t) const { return sum_rows(t) * sum_stride(t); }

  void read_input(size_t t, int64_t begin, int64_t end, RowBlock<T>& block) const {
    if (!relu_backward_[t]) return read_values(job_.inputs[t], job_.shape.compute, begin, end, block);
    read_block(job_.inputs[t], job_.shape.compute, begin, end, block);
    if (block.sparse) block.find_columns();
  }

  // Adds the gradients of an input and its weight for the block of rows from `begin`.
  void add_grads(size_t t, int64_t begin, T* sums, Scratch& scratch) const {
    const bool weighs = job_.wanted.weights.size() > t;
    if (weighs) read_input(t, begin, begin + scratch.grad.rows, scratch.input);
    if (relu_backward_[t] && scratch.input.sparse && !scratch.grad.sparse) {
      return add_relu_backward(t, begin, sums, scratch);
    }
    if (weighs) add_weight_grad(t, sums, scratch);
    if (!input_grads_[t]) return;
    input_grads_[t]->write(begin, scratch.grad, scratch.product.data(), scratch.values, scratch.next.queue);
  }

  void add_relu_backward(size_t t, int64_t begin, T* sums, Scratch& scratch) const {
    const int64_t rows = scratch.grad.rows;
    T* const dots = scratch.dots.data();
    relu_backward_[t]->add_grads(scratch.grad, scratch.input, sums, sum_stride(t), dots, scratch.next.queue);
    relu_backward_[t]->transpose(dots, rows, scratch.product.data(), input_grads_[t]->stride());
    input_grads_[t]->store(begin, 0, rows, scratch.product.data());
  }

  // sums[f, :] += factors[i, f] * others[i, :] for the rows of the block, in order.
  void add_weight_grad(size_t t, T* sums, Scratch& scratch) const {
    const RowBlock<T>& input = scratch.input;
    const bool by_input = relu_backward_[t].has_value();
    const RowBlock<T>& factors = by_input ? input : scratch.grad;
    const RowBlock<T>& others = by_input ? scratch.grad : input;
    const int64_t rows = factors.columns / job_.shape.groups, columns = others.columns / job_.shape.groups;
    for (int64_t group = 0; group < job_.shape.groups; ++group) {
      const int64_t first = group * rows;
      multiply_block<T>(
          {factors.sparse ? factors.by_column.data() + first : nullptr, factors.values.data() + first, 1,
           factors.stride, rows, factors.rows, columns, others.values.data() + group * columns, others.stride,
           sums + first * sum_stride(t), sum_stride(t)},
          scratch.values, scratch.next.queue);
    }
  }

  void write_weight_grad(size_t t, const T* sums, Element element) const {
    const int64_t columns = job_.group_columns(t), stride = sum_stride(t);
    char* const to = static_cast<char*>(job_.wanted.weights[t]);
    Buffer<T> transposed;
    transposed.reserve(columns + 1);
    for (int64_t o = 0; o < job_.shape.outputs; ++o) {
      const T* row = sums + o * stride;
      if (relu_backward_[t]) {
        for (int64_t k = 0; k < columns; ++k) transposed.data()[k] = sums[k * stride + o];
        row = transposed.data();
      }
      kernels_.write(row, columns, element, to + o * columns * element_bytes(element));
    }
  }

  const ProductKernels<T>& kernels_;
  const LinearGrads& job_;
  const GradientRows<T> grad_rows_;
  std::vector<std::optional<InputGrad<T>>> input_grads_;             // those that are wanted
  std::vector<std::optional<ReluBackwardWeight<T>>> relu_backward_;  // those of inputs that a ReLU made
};

}  // namespace

void linear_grads(const LinearGrads& job, int64_t threads) {
  if (job.shape.compute == Element::kFloat64) {
    return sum_parts<double>(Backward<double>(job), job.shape.rows, threads);
  }
  if (linear_grads_tiles(job, threads) || linear_grads_pairs(job, threads)) return;
  sum_parts<float>(Backward<float>(job), job.shape.rows, threads);
}

}  // namespace pyg_batchgnn
