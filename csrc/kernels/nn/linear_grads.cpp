// The gradients of a dense layer, in one pass over the gradient of its output.
//
// After ReLU and dropout most of that gradient is zero. Bits tell which elements are not. If at
// most kDense of a block is not zero, products skip the zeros. The gradient of a weight can skip
// zeros of the input instead, if it is computed transposed.

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/nn/block_product.h"
#include "kernels/nn/linear.h"
#include "kernels/nn/linear_before.h"
#include "kernels/nn/linear_grads_blocks.h"
#include "kernels/nn/linear_grads_pairs.h"
#include "kernels/nn/linear_input_grad.h"
#include "kernels/nn/linear_parts.h"
#include "kernels/nn/linear_relu_backward.h"
#include "kernels/parallel.h"

namespace pyg_batchgnn {
namespace {

// Fewer rows than bits in a word: then two operands, those of the next block, and weights and sums
// of 256 columns fit into the second cache.
constexpr int64_t kBlockRows = 48;
static_assert(kBlockRows <= kGradBlockRows);

// The operand of a weight's gradient that gives the factors, of which zeros are skipped. Its
// columns are the rows of the sums.
enum class Factors : uint8_t { kGradient, kInput };

template <class T>
class Backward {
 public:
  Backward(const LinearShape& shape, const std::vector<LinearInput>& inputs,
           const std::vector<LinearWeight>& weights, const LinearGradient& gradient,
           const LinearWanted& wanted)
      : kernels_(product_kernels<T>()),
        shape_(shape),
        inputs_(inputs),
        gradient_(gradient),
        wanted_(wanted),
        read_(inputs),
        grad_rows_(shape.outputs, gradient),
        input_grads_(inputs.size()),
        relu_backward_(inputs.size()),
        factors_(inputs.size(), Factors::kGradient) {
    for (size_t t = 0; t < inputs.size(); ++t) {
      input_rows_.emplace_back(inputs[t], shape.compute);
      if (passes_on(t)) input_grads_[t].emplace(shape, inputs[t], weights[t], wanted.inputs[t]);
    }
    if (wanted.before != nullptr) {
      before_.emplace(*wanted.before, inputs.front().columns, shape.compute);
      factors_.front() = Factors::kInput;
      read_.push_back(wanted.before->input);
    } else if (!wanted.weights.empty()) {
      choose_factors();
    }
    for (size_t t = 0; t < inputs.size(); ++t) {
      if (!takes_relu_backward(t)) continue;
      relu_backward_[t].emplace(shape.outputs, group_columns(t), input_grads_[t]->weight(),
                                input_grads_[t]->stride());
    }
  }

  // The number of sums of one part: of each weight, [outputs, columns of the input] or transposed;
  // of the layer before; of the bias.
  int64_t part_elements() const {
    int64_t total = shape_.outputs + (before_ ? before_->elements() : 0);
    for (size_t t = 0; t < inputs_.size(); ++t) total += sum_elements(t);
    return total;
  }

  struct Scratch {
    RowBlock<T> grad;
    RowBlock<T> input;
    RowBlock<T> before;
    Buffer<T> dots;  // of an input that a ReLU made
    Buffer<T> product;
    std::vector<const T*> values;
    BlockPrefetch next;
  };

  // Allocates all memory in advance, so that the memory in use does not depend on the timing of
  // threads.
  void prepare(Scratch& scratch) const {
    int64_t most_columns = 0, most_stride = 0, most_dots = 0;
    for (size_t t = 0; t < inputs_.size(); ++t) {
      most_columns = std::max(most_columns, inputs_[t].columns);
      if (relu_backward_[t]) most_dots = std::max(most_dots, relu_backward_[t]->dot_elements());
      if (input_grads_[t]) most_stride = std::max(most_stride, input_grads_[t]->stride());
    }
    const int64_t rows = std::min(kBlockRows, shape_.rows);
    scratch.grad.resize(rows, shape_.outputs);
    if (!wanted_.weights.empty()) scratch.input.resize(rows, most_columns);
    scratch.product.reserve(rows * most_stride + 1);
    scratch.dots.reserve(most_dots + 1);
    if (before_) scratch.before.resize(rows, wanted_.before->input.columns);
  }

