#include "kernels/nn/folded_norm.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/nn/linear_blocks.h"

namespace pyg_batchgnn {
namespace {

double dot(const double* a, const double* b, int64_t count) {
  return std::inner_product(a, a + count, b, 0.0);
}

double inverse_deviation(double variance, double eps) { return 1.0 / std::sqrt(variance + eps); }

// out [rows, columns] = a [rows, columns] * b [columns, columns].
void multiply(const double* a, const double* b, int64_t rows, int64_t columns, double* out) {
  const ProductKernels<double>& kernels = product_kernels<double>();
  const int64_t stride = block_stride<double>(columns), tiled = round_up(rows, kTileRows);
  Buffer<double> padded, sums;
  padded.reserve(columns * stride + 1);
  sums.reserve(tiled * stride + 1);
  for (int64_t k = 0; k < columns; ++k) {
    double* const to = padded.data() + k * stride;
    std::fill(std::copy_n(b + k * columns, columns, to), to + stride, 0.0);
  }
  std::vector<const double*> values(static_cast<size_t>(tiled));
  for (int64_t r = 0; r < tiled; ++r) values[static_cast<size_t>(r)] = a + std::min(r, rows - 1) * columns;
  PrefetchQueue nothing;
  kernels.dense({values.data(), 1, tiled, columns, round_up(columns, kernels.width) / kernels.width,
                 padded.data(), stride, sums.data(), stride, false, &nothing});
  for (int64_t r = 0; r < rows; ++r) std::copy_n(sums.data() + r * stride, columns, out + r * columns);
}

}  // namespace

void fold_norm(const FoldedNorm& norm, const double* x_mean, const double* x_covariance, double* spread,
               double* mean, double* variance, double* factor) {
  multiply(norm.weight, x_covariance, norm.outputs, norm.columns, spread);
  for (int64_t o = 0; o < norm.outputs; ++o) {
    const double* const row = norm.weight + o * norm.columns;
    mean[o] = dot(row, x_mean, norm.columns);
    const double exact = dot(row, spread + o * norm.columns, norm.columns);
    variance[o] = exact < 0 ? 0 : exact;  // a NaN stays visible
    factor[o] = inverse_deviation(variance[o], norm.eps) * (norm.scale == nullptr ? 1.0 : norm.scale[o]);
  }
}

void fold_norm_grads(const FoldedNorm& norm, const double* variance, const double* spread,
                     const double* d_folded, double* d_weight, double* d_scale) {
  for (int64_t o = 0; o < norm.outputs; ++o) {
    const int64_t at = o * norm.columns;
    const double inverse = inverse_deviation(variance[o], norm.eps);
    const double factor = inverse * (norm.scale == nullptr ? 1.0 : norm.scale[o]);
    d_scale[o] = inverse * dot(d_folded + at, norm.weight + at, norm.columns);
    for (int64_t k = at; k < at + norm.columns; ++k) {
      d_weight[k] = factor * (d_folded[k] - inverse * d_scale[o] * spread[k]);
    }
  }
}

}  // namespace pyg_batchgnn
