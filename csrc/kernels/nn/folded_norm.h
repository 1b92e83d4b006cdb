// Batch normalisation of a product's columns as part of the product.
//
// With x's mean m and covariance C, the column o of x W^T has the mean w_o m and the variance w_o C w_o^T. So
//   (x W^T - mean) * r * scale + shift = x F^T + c,  r = 1 / sqrt(variance + eps),
// with F = diag(r * scale) W and c = shift - F m: neither the product nor its normalised values need be
// written. Gradients need of all rows no more than g^T (x - m), the gradient of F, and the sum of g.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

struct FoldedNorm {
  int64_t outputs, columns;
  const double* weight;  // [outputs, columns]
  const double* scale;   // [outputs] or null
  double eps;
};

// spread [outputs, columns] = W C; mean, variance and the factors r * scale of W's rows, [outputs] each.
void fold_norm(const FoldedNorm& norm, const double* x_mean, const double* x_covariance, double* spread,
               double* mean, double* variance, double* factor);

// From d_folded [outputs, columns] = g^T (x - m): the gradients of weight and scale. What r and the mean owe
// to W is the term with `spread`; the mean itself takes no gradient, because x - m sums to zero.
void fold_norm_grads(const FoldedNorm& norm, const double* variance, const double* spread,
                     const double* d_folded, double* d_weight, double* d_scale);

}  // namespace pyg_batchgnn
