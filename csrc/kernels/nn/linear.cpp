#include "kernels/nn/linear.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/nn/linear_blocks.h"
#include "kernels/nn/linear_operands.h"
#include "kernels/nn/norm.h"
#include "kernels/parallel.h"
#include "kernels/simd/level.h"
#include "kernels/simd/norm.h"

namespace pyg_batchgnn {
namespace {

// The moments of the columns of a product, taken block by block while a block lies in the cache.

// The cut into blocks depends only on the number of rows, and blocks are joined in order. So the
// bits do not depend on the number of threads.
class BlockMoments {
 public:
  // Makes room for the moments of all blocks.
  BlockMoments(int64_t rows, int64_t block_rows, int64_t columns)
      : rows_(rows), block_rows_(block_rows), columns_(columns) {
    parts_.reserve(2 * columns * blocks() + 1);
  }

  // Takes the moments of columns [first, first + block.columns) of the block that begins at `row`,
  // with `bias` added. The center is the mean of a few rows. If it is far from the mean of the
  // block, the deviation is as large as the rounding error.
  template <class T>
  void take(int64_t row, int64_t first, const StridedRows<T>& block, const T* bias) const {
    const ColumnMoments all = part(row / block_rows_);
    T center[kColumns], sum[kColumns], square[kColumns];
    for (int64_t at = 0; at < block.columns; at += kColumns) {
      const int64_t count = std::min(kColumns, block.columns - at);
      const StridedRows<T> some{block.data + at, block.stride, block.rows, count};
      moment_kernels<T>().row_mean({some.data, some.stride, std::min(kFirstRows, some.rows), count}, center);
      for (int64_t c = 0; c < count; ++c) center[c] += bias[at + c];
      moment_kernels<T>().shifted_sums(some, bias + at, center, sum, square);
      to_moments(center, sum, square, some.rows, count, {all.mean + first + at, all.deviation + first + at});
    }
  }

  void join_all(ColumnMoments out) const {
    std::fill_n(out.mean, columns_, 0.0);
    std::fill_n(out.deviation, columns_, 0.0);
    for (int64_t block = 0; block < blocks(); ++block) {
      const int64_t before = block * block_rows_;
      join(out, before, part(block), std::min(block_rows_, rows_ - before), columns_);
    }
  }

 private:
  static constexpr int64_t kColumns = 64;  // rows of a block that stay in the first cache
  static constexpr int64_t kFirstRows = 8;

  int64_t blocks() const { return (rows_ + block_rows_ - 1) / block_rows_; }
  ColumnMoments part(int64_t block) const {
    double* const begin = parts_.data() + 2 * columns_ * block;
    return {begin, begin + columns_};
  }

  int64_t rows_, block_rows_, columns_;
  Buffer<double> parts_;  // [blocks][mean, deviation][columns]
};

// Products that skip the zeros of an input, as ReLU and dropout leave them.

// Products of fewer rows are computed quickly either way. They keep the bits of the dense product.
constexpr int64_t kManyRows = 1024;

// Returns the share of non-zeros in a few blocks, spread evenly over the rows of an input.
template <class T>
double sampled_density(const LinearShape& shape, const LinearInput& input) {
  constexpr int64_t kSamples = 4;
  const int64_t blocks = (shape.rows + kWordBits - 1) / kWordBits, samples = std::min(kSamples, blocks);
  RowBlock<T> block;
  int64_t nonzero = 0, all = 0;
  for (int64_t sample = 0; sample < samples; ++sample) {
    const int64_t begin = blocks * sample / samples * kWordBits;
    read_block(input, shape.compute, begin, std::min(shape.rows, begin + kWordBits), block);
    nonzero += block.nonzero();
    all += block.rows * block.columns;
  }
  return static_cast<double>(nonzero) / static_cast<double>(std::max<int64_t>(all, 1));
}

// The weight of one input, transposed: [columns of all groups, outputs of a group]. Worthwhile if a
// sample of the input has many zeros and the weight is finite, so that a zero adds nothing.
template <class T>
class SkippingWeight {
 public:
  SkippingWeight(const LinearShape& shape, const LinearInput& input, const LinearWeight& weight)
      : outputs_(shape.group_outputs()),
        columns_(input.columns / shape.groups),
        stride_(block_stride<T>(outputs_)),
        many_rows_(shape.rows >= kManyRows) {
    if (sampled_density<T>(shape, input) >= kDense) return;
    const int64_t count = shape.outputs * columns_;
    Buffer<T> rounded;
    read_rounded(weight, shape.compute, count, rounded.reserve(count + 1));
    worthwhile_ = std::all_of(rounded.data(), rounded.data() + count, [](T w) { return std::isfinite(w); });
    if (!worthwhile_) return;
    T* const to = transposed_.reserve(input.columns * stride_ + 1);
    std::fill_n(to, input.columns * stride_, T{0});
    for (int64_t o = 0; o < shape.outputs; ++o) {
      T* const column = to + o / outputs_ * columns_ * stride_ + o % outputs_;
      for (int64_t k = 0; k < columns_; ++k) column[k * stride_] = rounded.data()[o * columns_ + k];
    }
  }

