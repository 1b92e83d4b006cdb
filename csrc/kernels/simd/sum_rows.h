// The inner loop of aggregation: sums of rows of a table.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

constexpr int64_t kMostAhead = 64;

// Consecutive output rows with every address and weight looked up. A is float or double.
//
// out[r] = scale[r] * (sum over e in [ptr[r], ptr[r + 1]) of weight[e] * source[e]) + self_scale[r]
// * self[r]
//
// With a decoding that is a sum of codes, and out[r, c] = that * decoding.scale[c] + total[r] *
// decoding.offset[c].
template <class A>
struct SumRows {
  int64_t rows;
  int64_t columns;
  const int64_t* ptr;         // [rows + 1], ptr[0] = base
  int64_t base;               // the edge of source[0] and weight[0]
  const char* const* source;  // [edges + ahead] addresses of rows; the last ones only for prefetch
  const A* weight;            // [edges]
  int64_t ahead;              // edges between prefetch and use, at most kMostAhead
  const A* scale;             // [rows]
  const char* const* self;    // [rows]; null for a row without a self part
  const A* self_scale;        // [rows]
  char* out;                  // consecutive rows
  Element out_element;
  bool stream;  // writes past the caches; rows begin and end on a cache line
  Decoding decoding{};
  const A* total = nullptr;  // [rows] the sums of all factors, of the self part too
};

// `element` is that of the source rows.
void sum_rows(const SumRows<float>& task, Element element);
void sum_rows(const SumRows<double>& task, Element element);

}  // namespace pyg_batchgnn
