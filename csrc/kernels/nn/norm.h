// Batch normalisation (Ioffe and Szegedy 2015) of the rows of a matrix, with an optional ReLU.
//
// Columns are reduced over fixed blocks of rows, which are combined in their order: a result does not depend
// on the number of threads.
#pragma once

#include <cstdint>

#include "kernels/simd/norm.h"

namespace pyg_batchgnn {

// What a column is normalised by: z = (x - mean) * inverse_deviation * weight + bias. [columns] each; weight
// and bias may be null.
struct Normalisation {
  const double* mean;
  const double* inverse_deviation;
  const double* weight;
  const double* bias;
};

// Mean and sum of squared deviations from it, [columns] each; zeros where there are no rows.
template <class T>
void column_moments(const Rows<T>& x, int64_t threads, double* mean, double* deviation);

// The center, scale and shift that rows are computed with, one behind the other: [3, columns].
template <class A>
void affine_columns(const Normalisation& by, int64_t columns, A* out);

template <class T>
void batch_norm(const Rows<T>& x, const Normalisation& by, Epilogue epilogue, int64_t threads, T* y);

// kOwn: mean and deviation are x's own and have gradients; kGiven: they are constants.
enum class Statistics : bool { kOwn, kGiven };

// What the gradient of a row takes of every column (`gradient_rows`), [columns] each, one behind the other.
template <class A>
struct GradientColumns {
  static constexpr int64_t kRows = 5;
  A* values;  // center, scale, shift, constant, slope
  int64_t columns;

  A* row(int64_t i) const { return values + i * columns; }
  Affine<A> affine() const { return {row(0), row(1), row(2)}; }
  const A* constant() const { return row(3); }
  const A* slope() const { return row(4); }
};

// The first half of `batch_norm_grads`: all but d_x, for which `out` is what is needed beside x and grad.
// Where `sums` is given, [2, columns] of the gradient g behind the ReLU and of g * (x - center), grad is not
// read.
template <class T>
void batch_norm_grad_columns(const Rows<T>& x, const T* grad, const double* sums, const Normalisation& by,
                             Epilogue epilogue, Statistics statistics, int64_t threads,
                             GradientColumns<Wide<T>> out, double* d_weight, double* d_bias);

// Gradients of the arguments of `batch_norm`: d_x [rows, columns], d_weight and d_bias [columns].
template <class T>
void batch_norm_grads(const Rows<T>& x, const T* grad, const Normalisation& by, Epilogue epilogue,
                      Statistics statistics, int64_t threads, T* d_x, double* d_weight, double* d_bias);

}  // namespace pyg_batchgnn
