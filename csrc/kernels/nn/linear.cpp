#include "kernels/nn/linear.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/nn/linear_moments.h"
#include "kernels/nn/linear_operands.h"
#include "kernels/nn/linear_zero_pairs.h"
#include "kernels/nn/linear_zeros.h"
#include "kernels/parallel.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kBlockRows = 16 * kTileRows;  // rows per block; a panel of weights stays in the
                                                // cache meanwhile
constexpr int64_t kBlocksPerTask = 32;

// The weights of one input, transposed and cut into panels of outputs, [terms, panel] each, group
// by group.
template <class Operands>
class PackedWeight {
 public:
  using T = typename Operands::Sum;
  using Value = typename Operands::Value;

  PackedWeight(const LinearShape& shape, const LinearWeight& weight, int64_t columns)
      : columns_(columns), terms_(Operands::terms(columns)) {
    const ProductKernels<T>& kernels = product_kernels<T>();
    const int64_t outputs = shape.group_outputs(), count = shape.outputs * columns;
    group_size_ = round_up(outputs, kernels.width) * terms_;
    Buffer<T> rounded;
    read_rounded(weight, shape.compute, count, rounded.reserve(count + 1));
    panels_.reserve(shape.groups * group_size_ + 1);
    for (int64_t group = 0; group < shape.groups; ++group) {
      const T* const from = rounded.data() + group * outputs * columns;
      for (int64_t first = 0; first < outputs; first += kernels.panel) {
        const int64_t size = std::min(kernels.panel, round_up(outputs - first, kernels.width));
        fill(from + first * columns, outputs - first, size, panels_.data() + at(group, first));
      }
    }
  }

  int64_t terms() const { return terms_; }
  const Value* panel(int64_t group, int64_t first_output) const {
    return panels_.data() + at(group, first_output);
  }

 private:
  int64_t at(int64_t group, int64_t first_output) const {
    return group * group_size_ + first_output * terms_;
  }

  void fill(const T* from, int64_t outputs, int64_t size, Value* panel) const {
    for (int64_t o = 0; o < size; ++o) {
      for (int64_t term = 0; term < terms_; ++term) {
        panel[term * size + o] = o < outputs ? Operands::pack(from + o * columns_, columns_, term) : Value{0};
      }
    }
  }

  int64_t columns_, terms_, group_size_;
  Buffer<Value> panels_;
};

// The type that skips zeros, of elements or of pairs.
template <class Operands>
using Skipping = std::conditional_t<std::is_same_v<Operands, Pairs>, SkippingPairs,
                                    SkippingWeight<typename Operands::Sum>>;

// The constants of one call, and the work on one block of rows. A block is computed tile by tile.
// If an input has many zeros, its rows are summed instead, which skips them.
template <class Operands>
class Forward {
 public:
  using T = typename Operands::Sum;
  using Value = typename Operands::Value;
  using Block = typename Skipping<Operands>::Block;

  Forward(const LinearShape& shape, const std::vector<LinearInput>& inputs,
          const std::vector<LinearWeight>& weights, const LinearUpdate& update, const LinearOutput& output)
      : kernels_(product_kernels<T>()),
        shape_(shape),
        inputs_(inputs),
        update_(update),
        output_(output),
        dropout_(update.key, update.drop),
        moments_(output.moments.mean != nullptr ? shape.rows : 0, kBlockRows, shape.outputs) {
    for (size_t t = 0; t < inputs.size(); ++t) {
      weights_.emplace_back(shape, weights[t], inputs[t].columns / shape.groups);
      skipping_.emplace_back(shape, inputs[t], weights[t]);
    }
    // The last vector of a panel may reach beyond the end.
    const int64_t room = shape.outputs + kernels_.panel;
    std::fill_n(bias_.reserve(room), room, T{0});
    if (update.bias == nullptr) return;
    kernels_.read(update.bias, update.bias_element, shape.outputs, bias_.data());
  }

  struct Scratch {
    std::vector<Buffer<Value>> converted;
    std::vector<const Value*> values;  // [inputs][kBlockRows]
    std::vector<uint64_t> row_keys;
    BlockPrefetch next;
    Buffer<T> sums;  // of a tile, or of a block's rows
    std::vector<Block> blocks;
  };

