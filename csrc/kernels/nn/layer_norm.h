// Layer normalisation (Ba, Kiros and Hinton 2016) of each row, with ReLU and keyed dropout.
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

}  // namespace pyg_batchgnn
