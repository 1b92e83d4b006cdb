// Products of bfloat16 with one operand that is mostly zero, such as a gradient behind ReLU and
// dropout. Its non-zeros are listed row by row, and instructions for pairs take two at a time.
//
// Rows of the other operand lie "folded": of every 32 columns, columns 0 to 3 and 16 to 19 come
// first, then 4 to 7 and 20 to 23, and so on. One instruction interleaves 16 columns of two rows.
#pragma once

#include <cstdint>

#include "kernels/simd/products.h"

namespace pyg_batchgnn {

constexpr int64_t kFold = 32;       // columns per fold
constexpr int64_t kListTerms = 64;  // the most terms of a list

// The non-zeros of each row r, in [starts[r], starts[r + 1]). Their number is even: a last odd one
// is followed by a zero of the term kListTerms.
struct PairLists {
  int32_t* starts;   // [rows + 1]
  uint8_t* terms;    // with room for kListTerms more
  uint16_t* values;  // likewise
};

// values[r * stride + s], s < terms <= kListTerms, as lists.
struct ListedRows {
  const uint16_t* values;
  int64_t stride, rows, terms;
  float* totals;  // [rows, 16] for their sums; or null
  bool add;       // adds to the totals
};

// A block of a masked gradient [rows, columns], zero up to kListTerms rows and `stride` columns.
struct MaskedPairs {
  const uint16_t* grad;
  int64_t grad_stride;
  const uint8_t* mask;  // or null
  int64_t mask_stride;
  int64_t rows, columns;
  uint16_t* out;
  int64_t out_stride;  // a multiple of kFold
};

// out[r, :] = sum over the list of r of value * x[term, :], added to out with `add`, in whole
// vectors of 16 columns. Those behind `columns` are undefined. Row kListTerms of x is zero.
struct ListProduct {
  PairLists lists;
  int64_t rows, columns;  // at most 16 * kMostPairVectors
  const uint16_t* x;      // folded
  int64_t x_stride;
  float* out;
  int64_t out_stride;
  bool add;
  PrefetchQueue* prefetch;
};

struct SparsePairKernels {
  // [kListTerms, stride], of which `columns` count, into [columns up to a multiple of kFold,
  // kListTerms].
  void (*transpose)(const uint16_t* from, int64_t stride, int64_t columns, uint16_t* to);
  void (*list)(const ListedRows&, const PairLists&);
  void (*copy)(const uint16_t* from, int64_t count, uint16_t* to);
  void (*fold)(uint16_t* rows, int64_t elements);
  void (*multiply)(const ListProduct&);
  void (*round)(const float* from, int64_t count, float scale, uint16_t* to);
};

constexpr int64_t kMostPairVectors = 16;  // of one ListProduct

// For processors with AVX-512.
void mask_pairs(const MaskedPairs& g);

// Returns null if the processor lacks the instructions.
const SparsePairKernels* sparse_pair_kernels();

}  // namespace pyg_batchgnn
