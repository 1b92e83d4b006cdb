// The inner loop of aggregation: sums of rows that lie anywhere, compiled for each kind of processor.
#pragma once

#include <cstdint>

#include "kernels/operand.h"
#include "kernels/simd/norm.h"

namespace pyg_batchgnn {

constexpr int64_t kMostAhead = 64;

// Where sums are the gradient g of relu((x - center) * scale + shift): what becomes of its columns while rows
// of g are at hand. To sum[c] and product[c] are added g and g * (x - center), where the ReLU lets g pass.
template <class A>
struct GradientTally {
  const A* x = nullptr;  // a row for each of the task's; null where nothing is wanted
  Affine<A> affine{};
  double* sum = nullptr;
  double* product = nullptr;
};

// Consecutive output rows with every address and weight looked up. A is float or double.
//
// out[r] = scale[r] * (sum over e in [ptr[r], ptr[r + 1]) of weight[e] * source[e]) + self_scale[r] * self[r]
template <class A>
struct SumRows {
  int64_t rows;
  int64_t columns;
  const int64_t* ptr;         // [rows + 1], ptr[0] = base
  int64_t base;               // edge that source[0] and weight[0] belong to
  const char* const* source;  // [edges + ahead]: addresses of rows, those behind the edges only for prefetch
  const A* weight;            // [edges]
  int64_t ahead;              // edges between prefetch and use, at most kMostAhead
  const A* scale;             // [rows]
  const char* const* self;    // [rows], null entries where a row has no self part
  const A* self_scale;        // [rows]
  char* out;                  // rows lie one behind the other
  Element out_element;
  bool stream;  // past the caches: rows begin and end on a cache line
  // Where given, a row that is read, float as A is, stands for relu((row - center) * scale + shift).
  Affine<A> normed{};
  GradientTally<A> tally{};  // only of float rows
};

// `element` is that of the source rows.
void sum_rows(const SumRows<float>& task, Element element);
void sum_rows(const SumRows<double>& task, Element element);

}  // namespace pyg_batchgnn
