// The gradients of a dense layer in one pass over its output's gradient.
//
// After ReLU and dropout most of that gradient is zero, and which elements are is known by bits: where at
// most kDense of a block is not zero, products skip the rest.

#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/nn/linear.h"
#include "kernels/nn/linear_blocks.h"
#include "kernels/nn/linear_grads_pairs.h"
#include "kernels/nn/linear_parts.h"
#include "kernels/parallel.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kBlockRows = kGradBlockRows;
constexpr double kDense = 0.6;             // share of non-zeros from which the dense product is faster
constexpr int64_t kCacheBytes = 28 << 10;  // of an operand's block that stays in the first cache

// A block of the gradient, and which of its elements are not zero by rows and by columns.
template <class T>
struct GradBlock {
  int64_t rows, stride, words;  // words a row
  Buffer<T> values;             // [kBlockRows, stride]
  Buffer<uint64_t> by_row;      // [kBlockRows, words]
  Buffer<uint64_t> by_column;   // [stride]
  bool sparse;

  // Bits of columns [first, first + count) of a row, count <= kWordBits.
  uint64_t row_bits(int64_t row, int64_t first, int64_t count) const {
    const uint64_t* const from = by_row.data() + row * words;
    const int64_t word = first / kWordBits, inside = first % kWordBits;
    uint64_t bits = from[word] >> inside;
    if (inside != 0 && word + 1 < words) bits |= from[word + 1] << (kWordBits - inside);
    return count == kWordBits ? bits : bits & ((uint64_t{1} << count) - 1);
  }
};

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
        grad_stride_(block_stride<T>(round_up(shape.outputs, kWordBits))),
        weights_(inputs.size()) {
    for (size_t t = 0; t < inputs.size(); ++t) {
      if (wanted.inputs[t] != nullptr) spread_weight(weights[t], t);
    }
  }

  // Sums of one part: weights as [outputs, stride of the input's columns], then the bias.
  int64_t weight_stride(size_t t) const { return block_stride<T>(group_columns(t)); }
  int64_t part_elements() const {
    int64_t total = grad_stride_;
    for (size_t t = 0; t < inputs_.size(); ++t) total += padded_outputs() * weight_stride(t);
    return total;
  }

  struct Scratch {
    GradBlock<T> grad;
    Buffer<T> input;
    Buffer<T> product;
    std::vector<const T*> values;
    std::vector<Ahead::Row> next;
    Ahead ahead;
  };

  void part(int64_t begin, int64_t end, T* sums, Scratch& scratch) const {
    std::fill_n(sums, part_elements(), T{0});
    for (int64_t row = begin; row < end; row += kBlockRows) {
      read_grad(row, std::min(end, row + kBlockRows), scratch.grad);
      foresee_block(row + kBlockRows, std::min(end, row + 2 * kBlockRows), scratch);
      T* to = sums;
      for (size_t t = 0; t < inputs_.size(); ++t) {
        if (wanted_.weights.size() > t) add_weight_grad(t, row, to, scratch);
        to += padded_outputs() * weight_stride(t);
        if (wanted_.inputs[t] != nullptr) write_input_grad(t, row, scratch);
      }
      if (wanted_.bias != nullptr) {
        for (int64_t i = 0; i < scratch.grad.rows; ++i) {
          kernels_.add(scratch.grad.values.data() + i * grad_stride_, shape_.outputs, to);
        }
      }
    }
    kernels_.fence();
  }

  void write(const T* sums, const std::vector<LinearWeight>& weights, Element bias_element) const {
    for (size_t t = 0; t < wanted_.weights.size(); ++t) {
      const int64_t columns = group_columns(t), item = element_bytes(weights[t].element);
      for (int64_t o = 0; o < shape_.outputs; ++o) {
        kernels_.write(sums + o * weight_stride(t), columns, weights[t].element,
                       static_cast<char*>(wanted_.weights[t]) + o * columns * item);
      }
      sums += padded_outputs() * weight_stride(t);
    }
    if (wanted_.bias != nullptr) kernels_.write(sums, shape_.outputs, bias_element, wanted_.bias);
  }

 private:
  int64_t group_columns(size_t t) const { return inputs_[t].columns / shape_.groups; }
  // Tiles of a dense product may reach beyond the last group's end.
  int64_t padded_outputs() const { return shape_.outputs + kTileRows; }

  void foresee_block(int64_t begin, int64_t end, Scratch& scratch) const {
    scratch.next.clear();
    if (begin < end) {
      const int64_t row_bytes = shape_.outputs * element_bytes(gradient_.element);
      const char* const grad = static_cast<const char*>(gradient_.grad);
      if (row_bytes != 0) scratch.next.push_back({grad + begin * row_bytes, grad + end * row_bytes});
      if (!wanted_.weights.empty()) foresee(inputs_, begin, end, scratch.next);
    }
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

  void read_grad(int64_t begin, int64_t end, GradBlock<T>& block) const {
    block.rows = end - begin;
    block.stride = grad_stride_;
    block.words = (shape_.outputs + kWordBits - 1) / kWordBits;
    block.values.reserve(kBlockRows * grad_stride_ + 1);
    block.by_row.reserve(kBlockRows * block.words + 1);
    block.by_column.reserve(grad_stride_ + 1);
    const int64_t mask_bytes = (shape_.outputs + 7) / 8;
    const char* const grad = static_cast<const char*>(gradient_.grad);
    kernels_.masked_grad({grad + begin * shape_.outputs * element_bytes(gradient_.element), gradient_.element,
                          shape_.outputs,
                          gradient_.mask == nullptr ? nullptr : gradient_.mask + begin * mask_bytes,
                          mask_bytes, static_cast<T>(gradient_.scale), block.rows, shape_.outputs,
                          block.values.data(), grad_stride_, block.by_row.data()});
    int64_t nonzero = 0;
    for (int64_t word = 0; word < block.words; ++word) {
      uint64_t* const columns = block.by_column.data() + word * kWordBits;
      for (int64_t i = 0; i < kWordBits; ++i) {
        columns[i] = i < block.rows ? block.by_row.data()[i * block.words + word] : 0;
      }
      transpose_bits(columns);
      for (int64_t i = 0; i < kWordBits; ++i) nonzero += std::popcount(columns[i]);
    }
    block.sparse = static_cast<double>(nonzero) < kDense * static_cast<double>(block.rows * shape_.outputs);
  }

  // sums[o, :] += grad[i, o] * input[i, :] for the rows of the block, in order.
  void add_weight_grad(size_t t, int64_t begin, T* sums, Scratch& scratch) const {
    const GradBlock<T>& grad = scratch.grad;
    const int64_t columns = group_columns(t), stride = weight_stride(t), outputs = shape_.group_outputs();
    T* const block = scratch.input.reserve(kBlockRows * stride);
    for (int64_t group = 0; group < shape_.groups; ++group) {
      const int64_t offset = group * columns * element_bytes(inputs_[t].element);
      for (int64_t i = 0; i < grad.rows; ++i) {
        read_rounded(inputs_[t].row(begin + i) + offset, inputs_[t].element, shape_.compute, columns,
                     block + i * stride);
        std::fill_n(block + i * stride + columns, round_up(columns, kernels_.width) - columns, T{0});
      }
      multiply(grad.sparse, grad.by_column.data() + group * outputs, 1, grad.values.data() + group * outputs,
               1, grad_stride_, outputs, grad.rows, columns, block, stride, sums + group * outputs * stride,
               stride, scratch);
    }
  }

  // d_input[i, :] = sum over o of grad[i, o] * weight[o, :].
  void write_input_grad(size_t t, int64_t begin, Scratch& scratch) const {
    const GradBlock<T>& grad = scratch.grad;
    const int64_t columns = group_columns(t), stride = weight_stride(t), outputs = shape_.group_outputs();
    const int64_t item = element_bytes(inputs_[t].element);
    T* const product = scratch.product.reserve((kBlockRows + kTileRows) * stride);
    uint64_t words[kBlockRows];
    for (int64_t group = 0; group < shape_.groups; ++group) {
      std::fill_n(product, grad.rows * stride, T{0});
      for (int64_t first = 0; first < outputs; first += kWordBits) {
        const int64_t count = std::min(kWordBits, outputs - first), column = group * outputs + first;
        for (int64_t i = 0; i < grad.rows; ++i) words[i] = grad.row_bits(i, column, count);
        multiply(grad.sparse, words, 1, grad.values.data() + column, grad_stride_, 1, grad.rows, count,
                 columns, weights_[t].data() + column * stride, stride, product, stride, scratch);
      }
      char* const to =
          static_cast<char*>(wanted_.inputs[t]) + (begin * inputs_[t].columns + group * columns) * item;
      const int64_t step = inputs_[t].columns * item;
      const bool lines = columns * item % Ahead::kLine == 0 && step % Ahead::kLine == 0 &&
                         reinterpret_cast<uintptr_t>(to) % Ahead::kLine == 0;
      const bool streamed =
          lines && inputs_[t].element == kElement<T> && shape_.rows * step >= kStreamedBytes;
      for (int64_t i = 0; i < grad.rows; ++i) {
        if (streamed) {
          kernels_.stream(product + i * stride, columns * item, to + i * step);
        } else {
          kernels_.write(product + i * stride, columns, inputs_[t].element, to + i * step);
        }
      }
    }
  }

  // out[r, :] += sum over s of values[r * row_step + s * value_step] * x[s, :].
  void multiply(bool sparse, const uint64_t* words, int64_t word_step, const T* values, int64_t row_step,
                int64_t value_step, int64_t rows, int64_t terms, int64_t columns, const T* x,
                int64_t x_stride, T* out, int64_t out_stride, Scratch& scratch) const {
    const int64_t vectors = round_up(columns, kernels_.width) / kernels_.width;
    if (sparse) {
      const int64_t fitting =
          std::max<int64_t>(1, kCacheBytes / (terms * kernels_.width * static_cast<int64_t>(sizeof(T))));
      const int64_t pieces = (vectors + fitting - 1) / fitting;
      for (int64_t piece = 0; piece < pieces; ++piece) {
        const int64_t first = vectors * piece / pieces, last = vectors * (piece + 1) / pieces;
        kernels_.sparse({words, word_step, values, row_step, value_step, rows, last - first,
                         x + first * kernels_.width, x_stride, out + first * kernels_.width, out_stride,
                         &scratch.ahead});
      }
      return;
    }
    const int64_t whole = rows / kTileRows * kTileRows;
    std::vector<const T*>& pointers = scratch.values;
    pointers.resize(static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) pointers[static_cast<size_t>(r)] = values + r * row_step;
    if (whole != 0) {
      kernels_.dense({pointers.data(), value_step, whole, terms, vectors, x, x_stride, out, out_stride, true,
                      &scratch.ahead});
    }
    if (whole != rows)
      last_rows(pointers.data() + whole, value_step, rows - whole, terms, vectors, x, x_stride,
                out + whole * out_stride, out_stride);
  }

  // Fewer rows than a tile has: the rest of the tile is computed and thrown away.
  void last_rows(const T* const* values, int64_t value_step, int64_t rows, int64_t terms, int64_t vectors,
                 const T* x, int64_t x_stride, T* out, int64_t out_stride) const {
    constexpr int64_t kMostWidth = 64;
    Ahead nothing;
    const T* starts[kTileRows];
    T tile[kTileRows * kMostWidth];
    for (int64_t r = 0; r < kTileRows; ++r) starts[r] = values[std::min(r, rows - 1)];
    const int64_t step = kernels_.panel / kernels_.width;
    for (int64_t first = 0; first < vectors; first += step) {
      const int64_t count = std::min(step, vectors - first), width = count * kernels_.width;
      for (int64_t r = 0; r < kTileRows; ++r) {
        std::copy_n(out + std::min(r, rows - 1) * out_stride + first * kernels_.width, width,
                    tile + r * width);
      }
      kernels_.dense({starts, value_step, kTileRows, terms, count, x + first * kernels_.width, x_stride, tile,
                      width, true, &nothing});
      for (int64_t r = 0; r < rows; ++r) {
        std::copy_n(tile + r * width, width, out + r * out_stride + first * kernels_.width);
      }
    }
  }

  const ProductKernels<T>& kernels_;
  const LinearShape& shape_;
  const std::vector<LinearInput>& inputs_;
  const LinearGradient& gradient_;
  const LinearWanted& wanted_;
  const int64_t grad_stride_;
  std::vector<Buffer<T>> weights_;  // rounded, rows at weight_stride; where the input's gradient is wanted
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
  std::vector<typename Backward<T>::Scratch> scratch(static_cast<size_t>(std::max<int64_t>(1, threads)));
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
