// Blocks of rows with known zeros, and the share of zeros.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/allocation.h"
#include "kernels/nn/linear_blocks.h"
#include "kernels/simd/scan.h"

namespace pyg_batchgnn {

constexpr double kDense = 0.75;  // share of non-zeros from which the dense product is faster
// The share of non-zeros from which rows are added in pairs. Of 64 terms, two rows then share an
// eighth.
constexpr double kShared = 0.35;
constexpr int64_t kCacheBytes = 28 << 10;  // bytes of an operand's block that stay in the first
                                           // cache

// Returns bits [first, first + count) of some words, count <= kWordBits.
inline uint64_t bits_at(const uint64_t* words, int64_t first, int64_t count) {
  const int64_t word = first / kWordBits, inside = first % kWordBits;
  uint64_t bits = words[word] >> inside;
  if (inside + count > kWordBits) bits |= words[word + 1] << (kWordBits - inside);
  return count == kWordBits ? bits : bits & ((uint64_t{1} << count) - 1);
}

// Rows of an operand, and the bits of their non-zeros.
template <class T>
struct RowBlock {
  int64_t rows = 0, columns = 0;
  int64_t stride = 0, words = 0;  // of a row
  Buffer<T> values;               // [rows, stride], zero from `columns` to the next multiple of kWordBits
  Buffer<uint64_t> by_row;        // [rows, words]
  Buffer<uint64_t> by_column;     // [words * kWordBits], of kWordBits rows at most
  bool sparse = false;            // skipping the zeros is worthwhile
  SparseRows rows_at_once = SparseRows::kOne;  // of a product that skips them

  // Makes room in `values`, `by_row` and `by_column`, uninitialised.
  void resize(int64_t new_rows, int64_t new_columns) {
    rows = new_rows;
    columns = new_columns;
    stride = block_stride<T>(round_up(columns, kWordBits));
    words = round_up(columns, kWordBits) / kWordBits;
    values.reserve(rows * stride + 1);
    by_row.reserve(rows * words + 1);
    by_column.reserve(words * kWordBits + 1);
  }

  const T* row(int64_t i) const { return values.data() + i * stride; }
  uint64_t row_bits(int64_t i, int64_t first, int64_t count) const {
    return bits_at(by_row.data() + i * words, first, count);
  }

  int64_t nonzero() const { return scan_set_bits(by_row.data(), rows * words); }

  void count_zeros() {
    const double found = static_cast<double>(nonzero()), all = static_cast<double>(rows * columns);
    sparse = found < kDense * all;
    rows_at_once = found < kShared * all ? SparseRows::kOne : SparseRows::kTwo;
  }

  void find_columns() {
    for (int64_t word = 0; word < words; ++word) {
      uint64_t* const bits = by_column.data() + word * kWordBits;
      for (int64_t i = 0; i < kWordBits; ++i) bits[i] = i < rows ? by_row.data()[i * words + word] : 0;
      transpose_bits(bits);
    }
  }
};

// Reads rows [begin, end) of an input, rounded to `compute`, and finds their zeros.
template <class T>
void read_block(const LinearInput& input, Element compute, int64_t begin, int64_t end, RowBlock<T>& block) {
  block.resize(end - begin, input.columns);
  for (int64_t i = begin; i < end; ++i) {
    T* const to = block.values.data() + (i - begin) * block.stride;
    const void* from = input.row(i);
    Element element = input.element;
    if (compute == Element::kBFloat16 && element != compute) {
      read_rounded(from, element, compute, input.columns, to);
      from = to;
      element = kElement<T>;
    }
    product_kernels<T>().masked_grad({from, element, 0, nullptr, 0, T{1}, 1, input.columns, to, block.stride,
                                      block.by_row.data() + (i - begin) * block.words});
  }
  block.count_zeros();
}

// Reads rows without finding zeros.
template <class T>
void read_values(const LinearInput& input, Element compute, int64_t begin, int64_t end, RowBlock<T>& block) {
  block.resize(end - begin, input.columns);
  for (int64_t i = begin; i < end; ++i) {
    T* const to = block.values.data() + (i - begin) * block.stride;
    read_rounded(input.row(i), input.element, compute, input.columns, to);
    std::fill(to + input.columns, to + block.words * kWordBits, T{0});
  }
  block.sparse = false;
}

// Computes a sparse product of at most kWordBits terms in pieces, so that the block of x stays in
// the first cache.
template <class T>
void multiply_sparse(const SparseProduct<T>& p, int64_t terms) {
  const ProductKernels<T>& kernels = product_kernels<T>();
  const int64_t vector_bytes = terms * kernels.width * static_cast<int64_t>(sizeof(T));
  const int64_t fitting = std::max<int64_t>(1, kCacheBytes / vector_bytes);
  const int64_t pieces = (p.vectors + fitting - 1) / fitting;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t first = p.vectors * piece / pieces, last = p.vectors * (piece + 1) / pieces;
    SparseProduct<T> part = p;
    part.vectors = last - first;
    part.x += first * kernels.width;
    part.out += first * kernels.width;
    kernels.sparse(part);
  }
}

// Returns the share of non-zeros in a few blocks, spread evenly over `rows`. A pass decides by it
// whether to look for zeros. `read(begin, end, block)` reads rows.
template <class T, class Read>
double sampled_density(int64_t rows, const Read& read) {
  constexpr int64_t kSamples = 4;
  const int64_t blocks = (rows + kWordBits - 1) / kWordBits, samples = std::min(kSamples, blocks);
  RowBlock<T> block;
  int64_t nonzero = 0, all = 0;
  for (int64_t sample = 0; sample < samples; ++sample) {
    const int64_t begin = blocks * sample / samples * kWordBits;
    read(begin, std::min(rows, begin + kWordBits), block);
    nonzero += block.nonzero();
    all += block.rows * block.columns;
  }
  return static_cast<double>(nonzero) / static_cast<double>(std::max<int64_t>(all, 1));
}

}  // namespace pyg_batchgnn
