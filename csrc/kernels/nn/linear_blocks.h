// Operands of forward and backward passes, read by block and rounded to the type of the products.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/nn/linear.h"
#include "kernels/nn/norm.h"
#include "kernels/parallel.h"
#include "kernels/simd/decode.h"
#include "kernels/simd/products.h"
#include "kernels/simd/scan.h"

namespace pyg_batchgnn {

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Returns the distance between rows of a block, in elements: at least `columns` and an odd number
// of cache lines. So a column of a block is spread over many sets of the cache.
template <class T>
int64_t block_stride(int64_t columns) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const int64_t lines = (columns + kLine - 1) / kLine;
  return (lines | 1) * kLine;
}

// Reads `count` elements as T, rounded to bfloat16 if `compute` is.
template <class T>
void read_rounded(const void* from, Element element, Element compute, int64_t count, T* to) {
  const ProductKernels<T>& kernels = product_kernels<T>();
  kernels.read(from, element, count, to);
  if (compute != Element::kBFloat16 || element == Element::kBFloat16) return;
  uint16_t rounded[256];
  for (int64_t at = 0; at < count; at += 256) {
    const int64_t size = std::min<int64_t>(256, count - at);
    kernels.write(to + at, size, Element::kBFloat16, rounded);
    kernels.read(rounded, Element::kBFloat16, size, to + at);
  }
}

// Reads columns [first, first + count) of the row at `from` of an input as T, rounded to `compute`.
template <class T>
void read_columns(const LinearInput& input, const void* from, int64_t first, int64_t count, Element compute,
                  T* to) {
  const char* const begin = static_cast<const char*>(from) + first * element_bytes(input.element);
  if (input.element != Element::kInt8) return read_rounded(begin, input.element, compute, count, to);
  const auto* const codes = reinterpret_cast<const Code*>(begin);
  const Decoding by = input.decoding.from(first);
  if (compute != Element::kBFloat16) return decode_row(codes, by, count, to);
  Bfloat16 rounded[256];
  for (int64_t at = 0; at < count; at += 256) {
    const int64_t size = std::min<int64_t>(256, count - at);
    decode_row(codes + at, by.from(at), size, rounded);
    product_kernels<T>().read(rounded, Element::kBFloat16, size, to + at);
  }
}

template <class T>
void read_rounded(const LinearWeight& weight, Element compute, int64_t count, T* to) {
  read_rounded(weight.data, weight.element, compute, count, to);
}

// Outputs of at least this size are written past the caches, which would evict them unread.
constexpr int64_t kStreamedBytes = 8 << 20;

// The rows of the next block, which are fetched while the current block is computed.
class BlockPrefetch {
 public:
  void clear() { rows_.clear(); }
  void add(const void* row, int64_t bytes) {
    const char* const first = static_cast<const char*>(row);
    // From the begin of a line, or the last line of a short row would be left out.
    const auto inside = static_cast<int64_t>(reinterpret_cast<uintptr_t>(row) % PrefetchQueue::kLine);
    if (bytes != 0) rows_.push_back({first - inside, first + bytes});
  }
  void add(const LinearInput& input, int64_t begin, int64_t end) {
    const int64_t bytes = input.columns * element_bytes(input.element);
    for (int64_t i = begin; i < end && bytes != 0; ++i) add(input.row(i), bytes);
  }
  // Starts to fetch what was added since `clear`.
  void start() { queue = {rows_.data(), rows_.data() + rows_.size()}; }

  PrefetchQueue queue;

 private:
  std::vector<PrefetchQueue::Row> rows_;
};

// The cut of sums over rows into parts, which depends only on the number of rows.

constexpr int64_t kGradBlockRows = kWordBits;
constexpr int64_t kPartRows = 512;  // the fewest rows of a part
constexpr int64_t kMostParts = 32;
// Writing, reading and adding the sums of a part costs as much as hundreds of rows. So beyond a few
// parts the rows per part grow.
constexpr int64_t kFewParts = 8, kFurtherPartRows = 4096;

struct Parts {
  int64_t rows, count;

  explicit Parts(int64_t all_rows)
      : rows(all_rows),
        count(std::clamp<int64_t>(all_rows / kPartRows, 1,
                                  std::min(kMostParts, kFewParts + all_rows / kFurtherPartRows))) {}

