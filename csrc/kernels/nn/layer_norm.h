// Layer normalisation (Ba, Kiros and Hinton 2016) with ReLU and keyed dropout; and these alone.
#pragma once

#include <cstdint>

#include "kernels/simd/layer_norm.h"

namespace pyg_batchgnn {

// Computes all rows.
template <class T>
void layer_norm(const LayerNorm<T>& job, int64_t rows, int64_t threads);

// Computes d_x, and d_weight and d_bias [columns]. They are summed over fixed blocks of rows, which
// are combined in order, so a result does not depend on the number of threads.
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