  // Allocates all memory in advance, so that the memory in use does not depend on the timing of
  // threads.
  void prepare(Scratch& scratch) const {
    const int64_t rows = std::min(kBlockRows, shape_.rows);
    scratch.converted.resize(inputs_.size());
    for (size_t t = 0; t < inputs_.size(); ++t) {
      if (Operands::in_place(shape_, inputs_[t])) continue;
      scratch.converted[t].reserve(rows * Operands::row_stride(shape_, inputs_[t]) + 1);
    }
    scratch.blocks.resize(skipping_.size());
    bool whole = measures();
    for (size_t t = 0; t < skipping_.size(); ++t) {
      if (!skipping_[t].worthwhile()) continue;
      whole = true;
      scratch.blocks[t].resize(rows, inputs_[t].columns);
    }
    scratch.sums.reserve(whole ? kBlockRows * sums_stride() : kTileRows * kernels_.panel);
  }

  // Computes rows [begin, end) and fetches those up to `next_end`.
  void block(int64_t begin, int64_t end, int64_t next_end, Scratch& scratch) const {
    scratch.next.clear();
    for (const LinearInput& input : inputs_) scratch.next.add(input, end, next_end);
    scratch.next.start();
    read_rows(begin, end, scratch);
    scratch.row_keys.resize(kBlockRows);
    if (drops()) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t node = update_.node != nullptr ? update_.node[i] : i;
        scratch.row_keys[static_cast<size_t>(i - begin)] = dropout_row_key(update_.key, node);
      }
    }
    const bool whole = measures() || std::any_of(scratch.blocks.begin(), scratch.blocks.end(),
                                                 [](const Block& read) { return read.rows != 0; });
    for (int64_t group = 0; group < shape_.groups; ++group) {
      if (whole) {
        rows(group, begin, end - begin, scratch);
      } else {
        tiles(group, begin, end, scratch);
      }
    }
  }

  void join_moments() const {
    if (measures()) moments_.join_all(output_.moments);
  }

 private:
  int64_t sums_stride() const { return block_stride<T>(shape_.group_outputs()); }
  bool measures() const { return output_.moments.mean != nullptr; }
  bool drops() const { return update_.drop > 0 && dropout_.kept_levels < kDropoutLevels; }

  void read_rows(int64_t begin, int64_t end, Scratch& scratch) const {
    scratch.values.resize(inputs_.size() * kBlockRows);
    for (size_t t = 0; t < inputs_.size(); ++t) {
      const Value** const values = scratch.values.data() + t * kBlockRows;
      if (read_zeros(t, begin, end, scratch)) continue;
      Operands::rows(shape_, inputs_[t], begin, end, scratch.converted[t].data(), values);
      for (int64_t i = end - begin; i < kBlockRows; ++i) values[i] = values[0];
    }
  }

  // Returns whether products skip the zeros of these rows of an input. If so, the rows have been
  // read.
  bool read_zeros(size_t t, int64_t begin, int64_t end, Scratch& scratch) const {
    Block& block = scratch.blocks[t];
    block.rows = 0;
    if (!skipping_[t].worthwhile()) return false;
    if (skipping_[t].read(inputs_[t], shape_.compute, begin, end, block)) return true;
    block.rows = 0;
    return false;
  }

  void tiles(int64_t group, int64_t begin, int64_t end, Scratch& scratch) const {
    const int64_t outputs = shape_.group_outputs();
    T* const tile = scratch.sums.data();
    for (int64_t first = 0; first < outputs; first += kernels_.panel) {
      const int64_t columns = std::min(kernels_.panel, outputs - first);
      const int64_t padded = round_up(columns, kernels_.width);
      for (int64_t row = begin; row < end; row += kTileRows) {
        for (size_t t = 0; t < inputs_.size(); ++t) {
          add_tile(t, group, first, row - begin, tile, padded, scratch);
        }
        finish(group, first, columns, row, std::min(kTileRows, end - row), tile, padded,
               scratch.row_keys.data() + (row - begin));
      }
    }
  }

  void rows(int64_t group, int64_t begin, int64_t rows, Scratch& scratch) const {
    const int64_t outputs = shape_.group_outputs(), stride = sums_stride();
    T* const sums = scratch.sums.data();
    for (size_t t = 0; t < inputs_.size(); ++t) {
      if (scratch.blocks[t].rows != 0) {
        if (t == 0) std::fill_n(sums, rows * stride, T{0});
        skipping_[t].add(group, scratch.blocks[t], sums, stride, scratch.next.queue);
        continue;
      }
      for (int64_t first = 0; first < outputs; first += kernels_.panel) {
        for (int64_t at = 0; at < rows; at += kTileRows) {
          add_tile(t, group, first, at, sums + at * stride + first, stride, scratch);
        }
      }
    }
    if (measures()) {
      const int64_t first = group * outputs;
      moments_.take(begin, first, {sums, stride, rows, outputs}, bias_.data() + first);
    }
    finish(group, 0, outputs, begin, rows, sums, stride, scratch.row_keys.data());
  }

  // Adds the product of the rows of an input from `at` with one panel of its weight to those of the
  // inputs before.
  void add_tile(size_t t, int64_t group, int64_t first, int64_t at, T* sums, int64_t stride,
                Scratch& scratch) const {
    const PackedWeight<Operands>& weight = weights_[t];
    const int64_t columns = std::min(kernels_.panel, shape_.group_outputs() - first);
    const int64_t padded = round_up(columns, kernels_.width);
    const Value* starts[kTileRows];
    for (int64_t r = 0; r < kTileRows; ++r) {
      starts[r] = scratch.values[t * kBlockRows + static_cast<size_t>(at + r)] + group * weight.terms();
    }
    Operands::multiply({starts, weight.terms(), padded / kernels_.width, weight.panel(group, first), padded,
                        sums, stride, t != 0, &scratch.next.queue});
  }

  // Applies bias, ReLU and dropout to columns [first, first + columns) of a group and writes them.
  void finish(int64_t group, int64_t first, int64_t columns, int64_t row, int64_t rows, const T* sums,
              int64_t stride, const uint64_t* row_keys) const {
    const int64_t column = group * shape_.group_outputs() + first;
    const int64_t element = element_bytes(shape_.compute), mask_bytes = (shape_.outputs + 7) / 8;
    Operands::finish(
        {sums, stride, rows, column, columns, update_.bias != nullptr ? bias_.data() + column : nullptr,
         update_.relu, drops() ? &dropout_ : nullptr, row_keys,
         static_cast<char*>(output_.y) + (row * shape_.outputs + column) * element, shape_.compute,
         shape_.outputs, output_.mask != nullptr ? output_.mask + row * mask_bytes : nullptr, mask_bytes,
         shape_.rows * shape_.outputs * element >= kStreamedBytes});
  }

  const ProductKernels<T>& kernels_;
  const LinearShape& shape_;
  const std::vector<LinearInput>& inputs_;
  const LinearUpdate& update_;
  const LinearOutput& output_;
  const Dropout dropout_;
  const BlockMoments moments_;
  std::vector<PackedWeight<Operands>> weights_;
  std::vector<Skipping<Operands>> skipping_;
  Buffer<T> bias_;
};