  int64_t begin(int64_t part) const {
    const int64_t blocks = (rows + kGradBlockRows - 1) / kGradBlockRows;
    return std::min(rows, blocks * part / count * kGradBlockRows);
  }
};

// Adds the sums of all parts, [parts, elements], in order into the first one.
template <class T>
void add_up(const Parts& parts, T* sums, int64_t elements, int64_t threads) {
  constexpr int64_t kPiece = 4096;  // elements that stay in the first cache while parts are added
  if (parts.count == 1) return;
  run_tasks((elements + kPiece - 1) / kPiece, threads, [&](int64_t piece, int64_t) {
    T* const to = sums + piece * kPiece;
    const int64_t count = std::min(kPiece, elements - piece * kPiece);
    for (int64_t part = 1; part < parts.count; ++part) {
      product_kernels<T>().add(to + part * elements, count, to);
    }
  });
}

// Computes the gradients of a layer: `backward` sums parts of the rows, which are added up last.
template <class T, class Backward>
void sum_parts(const Backward& backward, int64_t rows, int64_t threads) {
  const Parts parts(rows);
  const int64_t elements = backward.part_elements();
  Buffer<T> sums;
  sums.reserve(parts.count * elements);
  std::vector<typename Backward::Scratch> scratch(
      static_cast<size_t>(std::clamp<int64_t>(threads, 1, parts.count)));
  for (auto& one : scratch) backward.prepare(one);
  run_tasks(parts.count, threads, [&](int64_t part, int64_t slot) {
    backward.part(parts.begin(part), parts.begin(part + 1), sums.data() + part * elements,
                  scratch[static_cast<size_t>(slot)]);
  });
  add_up(parts, sums.data(), elements, threads);
  backward.write(sums.data());
}

// The gradient of a layer's result, computed from that of its normalised rows when it is read.

// Computes one row.
template <class T>
void normed_row(const LinearGradient& gradient, int64_t row, int64_t outputs, T* out) {
  const NormedRows& norm = *gradient.norm;
  using A = Wide<T>;
  // The columns are only read here.
  const GradientColumns<A> by{const_cast<A*>(static_cast<const A*>(norm.columns)), outputs};
  norm_kernels<T>().gradient_rows({static_cast<const T*>(norm.x) + row * outputs, 1, outputs},
                                  static_cast<const T*>(gradient.grad) + row * outputs, by.affine(),
                                  norm.relu ? Epilogue::kRelu : Epilogue::kNone, by.constant(), by.slope(),
                                  out);
}

// Starts to fetch rows [begin, end) of the gradient, and of all else that the gradients need.
inline void prefetch_block(const LinearGrads& job, int64_t begin, int64_t end, BlockPrefetch& next) {
  const LinearGradient& gradient = job.gradient;
  next.clear();
  const int64_t row_bytes = job.shape.outputs * element_bytes(gradient.element);
  for (const void* from : {gradient.grad, gradient.norm == nullptr ? nullptr : gradient.norm->x}) {
    if (from == nullptr || begin >= end) continue;
    next.add(static_cast<const char*>(from) + begin * row_bytes, (end - begin) * row_bytes);
  }
  for (const LinearInput& input : job.inputs) {
    if (!job.wanted.weights.empty()) next.add(input, begin, end);
  }
  next.start();
}

// Blocks of rows with known zeros, and the share of zeros.

constexpr double kDense = 0.75;  // share of non-zeros from which the dense product is faster
// The share of non-zeros from which rows are added in pairs, which then share an eighth of terms.
constexpr double kShared = 0.35;
constexpr int64_t kCacheBytes = 28 << 10;  // bytes of a block that stay in the first cache

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
    if (element == Element::kInt8 || (compute == Element::kBFloat16 && element != compute)) {
      read_columns(input, from, 0, input.columns, compute, to);
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
    read_columns(input, input.row(i), 0, input.columns, compute, to);
    std::fill(to + input.columns, to + block.words * kWordBits, T{0});
  }
  block.sparse = false;
}

// Computes a sparse product of at most kWordBits terms, in pieces of x that the first cache holds.
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

}  // namespace pyg_batchgnn