  void part(int64_t begin, int64_t end, T* sums, Scratch& scratch) const {
    std::fill_n(sums, part_elements(), T{0});
    for (int64_t row = begin; row < end; row += kBlockRows) {
      grad_rows_.read(row, std::min(end, row + kBlockRows), scratch.grad);
      prefetch_block(gradient_, shape_.outputs, wanted_.weights.empty() ? nullptr : &read_, row + kBlockRows,
                     std::min(end, row + 2 * kBlockRows), scratch.next);
      T* to = sums;
      for (size_t t = 0; t < inputs_.size(); ++t) {
        add_grads(t, row, to, scratch);
        to += sum_elements(t);
      }
      if (before_) to += before_->elements();
      if (wanted_.bias != nullptr) {
        for (int64_t i = 0; i < scratch.grad.rows; ++i) {
          kernels_.add(scratch.grad.row(i), shape_.outputs, to);
        }
      }
    }
    kernels_.fence();
  }

  void write(const T* sums, const std::vector<LinearWeight>& weights, Element bias_element) const {
    for (size_t t = 0; t < wanted_.weights.size(); ++t) {
      write_weight_grad(t, sums, weights[t].element);
      sums += sum_elements(t);
    }
    if (before_) {
      before_->write(sums);
      sums += before_->elements();
    }
    if (wanted_.bias != nullptr) kernels_.write(sums, shape_.outputs, bias_element, wanted_.bias);
  }

 private:
  int64_t group_columns(size_t t) const { return inputs_[t].columns / shape_.groups; }

  bool passes_on(size_t t) const { return wanted_.inputs[t] != nullptr || wanted_.before != nullptr; }

  // The zeros of an input are known only if it gives the factors of the weight's gradient.
  bool takes_relu_backward(size_t t) const {
    return inputs_[t].after_relu && inputs_[t].center == nullptr && passes_on(t) &&
           !wanted_.weights.empty() && factors_[t] == Factors::kInput && shape_.groups == 1;
  }

  // The shape of the sums of an input. Group g has the rows [g, g + 1) * rows of a group.
  int64_t sum_rows(size_t t) const {
    return factors_[t] == Factors::kGradient ? shape_.outputs : inputs_[t].columns;
  }
  int64_t sum_stride(size_t t) const {
    return block_stride<T>(factors_[t] == Factors::kGradient ? group_columns(t) : shape_.group_outputs());
  }
  int64_t sum_elements(size_t t) const { return sum_rows(t) * sum_stride(t); }

  // Chooses the operand with fewer non-zeros. If zeros are few, chooses the one that fills tiles
  // and vectors better.
  void choose_factors() {
    const double grad_density = grad_rows_.density(shape_.rows);
    for (size_t t = 0; t < inputs_.size(); ++t) {
      const double input_density = input_rows_[t].density(shape_.rows);
      const int64_t outputs = shape_.group_outputs(), columns = group_columns(t);
      if (work(columns, outputs, input_density) < work(outputs, columns, grad_density)) {
        factors_[t] = Factors::kInput;
      }
    }
  }

  // Returns the cost of sums of `rows` and `columns`, in operations of a dense product.
  double work(int64_t rows, int64_t columns, double density) const {
    const double padded = static_cast<double>(round_up(columns, kernels_.width));
    if (density >= kDense) return static_cast<double>(round_up(rows, kTileRows)) * padded;
    return static_cast<double>(rows) * padded * (density / kDense);
  }

  void read_input(size_t t, int64_t begin, int64_t end, RowBlock<T>& block) const {
    if (factors_[t] != Factors::kInput) return input_rows_[t].read(begin, end, block);
    input_rows_[t].read_with_zeros(begin, end, block);
    if (block.sparse || before_) block.find_columns();
  }