  bool worthwhile() const { return worthwhile_; }

  // sums[i, :] += sum over the non-zeros k of x[i, k] * weight[:, k].
  void add(int64_t group, const RowBlock<T>& x, T* sums, int64_t sums_stride, PrefetchQueue& prefetch) const {
    const int64_t width = product_kernels<T>().width;
    const SparseRows rows_at_once = many_rows_ ? x.rows_at_once : SparseRows::kOne;
    std::vector<uint64_t> words(static_cast<size_t>(x.rows));
    for (int64_t first = 0; first < columns_; first += kWordBits) {
      const int64_t count = std::min(kWordBits, columns_ - first), column = group * columns_ + first;
      for (int64_t i = 0; i < x.rows; ++i) words[static_cast<size_t>(i)] = x.row_bits(i, column, count);
      multiply_sparse<T>(
          {words.data(), x.row(0) + column, x.stride, 1, x.rows, round_up(outputs_, width) / width,
           transposed_.data() + column * stride_, stride_, sums, sums_stride, &prefetch, rows_at_once},
          count);
    }
  }

 private:
  int64_t outputs_, columns_, stride_;
  bool many_rows_;
  bool worthwhile_ = false;
  Buffer<T> transposed_;
};

constexpr int64_t kBlockRows = 16 * kTileRows;  // rows per block; a panel of weights stays cached
static_assert(kBlockRows % Tiles::kRows == 0);
constexpr int64_t kBlocksPerTask = 32;

// The weights of one input, transposed, in panels of outputs, [terms, panel] each, group by group.
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

// The constants of one call, and the work on one block of rows. A block is computed tile by tile.
// If an input of single elements has many zeros, its rows are summed instead, which skips them.
template <class Operands>
class Forward {
 public:
  using T = typename Operands::Sum;
  using Value = typename Operands::Value;

  explicit Forward(const Linear& job)
      : kernels_(product_kernels<T>()),
        job_(job),
        dropout_(job.update.key, job.update.drop),
        moments_(measures() ? job.shape.rows : 0, kBlockRows, job.shape.outputs) {
    for (size_t t = 0; t < job.inputs.size(); ++t) {
      packed_.emplace_back(job.shape, job.weights[t], job.inputs[t].columns / job.shape.groups);
      if constexpr (std::is_same_v<Operands, Elements<T>>) {
        skipping_.emplace_back(job.shape, job.inputs[t], job.weights[t]);
      }
    }
    // The last vector of a panel may reach beyond the end.
    const int64_t room = job.shape.outputs + kernels_.panel;
    std::fill_n(bias_.reserve(room), room, T{0});
    if (job.update.bias == nullptr) return;
    kernels_.read(job.update.bias, job.update.bias_element, job.shape.outputs, bias_.data());
  }

  struct Scratch {
    std::vector<Buffer<Value>> converted;
    std::vector<const Value*> values;  // [inputs][kBlockRows]
    std::vector<uint64_t> row_keys;
    BlockPrefetch next;
    Buffer<T> sums;                   // of a tile, or of a block's rows
    std::vector<RowBlock<T>> blocks;  // of the inputs whose zeros are skipped; others have no rows
  };

