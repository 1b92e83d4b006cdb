// The gradients of a dense layer in one pass over its output's gradient.
//
// After ReLU and dropout most of that gradient is zero, and which elements are is known by bits: where at
// most kDense of a block is not zero, products skip the rest. The gradient of a weight can skip zeros of the
// input instead, as its transpose.

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/nn/block_product.h"
#include "kernels/nn/linear.h"
#include "kernels/nn/linear_gates.h"
#include "kernels/nn/linear_grads_blocks.h"
#include "kernels/nn/linear_grads_pairs.h"
#include "kernels/nn/linear_parts.h"
#include "kernels/parallel.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kBlockRows = kGradBlockRows;

// Which operand of a weight's gradient gives the factors, whose zeros are skipped: the sums' rows are the
// columns of that one.
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
        grad_rows_(shape.outputs, gradient),
        weights_(inputs.size()),
        gates_(inputs.size()),
        factors_(inputs.size(), Factors::kGradient) {
    for (size_t t = 0; t < inputs.size(); ++t) {
      input_rows_.emplace_back(inputs[t], shape.compute);
      if (wanted.inputs[t] != nullptr) spread_weight(weights[t], t);
      if (is_gated(t))
        gates_[t].emplace(shape.outputs, group_columns(t), weights_[t].data(), weight_stride(t));
    }
    if (!wanted.weights.empty()) choose_factors();
  }

  // Sums of one part: a weight's as [outputs, input's columns] or the other way round, then the bias's.
  int64_t part_elements() const {
    int64_t total = shape_.outputs;
    for (size_t t = 0; t < inputs_.size(); ++t) total += sum_elements(t);
    return total;
  }

  struct Scratch {
    RowBlock<T> grad;
    RowBlock<T> input;
    Buffer<T> product;
    std::vector<const T*> values;
    std::vector<Ahead::Row> next;
    Ahead ahead;
  };

  // Takes all memory beforehand: how much is held at a time then does not depend on when threads begin.
  void prepare(Scratch& scratch) const {
    int64_t most_columns = 0, most_stride = 0;
    for (size_t t = 0; t < inputs_.size(); ++t) {
      most_columns = std::max(most_columns, inputs_[t].columns);
      if (wanted_.inputs[t] != nullptr) most_stride = std::max(most_stride, weight_stride(t));
    }
    const int64_t rows = std::min(kBlockRows, shape_.rows);
    scratch.grad.resize(rows, shape_.outputs);
    if (!wanted_.weights.empty()) scratch.input.resize(rows, most_columns);
    scratch.product.reserve(rows * most_stride + 1);
  }

  void part(int64_t begin, int64_t end, T* sums, Scratch& scratch) const {
    std::fill_n(sums, part_elements(), T{0});
    for (int64_t row = begin; row < end; row += kBlockRows) {
      grad_rows_.read(row, std::min(end, row + kBlockRows), scratch.grad);
      foresee_block(row + kBlockRows, std::min(end, row + 2 * kBlockRows), scratch);
      T* to = sums;
      for (size_t t = 0; t < inputs_.size(); ++t) {
        if (wanted_.weights.size() > t) add_weight_grad(t, row, to, scratch);
        to += sum_elements(t);
        if (wanted_.inputs[t] != nullptr) write_input_grad(t, row, scratch);
      }
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
    if (wanted_.bias != nullptr) kernels_.write(sums, shape_.outputs, bias_element, wanted_.bias);
  }

 private:
  int64_t group_columns(size_t t) const { return inputs_[t].columns / shape_.groups; }
  int64_t weight_stride(size_t t) const { return block_stride<T>(group_columns(t)); }

  // Its zeros are known where the weight's gradient reads it.
  bool is_gated(size_t t) const {
    return inputs_[t].gated && inputs_[t].center == nullptr && wanted_.inputs[t] != nullptr &&
           !wanted_.weights.empty() && GatedWeight<T>::fits(shape_);
  }

  // Of an input's sums: those of group g are the rows [g, g + 1) * group's rows.
  int64_t sum_rows(size_t t) const {
    return factors_[t] == Factors::kGradient ? shape_.outputs : inputs_[t].columns;
  }
  int64_t sum_stride(size_t t) const {
    return factors_[t] == Factors::kGradient ? weight_stride(t) : block_stride<T>(shape_.group_outputs());
  }
  int64_t sum_elements(size_t t) const { return sum_rows(t) * sum_stride(t); }

  // The operand with fewer non-zeros, or where the zeros are few the one that fills tiles and vectors better.
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

  // What sums of so many rows and columns cost in operations of a dense product.
  double work(int64_t rows, int64_t columns, double density) const {
    const double padded = static_cast<double>(round_up(columns, kernels_.width));
    if (density >= kDense) return static_cast<double>(round_up(rows, kTileRows)) * padded;
    return static_cast<double>(rows) * padded * (density / kDense);
  }

  void foresee_block(int64_t begin, int64_t end, Scratch& scratch) const {
    scratch.next.clear();
    foresee_gradient(gradient_, shape_.outputs, begin, end, scratch.next);
    if (!wanted_.weights.empty()) foresee(inputs_, begin, end, scratch.next);
    scratch.ahead = {scratch.next.data(), scratch.next.data() + scratch.next.size()};
  }

  void spread_weight(const LinearWeight& weight, size_t t) {
    const int64_t columns = group_columns(t), stride = weight_stride(t), count = shape_.outputs * columns;
    Buffer<T> rounded;
    read_rounded(weight, shape_.compute, count, rounded.reserve(count + 1));
    T* const to = weights_[t].reserve(shape_.outputs * stride + 1);
    for (int64_t o = 0; o < shape_.outputs; ++o) {
      std::copy_n(rounded.data() + o * columns, columns, to + o * stride);
      std::fill_n(to + o * stride + columns, stride - columns, T{0});
    }
  }

  void read_input(size_t t, int64_t begin, int64_t end, RowBlock<T>& block) const {
    const bool by_input = factors_[t] == Factors::kInput;
    if (!by_input && !gates_[t]) return input_rows_[t].read(begin, end, block);
    input_rows_[t].read_with_zeros(begin, end, block);
    if (by_input && block.sparse) block.find_columns();
  }

  // sums[f, :] += factors[i, f] * others[i, :] for the rows of the block, in order.
  void add_weight_grad(size_t t, int64_t begin, T* sums, Scratch& scratch) const {
    RowBlock<T>& input = scratch.input;
    const int64_t end = begin + scratch.grad.rows;
    const bool by_input = factors_[t] == Factors::kInput;
    read_input(t, begin, end, input);
    const RowBlock<T>& factors = by_input ? input : scratch.grad;
    const RowBlock<T>& others = by_input ? scratch.grad : input;
    const int64_t rows = factors.columns / shape_.groups, columns = others.columns / shape_.groups;
    for (int64_t group = 0; group < shape_.groups; ++group) {
      const int64_t first = group * rows;
      multiply_block<T>(
          {factors.sparse ? factors.by_column.data() + first : nullptr, factors.values.data() + first, 1,
           factors.stride, rows, factors.rows, columns, others.values.data() + group * columns, others.stride,
           sums + first * sum_stride(t), sum_stride(t)},
          scratch.values, scratch.ahead);
    }
  }

  void write_weight_grad(size_t t, const T* sums, Element element) const {
    const int64_t columns = group_columns(t), outputs = shape_.group_outputs(), stride = sum_stride(t);
    char* const to = static_cast<char*>(wanted_.weights[t]);
    Buffer<T> turned;
    turned.reserve(columns + 1);
    for (int64_t o = 0; o < shape_.outputs; ++o) {
      const T* row = sums + o * stride;
      if (factors_[t] == Factors::kInput) {
        const T* const column = sums + o / outputs * columns * stride + o % outputs;
        for (int64_t k = 0; k < columns; ++k) turned.data()[k] = column[k * stride];
        row = turned.data();
      }
      kernels_.write(row, columns, element, to + o * columns * element_bytes(element));
    }
  }

  // d_input[i, :] = sum over o of grad[i, o] * weight[o, :].
  void write_input_grad(size_t t, int64_t begin, Scratch& scratch) const {
    const RowBlock<T>& grad = scratch.grad;
    const int64_t columns = group_columns(t), stride = weight_stride(t), outputs = shape_.group_outputs();
    const bool sparse = grad.sparse;
    const int64_t step_outputs = sparse ? kWordBits : outputs;
    T* const product = scratch.product.data();
    uint64_t words[kBlockRows];
    const bool gated = gates_[t] && scratch.input.sparse && !sparse;
    for (int64_t group = 0; group < shape_.groups; ++group) {
      if (gated) {
        gates_[t]->multiply(grad, scratch.input, product, stride, scratch.ahead);
      } else {
        std::fill_n(product, grad.rows * stride, T{0});
      }
      for (int64_t first = 0; first < outputs && !gated; first += step_outputs) {
        const int64_t count = std::min(step_outputs, outputs - first), column = group * outputs + first;
        for (int64_t i = 0; sparse && i < grad.rows; ++i) words[i] = grad.row_bits(i, column, count);
        multiply_block<T>({sparse ? words : nullptr, grad.values.data() + column, grad.stride, 1, grad.rows,
                           count, columns, weights_[t].data() + column * stride, stride, product, stride},
                          scratch.values, scratch.ahead);
      }
      store_input_grad(t, begin, group, grad.rows, product);
    }
  }

  void store_input_grad(size_t t, int64_t begin, int64_t group, int64_t rows, const T* product) const {
    const int64_t columns = group_columns(t), stride = weight_stride(t);
    const int64_t item = element_bytes(inputs_[t].element), step = inputs_[t].columns * item;
    char* const to = static_cast<char*>(wanted_.inputs[t]) + begin * step + group * columns * item;
    const bool lines = columns * item % Ahead::kLine == 0 && step % Ahead::kLine == 0 &&
                       reinterpret_cast<uintptr_t>(to) % Ahead::kLine == 0;
    const bool streamed = lines && inputs_[t].element == kElement<T> && shape_.rows * step >= kStreamedBytes;
    for (int64_t i = 0; i < rows; ++i) {
      if (streamed) {
        kernels_.stream(product + i * stride, columns * item, to + i * step);
      } else {
        kernels_.write(product + i * stride, columns, inputs_[t].element, to + i * step);
      }
    }
  }

  const ProductKernels<T>& kernels_;
  const LinearShape& shape_;
  const std::vector<LinearInput>& inputs_;
  const LinearGradient& gradient_;
  const LinearWanted& wanted_;
  const GradientRows<T> grad_rows_;
  std::vector<InputRows<T>> input_rows_;
  std::vector<Buffer<T>> weights_;  // rounded, rows at weight_stride; where the input's gradient is wanted
  std::vector<std::optional<GatedWeight<T>>>
      gates_;  // where an input's gradient is wanted behind its ReLU only
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
  const ProductKernels<T>& kernels = product_kernels<T>();
  for (int64_t part = 1; part < parts.count; ++part) {
    kernels.add(sums.data() + part * elements, elements, sums.data());
  }
  backward.write(sums.data(), weights, weights.front().element);
}

template void linear_grads<float>(const LinearShape&, const std::vector<LinearInput>&,
                                  const std::vector<LinearWeight>&, const LinearGradient&,
                                  const LinearWanted&, int64_t);
template void linear_grads<double>(const LinearShape&, const std::vector<LinearInput>&,
                                   const std::vector<LinearWeight>&, const LinearGradient&,
                                   const LinearWanted&, int64_t);

}  // namespace pyg_batchgnn
