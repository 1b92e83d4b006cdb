// Products of bfloat16 of which one operand is mostly zero, as a gradient behind ReLU and dropout is: its
// non-zeros are listed row by row, and two of them make one step of the instructions for pairs.
//
// Rows of the other operand lie "folded": of every 32 columns, columns 0 to 3 and 16 to 19 come first, then 4
// to 7 and 20 to 23, and so on; that is how two rows are interleaved with one instruction for 16 columns.
#pragma once

#include <cstdint>

#include "kernels/simd/products.h"

namespace pyg_batchgnn {

constexpr int64_t kFold = 32;       // columns that are folded together
constexpr int64_t kListTerms = 64;  // terms that a list is made of at most

// Of each row r its non-zeros, in [starts[r], starts[r + 1]), an even number: an odd one is followed by a
// zero of the term kListTerms.
struct PairLists {
  int32_t* starts;   // [rows + 1]
  uint8_t* terms;    // room for kListTerms more than there can be
  uint16_t* values;  // the same
};

// values[r * stride + s], s < terms <= kListTerms, as lists.
struct ListedRows {
  const uint16_t* values;
  int64_t stride, rows, terms;
  float* totals;  // [rows, 16], for what they sum to; or null
  bool add;       // to what is there
};

// A block of a gradient [rows, columns] with its zeros put in, rows up to kListTerms and columns up to the
// stride being zero.
struct MaskedPairs {
  const uint16_t* grad;
  int64_t grad_stride;
  const uint8_t* mask;  // or null
  int64_t mask_stride;
  int64_t rows, columns;
  uint16_t* out;
  int64_t out_stride;  // a multiple of kFold
};

// out[r, :] = sum over the list of r of value * x[term, :], to what is there where `add`; in whole vectors of
// 16 columns, of which those behind `columns` mean nothing. Row kListTerms of x is zero.
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
  void (*mask)(const MaskedPairs&);
  // [kListTerms, stride], of which `columns` count, into [columns up to a multiple of kFold, kListTerms].
  void (*transpose)(const uint16_t* from, int64_t stride, int64_t columns, uint16_t* to);
  void (*list)(const ListedRows&, const PairLists&);
  void (*copy)(const uint16_t* from, int64_t count, uint16_t* to);
  void (*fold)(uint16_t* rows, int64_t elements);
  void (*multiply)(const ListProduct&);
  void (*round)(const float* from, int64_t count, float scale, uint16_t* to);
};

constexpr int64_t kMostPairVectors = 16;  // of one ListProduct

// Null where the processor lacks the instructions.
const SparsePairKernels* sparse_pair_kernels();

}  // namespace pyg_batchgnn