  // Adds the gradients of an input and its weight for the block of rows from `begin`.
  void add_grads(size_t t, int64_t begin, T* sums, Scratch& scratch) const {
    const bool weighs = wanted_.weights.size() > t;
    if (weighs) read_input(t, begin, begin + scratch.grad.rows, scratch.input);
    if (before_ || (relu_backward_[t] && scratch.input.sparse && !scratch.grad.sparse)) {
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
    if (before_) {
      return before_->add(begin, rows, scratch.input.by_column.data(), scratch.input.rows_at_once, dots,
                          sums + sum_elements(t), scratch.before, scratch.next.queue);
    }
    relu_backward_[t]->transpose(dots, rows, scratch.product.data(), input_grads_[t]->stride());
    input_grads_[t]->store(begin, 0, rows, scratch.product.data());
  }

  // sums[f, :] += factors[i, f] * others[i, :] for the rows of the block, in order.
  void add_weight_grad(size_t t, T* sums, Scratch& scratch) const {
    const RowBlock<T>& input = scratch.input;
    const bool by_input = factors_[t] == Factors::kInput;
    const RowBlock<T>& factors = by_input ? input : scratch.grad;
    const RowBlock<T>& others = by_input ? scratch.grad : input;
    const int64_t rows = factors.columns / shape_.groups, columns = others.columns / shape_.groups;
    for (int64_t group = 0; group < shape_.groups; ++group) {
      const int64_t first = group * rows;
      multiply_block<T>(
          {factors.sparse ? factors.by_column.data() + first : nullptr, factors.values.data() + first, 1,
           factors.stride, rows, factors.rows, columns, others.values.data() + group * columns, others.stride,
           sums + first * sum_stride(t), sum_stride(t)},
          scratch.values, scratch.next.queue);
    }
  }

  void write_weight_grad(size_t t, const T* sums, Element element) const {
    const int64_t columns = group_columns(t), outputs = shape_.group_outputs(), stride = sum_stride(t);
    char* const to = static_cast<char*>(wanted_.weights[t]);
    Buffer<T> transposed;
    transposed.reserve(columns + 1);
    for (int64_t o = 0; o < shape_.outputs; ++o) {
      const T* row = sums + o * stride;
      if (factors_[t] == Factors::kInput) {
        const T* const column = sums + o / outputs * columns * stride + o % outputs;
        for (int64_t k = 0; k < columns; ++k) transposed.data()[k] = column[k * stride];
        row = transposed.data();
      }
      kernels_.write(row, columns, element, to + o * columns * element_bytes(element));
    }
  }

  const ProductKernels<T>& kernels_;
  const LinearShape& shape_;
  const std::vector<LinearInput>& inputs_;
  const LinearGradient& gradient_;
  const LinearWanted& wanted_;
  std::vector<LinearInput> read_;  // the inputs and that of the layer before
  const GradientRows<T> grad_rows_;
  std::vector<InputRows<T>> input_rows_;
  std::vector<std::optional<InputGrad<T>>> input_grads_;             // those that are wanted, also by the
                                                                     // layer before
  std::vector<std::optional<ReluBackwardWeight<T>>> relu_backward_;  // those of inputs that a ReLU made
  std::optional<BeforeGrads<T>> before_;
  std::vector<Factors> factors_;
};

}  // namespace

template <class T>
void linear_grads(const LinearShape& shape, const std::vector<LinearInput>& inputs,
                  const std::vector<LinearWeight>& weights, const LinearGradient& gradient,
                  const LinearWanted& wanted, int64_t threads) {
  if (has_pair_grads(shape.compute)) {
    return linear_grads_pairs(shape, inputs, weights, gradient, wanted, threads);
  }
  const Backward<T> backward(shape, inputs, weights, gradient, wanted);
  const Parts parts(shape.rows);
  const int64_t elements = backward.part_elements();
  Buffer<T> sums;
  sums.reserve(parts.count * elements);
  std::vector<typename Backward<T>::Scratch> scratch(
      static_cast<size_t>(std::clamp<int64_t>(threads, 1, parts.count)));
  for (auto& one : scratch) backward.prepare(one);
  run_tasks(parts.count, threads, [&](int64_t part, int64_t slot) {
    backward.part(parts.begin(part), parts.begin(part + 1), sums.data() + part * elements,
                  scratch[static_cast<size_t>(slot)]);
  });
  add_up(parts, sums.data(), elements, threads);
  backward.write(sums.data(), weights, weights.front().element);
}

template void linear_grads<float>(const LinearShape&, const std::vector<LinearInput>&,
                                  const std::vector<LinearWeight>&, const LinearGradient&,
                                  const LinearWanted&, int64_t);
template void linear_grads<double>(const LinearShape&, const std::vector<LinearInput>&,
                                   const std::vector<LinearWeight>&, const LinearGradient&,
                                   const LinearWanted&, int64_t);

}  // namespace pyg_batchgnn
