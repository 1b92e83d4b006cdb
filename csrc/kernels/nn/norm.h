// Batch normalisation (Ioffe and Szegedy 2015) of the rows of a matrix, with an optional ReLU, and
// layer normalisation (Ba, Kiros and Hinton 2016) with ReLU and keyed dropout; and these alone.
//
// Columns are reduced over fixed blocks of rows, which are combined in order. So a result does not
// depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/operand.h"
#include "kernels/simd/layer_norm.h"
#include "kernels/simd/norm.h"

namespace pyg_batchgnn {

// The mean of some rows and the sum of squared deviations from it, [columns] each.
struct ColumnMoments {
  double* mean;
  double* deviation;
};

// Adds the nb rows of `b` to the na rows of `a` (Chan, Golub and LeVeque 1979).
inline void join(ColumnMoments a, int64_t na, ColumnMoments b, int64_t nb, int64_t columns) {
  const double total = static_cast<double>(na + nb);
  const double share = static_cast<double>(nb) / total;
  const double between = share * static_cast<double>(na);
  for (int64_t c = 0; c < columns; ++c) {
    const double gap = b.mean[c] - a.mean[c];
    a.mean[c] += gap * share;
    a.deviation[c] += b.deviation[c] + gap * gap * between;
  }
}

// Converts sums about a center into moments.
template <class A>
void to_moments(const A* center, const A* sum, const A* square, int64_t rows, int64_t columns,
                ColumnMoments out) {
  const double inverse = 1.0 / static_cast<double>(rows);
  for (int64_t c = 0; c < columns; ++c) {
    const double offset = static_cast<double>(sum[c]) * inverse;
    out.mean[c] = static_cast<double>(center[c]) + offset;
    out.deviation[c] = std::max(0.0, static_cast<double>(square[c]) - offset * static_cast<double>(sum[c]));
  }
}

// The normalisation z = (x - mean) * inverse_deviation * weight + bias; the last two may be null.
struct Normalisation {
  const double* mean;
  const double* inverse_deviation;
  const double* weight;
  const double* bias;
};

// Computes the mean and the sum of squared deviations from it, [columns] each; zeros without rows.
template <class T>
void column_moments(const Rows<T>& x, int64_t threads, double* mean, double* deviation);

template <class T>
void batch_norm(const Rows<T>& x, const Normalisation& by, Epilogue epilogue, int64_t threads, T* y);

// kOwn: mean and deviation are those of x and have gradients. kGiven: they are constants.
enum class Statistics : bool { kOwn, kGiven };

// The columns for the gradient of a row (`gradient_rows`), [5, columns].
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

// The first half of `batch_norm_grads`: d_weight, d_bias, and in `out` the columns for d_x.
template <class T>
void batch_norm_grad_columns(const Rows<T>& x, const T* grad, const Normalisation& by, Epilogue epilogue,
                             Statistics statistics, int64_t threads, GradientColumns<Wide<T>> out,
                             double* d_weight, double* d_bias);

// Computes the gradients of the arguments of `batch_norm`: d_x [rows, columns], others [columns].
template <class T>
void batch_norm_grads(const Rows<T>& x, const T* grad, const Normalisation& by, Epilogue epilogue,
                      Statistics statistics, int64_t threads, T* d_x, double* d_weight, double* d_bias);

// Computes all rows.
template <class T>
void layer_norm(const LayerNorm<T>& job, int64_t rows, int64_t threads);

// Computes d_x, and d_weight and d_bias [columns].
template <class T>
void layer_norm_grads(const LayerNormGrads<T>& job, int64_t rows, int64_t threads, double* d_weight,
                      double* d_bias);

// Sets x = dropout(relu(x)), and its mask.
template <class T>
void activate(T* x, int64_t rows, int64_t columns, const Activation& activation, int64_t threads);

// Sets out = grad * scale where the mask has a bit, else 0.
template <class T>
void mask_gradient(const T* grad, const uint8_t* mask, int64_t rows, int64_t columns, double scale,
                   int64_t threads, T* out);

}  // namespace pyg_batchgnn
