// The inner loops of dense layers: products of small blocks in the caches, and passes over rows.
//
// Every element of a product is one chain of fused multiply-adds in the order of its terms, so its
// bits do not depend on the cut into blocks, on the width of vectors, or on the skipping of zeros.
// Exceptions are SparseRows and ReluBackwardProducts. The baseline rounds products and sums.
#pragma once

#include <cstdint>

#include "kernels/operand.h"
#include "kernels/random.h"

namespace pyg_batchgnn {

constexpr int64_t kTileRows = 6;   // rows of a tile of a product
constexpr int64_t kWordBits = 64;  // rows or columns per word of bits

// Rows that are needed next. A few lines are fetched at a time during computation, because the
// processor cannot predict rows that are picked from a table.
struct PrefetchQueue {
  static constexpr int64_t kLine = 64;
  struct Row {
    const char* at;
    const char* end;
  };

  Row* row = nullptr;
  Row* last = nullptr;

  void fetch(int64_t lines) {
    for (; lines > 0 && row != last; --lines) {
      __builtin_prefetch(row->at, 0, 2);
      row->at += kLine;
      if (row->at >= row->end) ++row;
    }
  }
};

// out[r, :] = sum over s of values[r][s * value_step] * x[s, :], added to out where `add`. `values`
// and `out` have room for a multiple of kTileRows rows, x and out for whole vectors.
template <class T>
struct DenseProduct {
  const T* const* values;
  int64_t value_step;
  int64_t rows, terms, vectors;
  const T* x;
  int64_t x_stride;
  T* out;
  int64_t out_stride;
  bool add;
  PrefetchQueue* prefetch;
};

// The order of a sparse product. kOne: one row after the other, terms in order. kTwo: rows 2i and
// 2i + 1 together, first the terms that both have, which are loaded once; value_step is then 1.
enum class SparseRows : uint8_t { kOne, kTwo };

// out[r, :] += sum over s in bits(words[r]) of
//              values[r * row_step + s * value_step] * x[s, :]
template <class T>
struct SparseProduct {
  const uint64_t* words;
  const T* values;
  int64_t row_step, value_step;
  int64_t rows, vectors;
  const T* x;
  int64_t x_stride;
  T* out;
  int64_t out_stride;
  PrefetchQueue* prefetch;
  SparseRows rows_at_once = SparseRows::kOne;
};

// The gradients of a weight and of its input that a ReLU made. Only gradients of non-zero elements
// are wanted. For s in bits(words[c]) of each column c:
// sums[c, :] += input[s, c] * grad[s, :] and dots[c, s] = grad[s, :] . weight[c, :]. All other dots
// are zero. A piece that fits into registers has as many partial sums as a vector has elements.
template <class T>
struct ReluBackwardProducts {
  const uint64_t* words;
  const T* input;  // [rows, columns]
  int64_t input_stride;
  int64_t columns, vectors;
  const T* grad;  // [rows, vectors]
  int64_t grad_stride;
  const T* weight;  // [columns, vectors]
  int64_t weight_stride;
  T* sums;  // as weight
  int64_t sums_stride;
  T* dots;  // [columns, kWordBits]
  PrefetchQueue* prefetch;
};

// The finish of a block of a product: bias, ReLU, dropout and rounding.
template <class T>
struct Finish {
  const T* raw;  // [rows, whole vectors]
  int64_t raw_stride;
  int64_t rows, first_column, columns;
  const T* bias;  // of first_column, room for whole vectors; or null
  bool relu;
  const Dropout* dropout;    // or null
  const uint64_t* row_keys;  // of dropout
  void* out;                 // at first_column
  Element out_element;
  int64_t out_stride;  // elements
  uint8_t* mask;       // the bits of the first row; or null
  int64_t mask_stride;
  bool stream;  // writes whole lines past the caches
};

// A block of the gradient of an output: masked, scaled, with known zeros.
template <class T>
struct MaskedGrad {
  const void* grad;
  Element element;
  int64_t grad_stride;
  const uint8_t* mask;  // or null
  int64_t mask_stride;
  T scale;
  int64_t rows, columns;
  T* out;  // [rows, out_stride], zero between `columns` and the next multiple of kWordBits
  int64_t out_stride;
  uint64_t* words;  // [rows, words of `columns`] bits of the non-zeros
};

template <class T>
struct ProductKernels {
  int64_t width;  // elements of a vector
  int64_t panel;  // columns of a tile of a dense product
  void (*dense)(const DenseProduct<T>&);
  void (*sparse)(const SparseProduct<T>&);
  void (*relu_backward)(const ReluBackwardProducts<T>&);
  void (*finish)(const Finish<T>&);
  void (*masked_grad)(const MaskedGrad<T>&);
  void (*read)(const void* from, Element element, int64_t count, T* to);
  void (*write)(const T* from, int64_t count, Element element, void* to);
  void (*add)(const T* from, int64_t count, T* to);
  // Writes whole lines past the caches. `fence` makes them visible to other threads.
  void (*stream)(const void* from, int64_t bytes, void* to);
  void (*fence)();
};

template <class T>
const ProductKernels<T>& product_kernels();

// A dense product of kTileRows rows with float32 sums. values and x hold pairs of bfloat16.
struct PairProduct {
  const uint32_t* const* values;
  int64_t terms, vectors;
  const uint32_t* x;
  int64_t x_stride;
  float* out;
  int64_t out_stride;
  bool add;
  PrefetchQueue* prefetch;
};

struct PairKernels {
  void (*dense)(const PairProduct&);
  // As of ProductKernels, for whole words of bfloat16, with a mask or without ReLU and dropout.
  void (*finish)(const Finish<float>&);
};

// Returns null if the processor does not multiply bfloat16. Vectors are those of
// product_kernels<float>().
const PairKernels* pair_kernels();

// Transposes: bit c of words[r] becomes bit r of words[c].
void transpose_bits(uint64_t words[kWordBits]);

}  // namespace pyg_batchgnn