  // Allocates all memory in advance: what is in use does not depend on the timing of threads.
  void prepare(Scratch& scratch) const {
    const int64_t rows = std::min(kBlockRows, round_up(job_.shape.rows, Operands::kRows));
    scratch.converted.resize(job_.inputs.size());
    for (size_t t = 0; t < job_.inputs.size(); ++t) {
      if (Operands::in_place(job_.shape, job_.inputs[t])) continue;
      scratch.converted[t].reserve(rows * Operands::row_stride(job_.shape, job_.inputs[t]) + 1);
    }
    scratch.blocks.resize(job_.inputs.size());
    bool whole = measures();
    for (size_t t = 0; t < skipping_.size(); ++t) {
      if (!skipping_[t].worthwhile()) continue;
      whole = true;
      scratch.blocks[t].resize(rows, job_.inputs[t].columns);
    }
    scratch.sums.reserve(whole ? kBlockRows * sums_stride() : Operands::kRows * kernels_.panel);
  }

  // Computes rows [begin, end) and fetches those up to `next_end`.
  void block(int64_t begin, int64_t end, int64_t next_end, Scratch& scratch) const {
    scratch.next.clear();
    for (const LinearInput& input : job_.inputs) scratch.next.add(input, end, next_end);
    scratch.next.start();
    read_rows(begin, end, scratch);
    scratch.row_keys.resize(kBlockRows);
    if (drops()) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t node = job_.update.node != nullptr ? job_.update.node[i] : i;
        scratch.row_keys[static_cast<size_t>(i - begin)] = dropout_row_key(job_.update.key, node);
      }
    }
    const bool whole = measures() || std::any_of(scratch.blocks.begin(), scratch.blocks.end(),
                                                 [](const RowBlock<T>& read) { return read.rows != 0; });
    for (int64_t group = 0; group < job_.shape.groups; ++group) {
      if (whole) {
        rows(group, begin, end - begin, scratch);
      } else {
        tiles(group, begin, end, scratch);
      }
    }
  }

  void join_moments() const {
    if (measures()) moments_.join_all(job_.output.moments);
  }

 private:
  int64_t sums_stride() const { return block_stride<T>(job_.shape.group_outputs()); }
  bool measures() const { return job_.output.moments.mean != nullptr; }
  bool drops() const { return job_.update.drop > 0 && dropout_.kept_levels < kDropoutLevels; }

  void read_rows(int64_t begin, int64_t end, Scratch& scratch) const {
    scratch.values.resize(job_.inputs.size() * kBlockRows);
    for (size_t t = 0; t < job_.inputs.size(); ++t) {
      const Value** const values = scratch.values.data() + t * kBlockRows;
      if (read_zeros(t, begin, end, scratch)) continue;
      Operands::rows(job_.shape, job_.inputs[t], begin, end, scratch.converted[t].data(), values);
      for (int64_t i = end - begin; i < kBlockRows; ++i) values[i] = values[0];
    }
  }

  // Returns whether products skip the zeros of these rows of an input, which have then been read.
  bool read_zeros(size_t t, int64_t begin, int64_t end, Scratch& scratch) const {
    if (skipping_.empty() || !skipping_[t].worthwhile()) return false;
    RowBlock<T>& block = scratch.blocks[t];
    read_block(job_.inputs[t], job_.shape.compute, begin, end, block);
    if (!block.sparse) block.rows = 0;
    return block.sparse;
  }

  void tiles(int64_t group, int64_t begin, int64_t end, Scratch& scratch) const {
    const int64_t outputs = job_.shape.group_outputs();
    T* const tile = scratch.sums.data();
    for (int64_t first = 0; first < outputs; first += kernels_.panel) {
      const int64_t columns = std::min(kernels_.panel, outputs - first);
      const int64_t padded = round_up(columns, kernels_.width);
      for (int64_t row = begin; row < end; row += Operands::kRows) {
        for (size_t t = 0; t < job_.inputs.size(); ++t) {
          add_tile(t, group, first, row - begin, tile, padded, scratch);
        }
        finish(group, first, columns, row, std::min(Operands::kRows, end - row), tile, padded,
               scratch.row_keys.data() + (row - begin));
      }
    }
  }

