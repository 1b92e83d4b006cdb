// Batch normalisation of the columns of a product, folded into the weight.
//
// With mean m and covariance C of x, column o of x W^T has mean w_o m and variance w_o C w_o^T. So
//   (x W^T - mean) * r * scale + shift = x F^T + c,  r = 1 / sqrt(variance + eps),
// with F = diag(r * scale) W and c = shift - F m. The product itself is never written. Of all rows,
// gradients need only g^T (x - m), the gradient of F, and the sum of g.
#pragma once

#include <cstdint>

#include "kernels/nn/linear.h"

namespace pyg_batchgnn {

struct FoldedNorm {
  int64_t outputs, columns;
  const double* weight;  // [outputs, columns]
  const double* scale;   // [outputs] or null
  double eps;
};

// Computes spread [outputs, columns] = W C, and mean, variance and the factors r * scale of the
// rows of W, [outputs] each.
void fold_norm(const FoldedNorm& norm, const double* x_mean, const double* x_covariance, double* spread,
               double* mean, double* variance, double* factor);

// Computes the gradients of weight and scale from d_folded [outputs, columns] = g^T (x - m). The
// term with `spread` is the gradient through r. That through the mean is zero: x - m sums to zero.
void fold_norm_grads(const FoldedNorm& norm, const double* variance, const double* spread,
                     const double* d_folded, double* d_weight, double* d_scale);

// The covariance of the columns of a matrix. It gives mean and variance of the columns of any
// product without computing the product.

// Computes `mean` [columns] and `covariance` [columns, columns] about it, divided by `rows`;
// zeros without rows. The bits do not depend on the number of threads.
void column_covariance(const LinearInput& x, int64_t rows, int64_t threads, double* mean, double* covariance);

}  // namespace pyg_batchgnn