template <class Operands>
void run(const LinearShape& shape, const std::vector<LinearInput>& inputs,
         const std::vector<LinearWeight>& weights, const LinearUpdate& update, const LinearOutput& output,
         int64_t threads) {
  const Forward<Operands> forward(shape, inputs, weights, update, output);
  // With few threads tasks are long, so that rows can be prefetched within them.
  const int64_t blocks = (shape.rows + kBlockRows - 1) / kBlockRows;
  const int64_t task_rows = kBlockRows * std::clamp<int64_t>(blocks / (8 * threads), 1, kBlocksPerTask);
  const int64_t tasks = (shape.rows + task_rows - 1) / task_rows;
  std::vector<typename Forward<Operands>::Scratch> scratch(
      static_cast<size_t>(std::clamp<int64_t>(threads, 1, std::max<int64_t>(1, tasks))));
  for (auto& one : scratch) forward.prepare(one);
  run_tasks(tasks, threads, [&](int64_t task, int64_t slot) {
    const int64_t end = std::min(shape.rows, (task + 1) * task_rows);
    for (int64_t row = task * task_rows; row < end; row += kBlockRows) {
      const int64_t next = std::min(end, row + kBlockRows);
      forward.block(row, next, std::min(end, next + kBlockRows), scratch[static_cast<size_t>(slot)]);
    }
    product_kernels<typename Operands::Sum>().fence();
  });
  forward.join_moments();
}

}  // namespace

template <>
void linear<float>(const LinearShape& shape, const std::vector<LinearInput>& inputs,
                   const std::vector<LinearWeight>& weights, const LinearUpdate& update,
                   const LinearOutput& output, int64_t threads) {
  if (shape.compute == Element::kBFloat16 && pair_kernel() != nullptr) {
    return run<Pairs>(shape, inputs, weights, update, output, threads);
  }
  run<Elements<float>>(shape, inputs, weights, update, output, threads);
}

template <>
void linear<double>(const LinearShape& shape, const std::vector<LinearInput>& inputs,
                    const std::vector<LinearWeight>& weights, const LinearUpdate& update,
                    const LinearOutput& output, int64_t threads) {
  run<Elements<double>>(shape, inputs, weights, update, output, threads);
}

}  // namespace pyg_batchgnn