  void rows(int64_t group, int64_t begin, int64_t rows, Scratch& scratch) const {
    const int64_t outputs = job_.shape.group_outputs(), stride = sums_stride();
    T* const sums = scratch.sums.data();
    for (size_t t = 0; t < job_.inputs.size(); ++t) {
      if (scratch.blocks[t].rows != 0) {
        if (t == 0) std::fill_n(sums, rows * stride, T{0});
        skipping_[t].add(group, scratch.blocks[t], sums, stride, scratch.next.queue);
        continue;
      }
      for (int64_t first = 0; first < outputs; first += kernels_.panel) {
        for (int64_t at = 0; at < rows; at += Operands::kRows) {
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

  // Adds the product of an input's rows from `at` with a panel of its weight to those before.
  void add_tile(size_t t, int64_t group, int64_t first, int64_t at, T* sums, int64_t stride,
                Scratch& scratch) const {
    const PackedWeight<Operands>& weight = packed_[t];
    const int64_t columns = std::min(kernels_.panel, job_.shape.group_outputs() - first);
    const int64_t padded = round_up(columns, kernels_.width);
    const Value* starts[Operands::kRows];
    for (int64_t r = 0; r < Operands::kRows; ++r) {
      starts[r] = scratch.values[t * kBlockRows + static_cast<size_t>(at + r)] + group * weight.terms();
    }
    Operands::multiply({starts, Operands::row_stride(job_.shape, job_.inputs[t]), weight.terms(),
                        padded / kernels_.width, weight.panel(group, first), padded, sums, stride, t != 0,
                        &scratch.next.queue});
  }

  // Applies bias, ReLU and dropout to columns [first, first + columns) of a group and writes them.
  void finish(int64_t group, int64_t first, int64_t columns, int64_t row, int64_t rows, const T* sums,
              int64_t stride, const uint64_t* row_keys) const {
    const int64_t column = group * job_.shape.group_outputs() + first;
    const int64_t element = element_bytes(job_.shape.compute), mask_bytes = (job_.shape.outputs + 7) / 8;
    Operands::finish({sums, stride, rows, column, columns,
                      job_.update.bias != nullptr ? bias_.data() + column : nullptr, job_.update.relu,
                      drops() ? &dropout_ : nullptr, row_keys,
                      static_cast<char*>(job_.output.y) + (row * job_.shape.outputs + column) * element,
                      job_.shape.compute, job_.shape.outputs,
                      job_.output.mask != nullptr ? job_.output.mask + row * mask_bytes : nullptr, mask_bytes,
                      job_.shape.rows * job_.shape.outputs * element >= kStreamedBytes});
  }

  const ProductKernels<T>& kernels_;
  const Linear& job_;
  const Dropout dropout_;
  const BlockMoments moments_;
  std::vector<PackedWeight<Operands>> packed_;
  std::vector<SkippingWeight<T>> skipping_;  // of single elements alone
  Buffer<T> bias_;
};

template <class Operands>
void run(const Linear& job, int64_t threads) {
  const int64_t rows = job.shape.rows;
  const Forward<Operands> forward(job);
  // With few threads tasks are long, so that rows can be prefetched within them.
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  const int64_t task_rows = kBlockRows * std::clamp<int64_t>(blocks / (8 * threads), 1, kBlocksPerTask);
  const int64_t tasks = (rows + task_rows - 1) / task_rows;
  std::vector<typename Forward<Operands>::Scratch> scratch(
      static_cast<size_t>(std::clamp<int64_t>(threads, 1, std::max<int64_t>(1, tasks))));
  for (auto& one : scratch) forward.prepare(one);
  run_tasks(tasks, threads, [&](int64_t task, int64_t slot) {
    const int64_t end = std::min(rows, (task + 1) * task_rows);
    for (int64_t row = task * task_rows; row < end; row += kBlockRows) {
      const int64_t next = std::min(end, row + kBlockRows);
      forward.block(row, next, std::min(end, next + kBlockRows), scratch[static_cast<size_t>(slot)]);
    }
    product_kernels<typename Operands::Sum>().fence();
  });
  forward.join_moments();
}

}  // namespace

void linear(const Linear& job, int64_t threads) {
  const Element compute = job.shape.compute;
  if (compute == Element::kFloat64) return run<Elements<double>>(job, threads);
  const Bfloat16Level level = compute == Element::kBFloat16 ? bfloat16_level() : Bfloat16Level::kWidened;
  if (level == Bfloat16Level::kTiles) return run<Tiles>(job, threads);
  if (level == Bfloat16Level::kPairs) return run<Pairs>(job, threads);
  run<Elements<float>>(job, threads);
}

}  // namespace pyg_batchgnn
